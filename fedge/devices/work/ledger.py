"""Totals of a run on the virtual clock, by device: jobs, virtual time, bytes, staleness."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from fedge.devices.population.fleet import Fleet, watts_of
from fedge.devices.timeline.clock import SECOND_US
from fedge.devices.work.jobs import Job
from fedge.exchange.failure import Failure
from fedge.states.restore_checks import form

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
        train_samples: training windows.
        jobs: ended jobs, each an update, dropped, away, late, stale or failed.
        updates: jobs whose results were used.
        dropped, away, late, stale, failed: jobs lost for each reason.
        busy_s, wasted_s, idle_s: virtual seconds in jobs, the unfinished one included, in lost ones among
            them, and without a job.
        contribution: share of all updates, 0..1.
        partial: updates from only a part of the steps.
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
    """Gini coefficient of numbers (N,) of at least 0: 0 if all are equal, 1 − 1/N if one has everything.

    Σ_i (2i − N − 1) x_i / (N Σ x), with x in ascending order and i from 1; 0 if all are zero.

    >>> gini(np.array([1, 1, 1])), gini(np.array([0, 0, 0, 8]))
    (0.0, 0.75)
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    count, total = len(ordered), float(ordered.sum())
    if total == 0:
        return 0.0
    return float((2 * np.arange(1, count + 1) - count - 1) @ ordered / (count * total))


class Ledger:
    """Totals of a run on the virtual clock.

    Attributes:
        counts: name in `DeviceTotals` (times in microseconds) → (N,) int64, a number per device; "uploads"
            are jobs, lost or not, whose device had finished training and so started to send.
        staleness: τ → number of arrivals, including those too stale to use.
        cloud_staleness: the same for servers' models at their parents.
        taken: number of results taken in, over all devices.
        leaf_versions: number of versions made by leaves.
        moved: "up", "down", "cloud_up", "cloud_down" → bytes of models so far.
        between: per server below the cloud, by number, bytes of models up and down, (S, 2) int64.
        losses: device → mean loss of its latest job since the last evaluation.
        failures: device → its first failure since then.
    """

    def __init__(self, devices: int, fleet: Fleet | None = None, servers: int = 0) -> None:
        """Start at zero, for `devices` and `servers` below the cloud; the fleet gives the power, if known."""
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
        """Record the outcome of a job: "updates", or the reason for its loss."""
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
        """Count bytes between a server, by number, and its parent."""
        self.moved["cloud_up"] += up
        self.moved["cloud_down"] += down
        self.between[node] += (up, down)

    def total(self, name: str) -> int:
        """Sum of a count over all devices."""
        return int(self.counts[name].sum())

    @property
    def joules(self) -> float | None:
        """Energy of all ended jobs; None if the devices' power is unknown."""
        return None if self._watts is None else self._joules

    @property
    def mean_staleness(self) -> float | None:
        """Mean τ over all arrivals; None before the first."""
        return _mean(self.staleness)

    @property
    def mean_cloud_staleness(self) -> float | None:
        """Mean τ over servers' models at their parents; None before the first."""
        return _mean(self.cloud_staleness)

    def devices(
        self,
        now_us: int,
        leaf_of: Mapping[int, int],
        windows: Mapping[int, int],
        unrecorded_us: Mapping[int, int] = MappingProxyType({}),
    ) -> list[DeviceTotals]:
        """The rows of devices.csv, for the devices of `windows`, in order.

        Args:
            now_us: virtual time of the end of the run.
            leaf_of: device → number of its leaf.
            windows: device → training windows.
            unrecorded_us: device → virtual microseconds in jobs not recorded yet.
        """
        updates = max(1, self.total("updates"))
        rows = []
        for device in sorted(windows):
            totals = {n: int(values[device]) for n, values in self.counts.items() if n != "uploads"}
            busy_us = totals.pop("busy_us") + unrecorded_us.get(device, 0)
            wasted_us = totals.pop("wasted_us")
            rows.append(
                DeviceTotals(
                    device, leaf_of[device], windows[device], **totals,
                    busy_s=busy_us / SECOND_US, wasted_s=wasted_us / SECOND_US,
                    idle_s=max(0, now_us - busy_us) / SECOND_US, contribution=totals["updates"] / updates,
                )
            )  # fmt: skip
        return rows

    def begin_period(self) -> None:
        """Clear losses and failures for a new evaluation period."""
        self.losses, self.failures = {}, {}

    def facts(self) -> dict[str, Any]:
        """All totals as JSON, except the counts, which are arrays."""
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
            name: form(np.array(counts[name]), f"{name} of devices", np.int64, current.shape, 0)
            for name, current in self.counts.items()
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
    """Mean of τ, weighted by number; None if empty."""
    count = sum(staleness.values())
    return sum(tau * n for tau, n in staleness.items()) / count if count else None
