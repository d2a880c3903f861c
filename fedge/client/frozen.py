"""Frozen entries of a client's model, which messages leave out (`fedge.training.networks.frozen`)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from torch import nn

from fedge.config.registers.parts import MODELS
from fedge.config.sections.train import TrainConfig
from fedge.data.prepared import ClientData
from fedge.states.averaging import State
from fedge.training.networks.frozen import frozen_names, full_state, split_frozen
from fedge.training.networks.module_state import get_state
from fedge.training.networks.start import drawn_network


def whole_model(state: State, network: nn.Module, config: TrainConfig, data: ClientData, seed: int) -> State:
    """A whole model for training or evaluation at a client, from the entries sent.

    Args:
        state: state in the message.
        network: a network of the run.
        config: section `train`.
        data: data of the client, with the frozen entries if the server has stored them there.
        seed: seed of the run, from which frozen entries are drawn if clients own their data.
    """
    if config.exchange == "all":
        return state
    code = MODELS.load(config.model)  # a process that stays imports it again for another run
    frozen = data.frozen or _draw_frozen_entries(code, config, seed, *_model_sizes(data))
    return full_state(state, frozen, network)


def _model_sizes(data: ClientData) -> tuple[tuple[int, ...], int, tuple[int, ...], bool]:
    """Sizes that determine a model."""
    x, y = data.train
    return x.shape[1:], data.classes, y.shape[1:], x.dtype == np.int64


@lru_cache(maxsize=1)
def _draw_frozen_entries(
    code: Any,
    config: TrainConfig,
    seed: int,
    input_shape: tuple[int, ...],
    classes: int,
    y_shape: tuple[int, ...],
    tokens: bool,
) -> State:
    """Frozen entries drawn from the seed; the latest result is cached, by the network's `code` as well."""
    network = drawn_network(config, seed, input_shape, classes, y_shape, tokens=tokens)
    return split_frozen(get_state(network), frozen_names(network, config))[1]
