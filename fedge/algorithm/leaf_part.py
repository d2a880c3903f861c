"""A method at the leaf: combination of clients' messages, memory, and messages to clients."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedge.privacy.marks import MODELS, SINGLE_MODELS, Quantity
from fedge.seeding import Purpose, numpy_stream
from fedge.states.averaging import State, weighted_mean
from fedge.states.named import Memory, Value


@dataclass(frozen=True)
class Brought:
    """Message of one client to the leaf part.

    Attributes:
        client: its partition id.
        state: the model; entries not transmitted are the leaf's.
        weight: in means.
        arrays: sent beside the model, by name; states under "name/entry".
    """

    client: int
    state: State = field(repr=False)
    weight: float
    arrays: State = field(repr=False)


@dataclass(frozen=True)
class LeafTurn:
    """Leaf round in which a leaf combines its clients' messages.

    Attributes:
        leaf: its number, from 0.
        global_round: 1, 2, …; on the virtual clock the evaluations so far, plus 1.
        leaf_round: 1, 2, …, counted through the run; on the virtual clock the number of the leaf's version.
        seed: of the run.
        where: place of the leaf's random streams, beside the seed.
    """

    leaf: int = 0
    global_round: int = 1
    leaf_round: int = 1
    seed: int = 0
    where: tuple[int, ...] = ()


@dataclass
class LeafContributions:
    """Contributions of a leaf round's clients, to be combined.

    Attributes:
        model: at the start of the leaf round.
        mean: of the clients' models, weighted.
        means: of the further arrays, weighted.
        brought: by the clients with accepted replies, in order of their ids; empty on the virtual clock where
            the part does not read replies.
        memory: of the leaf part, may be changed; names, shapes and dtypes stay.
        parameters: names of the trainable entries.
        clients: training clients of the leaf, with or without a reply.
        lr: step size of the round.
        turn: the leaf and its round.
    """

    model: State
    mean: State
    means: State
    brought: Sequence[Brought]
    memory: Memory
    parameters: Sequence[str]
    clients: int
    lr: float
    turn: LeafTurn = field(default_factory=LeafTurn)

    def rng(self, name: str = "") -> np.random.Generator:
        """A NumPy stream of this leaf in this leaf round, from its beginning; another one for each name."""
        where = (*self.turn.where, zlib.crc32(name.encode()))
        return numpy_stream(self.turn.seed, Purpose.LEAF_PART, *where)


class LeafPart:
    """Leaf side of a method, beside Fedge's means; all its methods have defaults.

    The constructor gets those arguments of `train.algorithm-args` in its signature.

    Attributes:
        reads_replies: whether `combine` reads single replies, or means of their arrays. If not, it knows the
            leaf's model and `leaf.mean` alone, which a server's rule on the virtual clock can make of replies
            from different versions, too.
    """

    reads_replies: ClassVar[bool] = True

    def start(self, model: State) -> Memory:
        """Memory before the first round: arrays, states and numbers by name."""
        return {}

    def send(self, memory: Memory) -> Mapping[str, Value]:
        """Arrays, states or numbers sent to clients beside the model, by name; none by default."""
        return {}

    def combine(self, leaf: LeafContributions) -> State:
        """The leaf's new model; by default the mean. If overridden, `leaf.strategy` must be fedavg."""
        return leaf.mean

    @classmethod
    def combines(cls) -> bool:
        """Whether the part makes the leaf's model itself."""
        return cls.combine is not LeafPart.combine

    @classmethod
    def decides_by(cls) -> Quantity:
        """Mark of the quantities behind the leaf's model."""
        return SINGLE_MODELS if cls.combines() else MODELS


def plain_mean(states: Sequence[Mapping[str, np.ndarray]]) -> State:
    """Mean of K states with equal weights; sums in float64 in the order given."""
    return weighted_mean(states, [1.0] * len(states))
