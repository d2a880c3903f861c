"""Requests of servers for leaf rounds, beside models: probes, updates, folds, dispersion."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from fedge.clustering.likeness.updates import Updates
from fedge.exchange.round_context import LEAF
from fedge.leaf.leaf import Leaf
from fedge.states.averaging import State


@dataclass(frozen=True)
class Receiver:
    """Receiver of the updates of leaves below one server.

    Attributes:
        updates: collects the updates.
        child_of: leaf → the server's child above it, or the leaf itself.
    """

    updates: Updates
    child_of: Mapping[int, int]

    def note(self, client: int, leaf: int, state: State, windows: int) -> None:
        """Add the trained model of a leaf's client, and its number of windows."""
        self.updates.note(client, self.child_of[leaf], state, windows)

    def take(self, client: int, leaf: int, summaries: Sequence[np.ndarray]) -> None:
        """Add summaries of a client's update, (D,) each, from a leaf server (`Updates.take`)."""
        self.updates.take(client, self.child_of[leaf], summaries)


@dataclass(frozen=True)
class ProbeRequest:
    """A leaf round from one model, for comparison only.

    Attributes:
        leaves: training leaves.
        start: the starting model.
        leaf_round: leaf round seeding the random streams.
        receiver: collects clients' updates; None if not needed.
        line: "probe" to train as in global round 1.
        most_windows: largest number of training windows per client; 0 for all.
    """

    leaves: Sequence[Leaf]
    start: State
    leaf_round: int
    receiver: Receiver | None = None
    line: Literal["leaf", "probe"] = LEAF
    most_windows: int = 0


@dataclass
class Requests:
    """Requests of all servers in a global round.

    Attributes:
        receivers: receivers of updates of the coming leaf round.
        alone: leaves for which folds are requested.
        dispersion: whether the dispersion of clients' models is requested.
    """

    receivers: list[Receiver] = field(default_factory=list)
    alone: frozenset[int] = frozenset()
    dispersion: bool = False

    def receivers_of(self, leaf: int) -> list[Receiver]:
        """Receivers of the updates of a leaf's clients."""
        return [receiver for receiver in self.receivers if leaf in receiver.child_of]

    def updates_of(self, leaf: int) -> Updates | None:
        """Form of the updates requested from a leaf's clients; None if not requested."""
        return next((receiver.updates for receiver in self.receivers_of(leaf)), None)
