"""Arrivals at a server of the virtual clock, its memory between them, and the form of its rule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedge.devices.servers.model_facts import ModelFacts


@dataclass(frozen=True, eq=False)
class Arrival:
    """Contribution of a server's child: a device's trained model, or a leaf's own.

    Attributes:
        child: partition id of the device, or number of the leaf.
        staleness: τ, the server's versions since the child's start.
        start: (P,) its starting model; the server's own vector object if unchanged.
        end: (P,) the child's trained model.
        weight: its training windows.
        share: of its steps taken, 0..1; below 1 only where the rule has the trait `PARTIAL`.
        counters: its entries of other types than floating point.
    """

    child: int
    staleness: int
    start: np.ndarray
    end: np.ndarray
    weight: float = 1.0
    counters: Mapping[str, np.ndarray] = field(default_factory=dict)
    share: float = 1.0

    @property
    def delta(self) -> np.ndarray:
        """Δ = end − start, (P,) float64."""
        return np.subtract(self.end, self.start, dtype=np.float64)


@dataclass
class Memory:
    """Memory of a server between arrivals; saved in checkpoints.

    Attributes:
        children: how many the server has.
        buffer: arrivals waiting for others.
        arrays: by names of the rule's choice, of any shape and dtype.
        facts: of the model, the same throughout; None before a run, where rules are tried out.
        private: adds noise to releases; None without privacy.
    """

    children: int
    buffer: list[Arrival] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    facts: ModelFacts | None = None
    private: "Release | None" = None


class Release(Protocol):
    """Noise of a server's releases, as `fedge.devices.servers.private.PrivateSum` adds it."""

    def released(
        self, memory: Memory, arrivals: Sequence[Arrival], weights: Sequence[float], step: float
    ) -> np.ndarray:
        """Weighted sum of the arrivals' updates, (P,) float64, with noise."""


Rule = Callable[..., "np.ndarray | None"]
