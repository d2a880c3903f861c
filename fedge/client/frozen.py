"""The frozen entries of a client's model, which no message carries (`fedge.training.networks.frozen`)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from torch import nn

from fedge.config.sections.train import TrainConfig
from fedge.data.prepared import ClientData
from fedge.states.averaging import State
from fedge.training.networks.frozen import frozen_names, full_state, parted
from fedge.training.networks.module_state import get_state
from fedge.training.networks.start import drawn_network


def whole_model(state: State, network: nn.Module, config: TrainConfig, data: ClientData, seed: int) -> State:
    """A model for training or evaluation at a client, from the transmitted entries.

    Args:
        state: of a message.
        network: of the run's kind.
        config: of the run.
        data: the client's, with the frozen entries where the server has put them beside.
        seed: of the run, from which they are drawn where clients own their data.
    """
    if config.exchange == "all":
        return state
    return full_state(state, data.frozen or _drawn(config, seed, *_shape_of(data)), network)


def _shape_of(data: ClientData) -> tuple[tuple[int, ...], int, tuple[int, ...], bool]:
    """Sizes from which a model is built."""
    x, y = data.train
    return x.shape[1:], data.classes, y.shape[1:], x.dtype == np.int64


@lru_cache(maxsize=1)
def _drawn(
    config: TrainConfig,
    seed: int,
    input_shape: tuple[int, ...],
    classes: int,
    y_shape: tuple[int, ...],
    tokens: bool,
) -> State:
    """Frozen entries as they follow from the seed, the newest kept."""
    network = drawn_network(config, seed, input_shape, classes, y_shape, tokens=tokens)
    return parted(get_state(network), frozen_names(network, config))[1]
