"""Result of a probe: a leaf round of all leaves from one model, only for comparing the leaves."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedge.clustering.likeness.updates import Updates
from fedge.states.averaging import State


@dataclass(frozen=True)
class Probe:
    """A leaf round of all leaves from one model, for comparison only.

    Attributes:
        start: the starting model.
        models: trained model of each leaf.
        updates: clients' updates; None if not needed.
    """

    start: State
    models: Sequence[State]
    updates: Updates | None = None
