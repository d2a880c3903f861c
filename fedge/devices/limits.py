"""Bottleneck of a run on the virtual clock: training by clients, or the server's own work."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hhar.quantity import quantity

_TRAINING_SHARE = 0.5


@dataclass(frozen=True)
class Limits:
    """Breakdown of a run's real time.

    Attributes:
        spent: part of the loop → seconds; "wait" is waiting for clients, all others are the server's work.
        workers: largest number of clients training at a time.
        concurrency: devices working at a time on the virtual clock.

    >>> Limits({"wait": 8.0, "aggregate": 1.5, "record": 0.5}, 2, 60).line()
    'limited by training: the loop waited 80 % of 10 s for its 2 workers; more cores would help, up to 60'
    """

    spent: Mapping[str, float]
    workers: int
    concurrency: int

    @property
    def waiting_share(self) -> float:
        """Share of the loop's time spent waiting for clients."""
        total = sum(self.spent.values())
        return self.spent.get("wait", 0.0) / total if total else 0.0

    @property
    def bottleneck(self) -> str:
        """Bottleneck: "training", "concurrency" if too low to keep the workers busy, or "server"."""
        if self.waiting_share < _TRAINING_SHARE:
            return "server"
        return "concurrency" if self.concurrency <= self.workers else "training"

    def line(self) -> str:
        """The bottleneck in one line of text."""
        total = f"{sum(self.spent.values()):.3g} s"
        if self.bottleneck == "server":
            work = {name: seconds for name, seconds in self.spent.items() if name != "wait"}
            longest = max(work, key=lambda name: work[name])
            return (
                f"limited by the server: it waited {100 * self.waiting_share:.0f} % of {total} for "
                f"{_worker_count(self.workers)} and spent most on {longest} ({work[longest]:.3g} s); "
                "more workers would not help"
            )
        waited = (
            f"the loop waited {100 * self.waiting_share:.0f} % of {total} "
            f"for its {_worker_count(self.workers)}"
        )
        if self.bottleneck == "concurrency":
            return f"limited by asynchrony.concurrency {self.concurrency}: {waited}, with no more jobs"
        return f"limited by training: {waited}; more cores would help, up to {self.concurrency}"

    def facts(self) -> dict[str, Any]:
        """Fields for JSON."""
        return {
            "by": self.bottleneck,
            "waited": self.waiting_share,
            "workers": self.workers,
            "spent_s": dict(self.spent),
        }


def _worker_count(count: int) -> str:
    """Number and noun: "1 worker", "2 workers"."""
    return quantity(count, "worker")
