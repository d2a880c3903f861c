"""Client side of a method: training, messages, memory and evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedge.algorithm.descent import Fit
from fedge.states.averaging import State
from fedge.states.named_states import Memory, Value

if TYPE_CHECKING:
    from fedge.algorithm.client import Client
    from fedge.algorithm.leaf_part import LeafPart


@dataclass(frozen=True)
class Sent:
    """Message of a client to its leaf.

    Attributes:
        fit: result of local training with the whole model; its loss goes into the tables.
        only: names of the model entries to send; None for all. The leaf keeps its own values of the others.
        weight: weight in the leaf's means, above 0 and at most the number of windows; None for that number.
        arrays: further values to send by name: arrays, states or numbers, sent as floating point, except
            integers of states in `beside_models`.
    """

    fit: Fit
    only: Sequence[str] | None = None
    weight: float | None = None
    arrays: Mapping[str, Value] = field(default_factory=dict)


class Algorithm:
    """A client's algorithm; derive a class and write `train`.

    One object serves all clients of a process in turn, so a client's state belongs in ``client.memory``,
    never in the object. The constructor gets the arguments of `train.algorithm-args`.

    Attributes:
        leaf: class of the leaf part; None for the weighted mean.
        corrected: whether the algorithm adds SCAFFOLD's ``client.correction``; if not, `scaffold.enabled` is
            refused.
        reads: keys read from the strategy's config record, ``client.config``.
        within: name of an array sent beside the model → (least, greatest) allowed value; replies outside the
            range are refused. List values the leaf part could not handle.
        beside_models: names of sent states that are models themselves: variances must not be negative, and a
            mean has the first client's integers.
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
        """Train for one leaf round; may change the memory's values, but not its names, shapes or dtypes."""
        raise NotImplementedError

    def models(self, client: Client) -> Mapping[str, State]:
        """Further models to evaluate, by name, beside the served one (``client.received``)."""
        return {}

    def unseen(self, client: Client) -> Mapping[str, State]:
        """Like `models`, for an unseen client, which never trains; it may adapt on its training windows."""
        return {}


def select_entries(state: Mapping[str, np.ndarray], names: Sequence[str]) -> State:
    """Entries of a state (name → array of any shape and dtype), in the order of the names."""
    return {name: state[name] for name in names}
