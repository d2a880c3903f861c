"""A method at the leaf: combination of clients' messages, memory, and messages to clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedge.privacy.marks import MODELS, SINGLE_MODELS, Quantity
from fedge.states.averaging import State, weighted_mean
from fedge.states.named import Memory, Value


@dataclass(frozen=True)
class Brought:
    """Message of one client to the leaf part.

    Attributes:
        client: its partition id.
        state: the model; entries that did not travel are the leaf's.
        weight: in means.
        arrays: sent beside the model, by name; states under "name/entry".
    """

    client: int
    state: State = field(repr=False)
    weight: float
    arrays: State = field(repr=False)


@dataclass
class LeafRound:
    """A leaf round that is being combined.

    Attributes:
        model: with which it began.
        mean: of the clients' models, weighted.
        means: of the further arrays, weighted.
        brought: by the clients whose replies count, in order of their ids.
        memory: of the leaf part, which may change it; names, shapes and dtypes stay.
        parameters: names of the entries that train.
        clients: that train under the leaf, whether or not they took part.
        lr: step size of the round.
    """

    model: State
    mean: State
    means: State
    brought: Sequence[Brought]
    memory: Memory
    parameters: Sequence[str]
    clients: int
    lr: float


class LeafPart:
    """Leaf side of a method, beside Fedge's means; every part of it can be left as it is.

    It is made with those arguments of `train.algorithm-args` that its constructor takes.
    """

    def start(self, model: State) -> Memory:
        """Memory before the first round: arrays, states and numbers by name."""
        return {}

    def send(self, memory: Memory) -> Mapping[str, Value]:
        """Arrays, states or numbers that go to clients beside the model, by name; none by default."""
        return {}

    def combine(self, leaf: LeafRound) -> State:
        """The leaf's new model; by default the mean. Needs `leaf.strategy` to be fedavg if it is written."""
        return leaf.mean

    @classmethod
    def combines(cls) -> bool:
        """Whether it makes the leaf's model itself."""
        return cls.combine is not LeafPart.combine

    @classmethod
    def decides_by(cls) -> Quantity:
        """Mark of the quantities that the leaf's model is made from."""
        return SINGLE_MODELS if cls.combines() else MODELS


def plain_mean(states: Sequence[Mapping[str, np.ndarray]]) -> State:
    """Mean of K states that count alike; sums in float64 in the order given."""
    return weighted_mean(states, [1.0] * len(states))
