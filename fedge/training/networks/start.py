"""Initial weights of a run: drawn from its seed, with entries from a file, if any, in their place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import nn

from fedge.config.registers.option import ConfigError, shown
from fedge.config.sections.train import TrainConfig
from fedge.seeding import Purpose, torch_stream
from fedge.states.averaging import State
from fedge.states.files import StateFileError, map_state
from fedge.training.networks.fitting import fit_of
from fedge.training.networks.models import build_model
from fedge.training.networks.module_state import get_state


def drawn_network(
    config: TrainConfig,
    seed: int,
    input_shape: tuple[int, ...],
    classes: int,
    y_shape: tuple[int, ...],
    *,
    tokens: bool,
    number: int = 0,
) -> nn.Module:
    """The run's network with weights drawn from the seed, the same on every machine.

    Args:
        config: configuration of the run.
        seed: seed of the run.
        input_shape: shape of one window.
        classes: number of outputs.
        y_shape: shape of the target of one window.
        tokens: inputs are int64.
        number: 0 for the model of all leaves; 1, 2, … for further initial models.
    """
    generator = torch_stream(seed, Purpose.MODEL, *([number] if number else []))
    fit = fit_of(config, classes, y_shape, tokens=tokens)
    return build_model(config.model, input_shape, classes, generator, config.arguments("model"), fit)


def first_state(network: nn.Module, config: TrainConfig) -> State:
    """The weights with which a run begins: the network's, the entries taken from `train.start`.

    Raises:
        ConfigError: the file is not a state, or has an entry missing from the model, or of another form.
    """
    entries = get_state(network)
    if not config.start:
        return entries
    try:
        loaded = map_state(Path(config.start))
    except StateFileError as error:
        raise ConfigError(f"train.start: {error}; name a safetensors file of weights") from error
    refuse_other_weights(loaded, entries, config)
    return {name: np.array(loaded[name]) if name in loaded else array for name, array in entries.items()}


def refuse_other_weights(loaded: State, entries: State, config: TrainConfig) -> None:
    """Raise ConfigError for the first entry missing from a model, not finite or of another form.

    Args:
        loaded: state from `train.start`.
        entries: the model's state.
        config: configuration of the run.
    """
    label = f"train.start {config.start}"
    if not loaded:
        raise ConfigError(f"{label} has no weights; name a file with some")
    for name, array in loaded.items():
        if name not in entries:
            raise ConfigError(
                f"{label} must hold entries of train.model {config.model}, but has {shown(name)}; the "
                f"model's begin with {shown(next(iter(entries)))}: rename them, or leave it out of the file"
            )
        expected = entries[name]
        if array.shape != expected.shape or array.dtype != expected.dtype:
            raise ConfigError(
                f"{label} must hold {name!r} as {expected.dtype} {expected.shape}, but holds {array.dtype} "
                f"{array.shape}; convert it, or leave it out of the file"
            )
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            raise ConfigError(f"{label} must hold finite numbers, but {name!r} does not; fix the file")
