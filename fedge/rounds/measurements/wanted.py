"""Wishes of servers for leaf rounds, beside the models: probes, updates, folds, dispersion."""

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
        updates: takes them in.
        child_of: leaf → child of that server above, or the leaf itself.
    """

    updates: Updates
    child_of: Mapping[int, int]

    def note(self, client: int, leaf: int, state: State, windows: int) -> None:
        """Receive a leaf's client's trained model, on so many windows."""
        self.updates.note(client, self.child_of[leaf], state, windows)

    def take(self, client: int, leaf: int, summaries: Sequence[np.ndarray]) -> None:
        """Take in summaries of a client's update, (D,) each, from a leaf server (`Updates.take`)."""
        self.updates.take(client, self.child_of[leaf], summaries)


@dataclass(frozen=True)
class ProbeRequest:
    """A leaf round of leaves from one model, which counts for nothing but comparison.

    Attributes:
        leaves: that train.
        start: the model.
        leaf_round: of the random streams.
        receiver: receives clients' updates; None where nobody needs them.
        line: "probe" to train as in global round 1.
        most_windows: each client's training windows; 0 for all.
    """

    leaves: Sequence[Leaf]
    start: State
    leaf_round: int
    receiver: Receiver | None = None
    line: Literal["leaf", "probe"] = LEAF
    most_windows: int = 0


@dataclass
class Requests:
    """Wishes of all servers in a global round.

    Attributes:
        receivers: of updates of the coming leaf round.
        alone: leaves with requested folds.
        dispersion: how far clients' models lie apart is wanted.
    """

    receivers: list[Receiver] = field(default_factory=list)
    alone: frozenset[int] = frozenset()
    dispersion: bool = False

    def receivers_of(self, leaf: int) -> list[Receiver]:
        """Receivers of the updates of a leaf's clients."""
        return [receiver for receiver in self.receivers if leaf in receiver.child_of]

    def updates_of(self, leaf: int) -> Updates | None:
        """Form of the updates wanted of a leaf's clients; None where nobody wants them."""
        return next((receiver.updates for receiver in self.receivers_of(leaf)), None)
