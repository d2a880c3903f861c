"""How soon a run is good enough: rounds, megabytes and seconds until a mean test accuracy is reached.

Of runs on the virtual clock (docs/devices.md) virtual seconds, too.
"""

from collections.abc import Callable, Sequence

import polars as pl

from fedge.records.reader import RunData
from fedge.report.comparison.groups import Group

SHARE = 0.95  # of the reference's final accuracy: the target where none is given
VIRTUAL = "virtual seconds"  # prefix of that metric's names
BYTES = ("uplink_bytes", "downlink_bytes", "cloud_uplink_bytes", "cloud_downlink_bytes")

_COSTS: dict[str, Callable[[pl.DataFrame], float]] = {
    "rounds": lambda rounds: float(rounds["global_round"][-1]),
    "megabytes, both tiers,": lambda rounds: megabytes(rounds, BYTES),
    "seconds": lambda rounds: float(rounds["seconds"].sum()),
}


def default_target(reference: Group, column: str) -> float | None:
    """95 % of the final accuracy of a group, averaged over its seeds; None where it has none.

    Args:
        reference: the group.
        column: of global_rounds.csv, a mean accuracy.
    """
    values = [run.rounds[column][-1] for run in reference.finished.values()]
    known = [value for value in values if value is not None]
    return SHARE * sum(known) / len(known) if known else None


def costs_to(column: str, target: float) -> dict[str, Callable[[RunData], float | None]]:
    """Reader of the costs of the rounds up to the first in which `column` is at least `target`.

    None for a run that never gets there: its group's n is smaller.
    """

    def cost(of: Callable[[pl.DataFrame], float]) -> Callable[[RunData], float | None]:
        def read(run: RunData) -> float | None:
            scores = enumerate(run.rounds[column], start=1)
            first = next((n for n, score in scores if score is not None and score >= target), None)
            return None if first is None else of(run.rounds.head(first))

        return read

    return {f"{name} to {target:.3f}": cost(of) for name, of in _COSTS.items()}


def virtual_seconds_to(column: str, target: float) -> dict[str, Callable[[RunData], float | None]]:
    """Reader of the virtual seconds after which `column` is first at least `target`, a share 0..1.

    None for a run that never gets there, or is not on the virtual clock.
    """

    def read(run: RunData) -> float | None:
        for round_, score in run.rounds.select("global_round", column).iter_rows():
            there = run.versions.filter(pl.col("evaluation") == round_)["virtual_s"]
            if score is not None and score >= target and len(there):
                return float(there[0])
        return None

    return {f"{VIRTUAL} to {target:.3f}": read}


def megabytes(rounds: pl.DataFrame, columns: Sequence[str]) -> float:
    """The sum of byte columns in 10^6 bytes."""
    return float(sum(rounds[column].sum() or 0 for column in columns)) / 1e6
