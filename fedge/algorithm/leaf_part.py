"""Leaf side of a method: combining clients' messages, memory, and messages to clients."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fedge.config.registers.hooks import refuse_unknown_attribute
from fedge.privacy.marks import MODELS, SINGLE_MODELS, Quantity
from fedge.seeding import Purpose, numpy_stream
from fedge.states.averaging import State, weighted_mean
from fedge.states.named_states import Memory, Value


@dataclass(frozen=True)
class ReplyToLeaf:
    """Message of one client to the leaf part.

    Attributes:
        client: partition id of the client.
        state: its model; entries not sent have the leaf's values.
        weight: its weight in means.
        arrays: arrays sent beside the model, by name; states under "name/entry".
    """

    client: int
    state: State = field(repr=False)
    weight: float
    arrays: State = field(repr=False)


@dataclass(frozen=True)
class LeafTurn:
    """The leaf round in which messages are combined.

    Attributes:
        leaf: number of the leaf, from 0.
        global_round: 1, 2, …; on the virtual clock, 1 + the number of evaluations so far.
        leaf_round: 1, 2, …, counted over the run; on the virtual clock, the version of the leaf's model.
        seed: seed of the run.
        where: coordinates of the leaf's random streams, beside the seed.
    """

    leaf: int = 0
    global_round: int = 1
    leaf_round: int = 1
    seed: int = 0
    where: tuple[int, ...] = ()


@dataclass
class LeafContributions:
    """Input of `LeafPart.combine`: the clients' contributions to a leaf round.

    Attributes:
        model: the leaf's model at the start of the round.
        mean: weighted mean of the clients' models.
        means: weighted means of the further arrays.
        brought: messages with accepted replies, in order of client ids; empty on the virtual clock unless the
            part reads replies.
        memory: the leaf part's memory; its values may be changed, but not names, shapes or dtypes.
        parameters: names of the trainable entries.
        clients: number of training clients of the leaf, with or without a reply.
        lr: learning rate of the round.
        turn: the leaf and its round.
    """

    model: State
    mean: State
    means: State
    brought: Sequence[ReplyToLeaf]
    memory: Memory
    parameters: Sequence[str]
    clients: int
    lr: float
    turn: LeafTurn = field(default_factory=LeafTurn)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; AttributeError for an unknown one, which nothing would read."""
        refuse_unknown_attribute(self, name, "leaf", "keep values in leaf.memory")
        super().__setattr__(name, value)

    def rng(self, name: str = "") -> np.random.Generator:
        """A NumPy random stream of this leaf, round and name; every call starts it from the beginning."""
        coordinates = (*self.turn.where, zlib.crc32(name.encode()))
        return numpy_stream(self.turn.seed, Purpose.LEAF_PART, *coordinates)


class LeafPart:
    """Leaf side of a method; every method has a default, by which the leaf takes the weighted mean.

    The constructor gets those arguments of `train.algorithm-args` in its signature.

    Attributes:
        reads_replies: whether `combine` reads single replies or the means of their arrays. If False, it sees
            only the leaf's model and `leaf.mean`, so it works on the virtual clock, too, where a server's
            rule combines replies to different versions.
    """

    reads_replies: ClassVar[bool] = True

    def start(self, model: State) -> Memory:
        """Initial memory: arrays, states and numbers by name."""
        return {}

    def send(self, memory: Memory) -> Mapping[str, Value]:
        """Arrays, states or numbers to send to clients beside the model, by name; none by default."""
        return {}

    def combine(self, leaf: LeafContributions) -> State:
        """The leaf's new model, by default the mean; an override needs `leaf.strategy` fedavg."""
        return leaf.mean

    @classmethod
    def combines(cls) -> bool:
        """Whether `combine` is overridden."""
        return cls.combine is not LeafPart.combine

    @classmethod
    def decides_by(cls) -> Quantity:
        """Kind of client data on which the leaf's model depends, for privacy checks."""
        return SINGLE_MODELS if cls.combines() else MODELS


def plain_mean(states: Sequence[Mapping[str, np.ndarray]]) -> State:
    """Mean of K states with equal weights; sums in float64 in the order given."""
    return weighted_mean(states, [1.0] * len(states))
