"""Costs until a mean test score is reached: rounds, megabytes and seconds.

For runs of devices (docs/devices.md), also virtual seconds and joules.
"""

import math
from collections.abc import Callable, Sequence

import polars as pl

from fedge.records.reading.costs import BYTES, joules, virtual_seconds
from fedge.records.reading.reader import RunData
from fedge.report.comparison.groups import Group
from fedge.report.html.tables import last

SHARE = 0.95  # of the reference's final score: the default target
VIRTUAL, JOULES = "virtual seconds", "joules"  # prefixes of the metrics' names

_COSTS: dict[str, Callable[[pl.DataFrame], float]] = {
    "rounds": lambda rounds: float(rounds["global_round"][-1]),
    "megabytes, both tiers,": lambda rounds: megabytes(rounds, BYTES),
    "seconds": lambda rounds: float(rounds["seconds"].sum()),
}


def default_target(reference: Group, column: str) -> float | None:
    """95 % of the final score of a group, averaged over its seeds; None without a finite one.

    If less is better, or the score is negative, the target is worse by 5 % of its absolute value.

    Args:
        reference: the group.
        column: column of global_rounds.csv, a mean of the task's first score.
    """
    values = [last(run.rounds, column) for run in reference.finished.values()]
    available = [value for value in values if value is not None]
    if not available:
        return None
    mean = sum(available) / len(available)
    if not math.isfinite(mean):
        return None
    worse_by = (1 - SHARE) * abs(mean)
    return mean - worse_by if reference.score.higher_is_better else mean + worse_by


def costs_to(column: str, target: float) -> dict[str, Callable[[RunData], float | None]]:
    """Readers of the costs of all rounds up to the first in which `column` reaches `target`.

    None for a run never reaching it, which reduces its group's n.
    """

    def cost(measure: Callable[[pl.DataFrame], float]) -> Callable[[RunData], float | None]:
        def read(run: RunData) -> float | None:
            scores = enumerate(run.rounds[column], start=1) if column in run.rounds.columns else ()
            first = next((n for n, score in scores if _reaches_target(run, score, target)), None)
            return None if first is None else measure(run.rounds.head(first))

        return read

    return {f"{name} to {target:.3f}": cost(measure) for name, measure in _COSTS.items()}


def device_costs_to(column: str, target: float) -> dict[str, Callable[[RunData], float | None]]:
    """Readers of the virtual seconds and the joules until `column` first reaches `target`.

    None for a run never reaching it, or without devices or known power.
    """

    def so_far(read_costs: Callable[[RunData], pl.Series | None]) -> Callable[[RunData], float | None]:
        def read(run: RunData) -> float | None:
            costs = read_costs(run)
            if column not in run.rounds.columns or costs is None:
                return None
            for score, spent in zip(run.rounds[column], costs, strict=True):
                if _reaches_target(run, score, target):
                    return float(spent)
            return None

        return read

    return {
        f"{VIRTUAL} to {target:.3f}": so_far(virtual_seconds),
        f"{JOULES} to {target:.3f}": so_far(joules),
    }


def _reaches_target(run: RunData, score: float | None, target: float) -> bool:
    """Whether a run's score is at least as good as a target."""
    return score is not None and run.score.merit(score) >= run.score.merit(target)


def megabytes(rounds: pl.DataFrame, columns: Sequence[str]) -> float:
    """Sum of byte columns in 10^6 bytes."""
    return float(sum(rounds[column].sum() or 0 for column in columns)) / 1e6
