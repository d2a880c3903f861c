"""Probe: a leaf round of all leaves from one model, for comparison only."""

from collections.abc import Sequence
from dataclasses import dataclass

from fedge.clustering.likeness.updates import Updates
from fedge.states.averaging import State


@dataclass(frozen=True)
class Probe:
    """A leaf round of all leaves from one model, for comparison only.

    Attributes:
        start: the model.
        models: per leaf the trained one.
        updates: clients' updates; None where nobody needs them.
    """

    start: State
    models: Sequence[State]
    updates: Updates | None = None
