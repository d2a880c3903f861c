"""A method at the client: training, messages, memory and evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedge.algorithm.descent import Fit
from fedge.states.averaging import State
from fedge.states.named import Memory, Value

if TYPE_CHECKING:
    from fedge.algorithm.client import Client
    from fedge.algorithm.leaf_part import LeafPart


@dataclass(frozen=True)
class Sent:
    """Message of a client to its leaf.

    Attributes:
        fit: the model, whole; its loss goes into the tables.
        only: names of the transmitted model entries; None for all. The others stay the leaf's.
        weight: in the leaf's means, above 0 and at most the client's windows; None for its windows.
        arrays: further ones by name: arrays, states or numbers, sent as floating point.
    """

    fit: Fit
    only: Sequence[str] | None = None
    weight: float | None = None
    arrays: Mapping[str, Value] = field(default_factory=dict)


class Algorithm:
    """A client's algorithm; derive a class and write `train`.

    One object serves all clients of a process, one after the other: the state of one of them goes into
    ``client.memory``, never into the object. Its constructor takes the arguments of `train.algorithm-args`.

    Attributes:
        leaf: class of the leaf part; None for a mean.
        corrected: whether the algorithm adds SCAFFOLD's ``client.correction``; else `scaffold.enabled` is
            refused.
        reads: keys of a strategy's config record read from ``client.config``.
        within: name of an array sent beside the model → least and most allowed number; replies outside the
            range do not count. List here the values its leaf part could not handle.
        beside_models: names of states sent beside the model and being models themselves, without negative
            variances.
    """

    leaf: ClassVar[type[LeafPart] | None] = None
    corrected: ClassVar[bool] = False
    reads: ClassVar[frozenset[str]] = frozenset()
    within: ClassVar[Mapping[str, tuple[float, float]]] = {}
    beside_models: ClassVar[frozenset[str]] = frozenset()

    def start(self, client: Client) -> Memory:
        """Initial memory of a client: arrays, states and numbers by name; none by default."""
        return {}

    def train(self, client: Client) -> Fit | Sent:
        """One leaf round of a client, which may change its memory; names, shapes and dtypes stay."""
        raise NotImplementedError

    def models(self, client: Client) -> Mapping[str, State]:
        """Further models for the client's evaluation beside the served one, ``client.received``, by name."""
        return {}

    def unseen(self, client: Client) -> Mapping[str, State]:
        """The same of an unseen client, which has trained nothing; the client may adapt on its training
        windows."""
        return {}


def picked(state: Mapping[str, np.ndarray], names: Sequence[str]) -> State:
    """Entries of a state (name → array of any shape and dtype), in the order of the names."""
    return {name: state[name] for name in names}
