"""How soon a run is good enough: rounds, megabytes and seconds until a mean test score is reached.

Of runs on the virtual clock (docs/devices.md) virtual seconds, too.
"""

from collections.abc import Callable, Sequence

import polars as pl

from fedge.records.reader import RunData
from fedge.report.comparison.groups import Group
from fedge.report.html.tables import last

SHARE = 0.95  # of the reference's final score: the target where none is given
VIRTUAL = "virtual seconds"  # prefix of that metric's names
BYTES = ("uplink_bytes", "downlink_bytes", "cloud_uplink_bytes", "cloud_downlink_bytes")

_COSTS: dict[str, Callable[[pl.DataFrame], float]] = {
    "rounds": lambda rounds: float(rounds["global_round"][-1]),
    "megabytes, both tiers,": lambda rounds: megabytes(rounds, BYTES),
    "seconds": lambda rounds: float(rounds["seconds"].sum()),
}


def default_target(reference: Group, column: str) -> float | None:
    """95 % of the final score of a group, averaged over its seeds; None where it has none.

    Where less is better, or scores are below zero: what is worse by 5 %.

    Args:
        reference: the group.
        column: of global_rounds.csv, a mean of the task's first score.
    """
    values = [last(run.rounds, column) for run in reference.finished.values()]
    known = [value for value in values if value is not None]
    if not known:
        return None
    mean = sum(known) / len(known)
    worse_by = (1 - SHARE) * abs(mean)
    return mean - worse_by if reference.score.higher_is_better else mean + worse_by


def costs_to(column: str, target: float) -> dict[str, Callable[[RunData], float | None]]:
    """Reader of the costs of the rounds up to the first in which `column` is `target`, or better.

    None for a run that never gets there: its group's n is smaller.
    """

    def cost(of: Callable[[pl.DataFrame], float]) -> Callable[[RunData], float | None]:
        def read(run: RunData) -> float | None:
            scores = enumerate(run.rounds[column], start=1) if column in run.rounds.columns else ()
            first = next((n for n, score in scores if _is_reached(run, score, target)), None)
            return None if first is None else of(run.rounds.head(first))

        return read

    return {f"{name} to {target:.3f}": cost(of) for name, of in _COSTS.items()}


def virtual_seconds_to(column: str, target: float) -> dict[str, Callable[[RunData], float | None]]:
    """Reader of the virtual seconds after which `column` is first `target`, or better.

    None for a run that never gets there, or is not on the virtual clock.
    """

    def read(run: RunData) -> float | None:
        if column not in run.rounds.columns or run.virtual_s is None:
            return None
        for score, seconds in zip(run.rounds[column], run.virtual_s, strict=True):
            if _is_reached(run, score, target):
                return float(seconds)
        return None

    return {f"{VIRTUAL} to {target:.3f}": read}


def _is_reached(run: RunData, score: float | None, target: float) -> bool:
    """Whether a score of a run is as good as a target."""
    return score is not None and run.score.merit(score) >= run.score.merit(target)


def megabytes(rounds: pl.DataFrame, columns: Sequence[str]) -> float:
    """The sum of byte columns in 10^6 bytes."""
    return float(sum(rounds[column].sum() or 0 for column in columns)) / 1e6
