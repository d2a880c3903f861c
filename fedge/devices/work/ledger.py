"""Ledger of devices: jobs, virtual time, bytes, staleness, device by device."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedge.devices.population.fleet import Fleet, watts_of
from fedge.devices.timeline.clock import SECOND_US
from fedge.devices.work.jobs import Job
from fedge.exchange.failure import Failure
from fedge.states.restored import form

_COUNTS = (
    "jobs", "updates", "dropped", "away", "late", "stale", "failed", "busy_us", "wasted_us", "partial",
    "uploads",
)  # fmt: skip
_BYTES = ("up", "down", "cloud_up", "cloud_down")


@dataclass(frozen=True)
class DeviceTotals:
    """One device over the whole run; a row of devices.csv.

    Attributes:
        device: partition id.
        leaf: number of its leaf.
        train_samples: windows.
        jobs: ended; they are updates, dropped, away, late, stale or failed.
        updates: jobs with a used result.
        dropped, away, late, stale, failed: lost jobs, and why.
        busy_s, wasted_s, idle_s: virtual seconds at work, thereof in lost jobs, and without work.
        contribution: share of all updates, 0..1.
        partial: updates of a part of their steps.
    """

    device: int
    leaf: int
    train_samples: int
    jobs: int
    updates: int
    dropped: int
    away: int
    late: int
    stale: int
    failed: int
    busy_s: float
    wasted_s: float
    idle_s: float
    contribution: float
    partial: int = 0


def gini(values: np.ndarray) -> float:
    """The Gini coefficient of numbers (N,) of at least 0: 0 if all are equal, 1 − 1/N if one has all.

    Σ_i (2i − N − 1) x_i / (N Σ x), x in ascending order, i from 1. 0 for zeros alone.

    >>> gini(np.array([1, 1, 1])), gini(np.array([0, 0, 0, 8]))
    (0.0, 0.75)
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count, total = len(ordered), float(ordered.sum())
    if total == 0:
        return 0.0
    return float((2 * np.arange(1, count + 1) - count - 1) @ ordered / (count * total))


class Ledger:
    """The books of a run on the virtual clock.

    Attributes:
        counts: name of `DeviceTotals` (times in microseconds) → (N,) int64, a number per device; "uploads":
            jobs, lost or not, whose device had finished training, and so begun to send.
        staleness: τ → arrivals that had it, those that were dropped for it included.
        cloud_staleness: the same of servers' models at those above.
        taken: results that were taken in, of all devices.
        leaf_versions: that leaves have made.
        moved: "up", "down", "cloud_up", "cloud_down" → bytes of models so far.
        between: per server but the cloud, by its number, bytes of models up and down, (S, 2) int64.
        losses: device → mean loss of its newest job, of those since the last evaluation.
        failures: device → its first failure since then.
    """

    def __init__(self, devices: int, fleet: Fleet | None = None, servers: int = 0) -> None:
        """Open the books of so many devices and servers but the cloud; power is a fleet's, if it is known."""
        self.counts = {name: np.zeros(devices, np.int64) for name in _COUNTS}
        self.staleness: Counter[int] = Counter()
        self.cloud_staleness: Counter[int] = Counter()
        self.taken = self.leaf_versions = 0
        self._watts = None if fleet is None else watts_of(fleet)
        self._joules = 0.0
        self.moved = dict.fromkeys(_BYTES, 0)
        self.between = np.zeros((servers, 2), np.int64)
        self.losses: dict[int, float] = {}
        self.failures: dict[int, Failure] = {}

    def end_of(self, job: Job, outcome: str) -> None:
        """Note how a job ended: "updates", or the reason of the loss."""
        counts, device = self.counts, job.device
        counts["jobs"][device] += 1
        counts[outcome][device] += 1
        counts["busy_us"][device] += job.busy_us
        counts["uploads"][device] += job.trained_us <= job.end_us
        if outcome == "updates":
            self.taken += 1
            counts["partial"][device] += job.share < 1
        else:
            counts["wasted_us"][device] += job.busy_us
        if self._watts is not None:
            train, radio = self._watts
            energy = train[device] * job.train_us + radio[device] * (job.busy_us - job.train_us)
            self._joules += float(energy) / SECOND_US

    def between_servers(self, node: int, up: int = 0, down: int = 0) -> None:
        """Count bytes between a server, by its number, and the one above."""
        self.moved["cloud_up"] += up
        self.moved["cloud_down"] += down
        self.between[node] += (up, down)

    def total(self, name: str) -> int:
        """A number over all devices."""
        return int(self.counts[name].sum())

    @property
    def joules(self) -> float | None:
        """Energy of all jobs ended; None where the devices' power is not known."""
        return None if self._watts is None else self._joules

    @property
    def mean_staleness(self) -> float | None:
        """Mean τ over all arrivals; None before the first."""
        return _mean(self.staleness)

    @property
    def mean_cloud_staleness(self) -> float | None:
        """The same over leaves' models at the cloud."""
        return _mean(self.cloud_staleness)

    def devices(
        self, now_us: int, leaf_of: Mapping[int, int], windows: Mapping[int, int]
    ) -> list[DeviceTotals]:
        """The rows of devices.csv, for the devices of `windows`, in order.

        Args:
            now_us: end of the run, in virtual time.
            leaf_of: device → number of its leaf.
            windows: device → training windows.
        """
        updates = max(1, self.total("updates"))
        rows = []
        for device in sorted(windows):
            of = {n: int(values[device]) for n, values in self.counts.items() if n != "uploads"}
            busy_us, wasted_us = of.pop("busy_us"), of.pop("wasted_us")
            rows.append(
                DeviceTotals(
                    device, leaf_of[device], windows[device], **of,
                    busy_s=busy_us / SECOND_US, wasted_s=wasted_us / SECOND_US,
                    idle_s=max(0, now_us - busy_us) / SECOND_US, contribution=of["updates"] / updates,
                )
            )  # fmt: skip
        return rows

    def begin_period(self) -> None:
        """Clear losses and failures of the ended evaluation period."""
        self.losses, self.failures = {}, {}

    def facts(self) -> dict[str, Any]:
        """The books as JSON, but for the counts, which are arrays."""
        return {
            "staleness": sorted(self.staleness.items()),
            "cloud_staleness": sorted(self.cloud_staleness.items()),
            "leaf_versions": self.leaf_versions,
            "joules": self._joules,
            "moved": self.moved,
            "between": self.between.tolist(),
            "losses": list(self.losses.items()),
            "failures": [[device, each.kind, each.detail] for device, each in self.failures.items()],
        }

    def restore(self, facts: Mapping[str, Any], counts: Mapping[str, np.ndarray]) -> None:
        """Restore the result of `facts` and `counts`, (N,) int64 each."""
        self.counts = {
            name: form(np.array(counts[name]), f"{name} of devices", np.int64, own.shape, 0)
            for name, own in self.counts.items()
        }
        self.staleness = Counter({int(tau): int(n) for tau, n in facts["staleness"]})
        self.cloud_staleness = Counter({int(tau): int(n) for tau, n in facts["cloud_staleness"]})
        self.taken, self.leaf_versions = self.total("updates"), int(facts["leaf_versions"])
        self._joules = float(facts["joules"])
        self.moved = {name: int(facts["moved"][name]) for name in _BYTES}
        self.between = np.array(facts["between"], np.int64).reshape(-1, 2)
        self.losses = {int(device): float(loss) for device, loss in facts["losses"]}
        self.failures = {int(device): Failure(kind, detail) for device, kind, detail in facts["failures"]}


def _mean(staleness: Counter[int]) -> float | None:
    """Mean of τ → how often; None of none."""
    count = sum(staleness.values())
    return sum(tau * n for tau, n in staleness.items()) / count if count else None
