"""Frozen entries of a model: sent once, and added back wherever a whole model is needed.

With ``train.exchange = "trainable"`` a run's models, on every server and in every message, lack the frozen
entries: parameters without gradient (``requires_grad_(False)``). Buffers are sent, since BatchNorm's
statistics change in training. Clients put both parts together again.
"""

from __future__ import annotations

from torch import nn

from fedge.config.sections.train import TrainConfig
from fedge.states.averaging import State
from fedge.training.networks.models import state_entries


def frozen_names(network: nn.Module, config: TrainConfig) -> frozenset[str]:
    """Names of the entries not sent; empty if all are sent.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    >>> net[0].weight.requires_grad_(False) is net[0].weight
    True
    >>> sorted(frozen_names(net, TrainConfig(exchange="trainable")))
    ['0.weight']
    >>> sorted(frozen_names(net, TrainConfig()))
    []
    """
    if config.exchange == "all":
        return frozenset()
    return frozenset(name for name, p in network.named_parameters() if not p.requires_grad)


def split_frozen(state: State, frozen: frozenset[str]) -> tuple[State, State]:
    """The transmitted and the frozen part of a whole state, both in its order.

    >>> import numpy as np
    >>> split_frozen({"a": np.zeros(1), "b": np.ones(1)}, frozenset({"a"}))
    ({'b': array([1.])}, {'a': array([0.])})
    """
    transmitted = {name: array for name, array in state.items() if name not in frozen}
    return transmitted, {name: state[name] for name in state if name in frozen}


def full_state(state: State, frozen: State, network: nn.Module) -> State:
    """The whole state of a network, in its order, from transmitted and frozen entries."""
    if not frozen:
        return state
    return {name: state[name] if name in state else frozen[name] for name in state_entries(network)}
