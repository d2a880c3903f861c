"""The final numbers of groups of runs: mean ± std over seeds, and paired differences to the first group."""

import csv
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedge.process.escape import harmless
from fedge.records.reader import RunData
from fedge.report.comparison.groups import Group
from fedge.report.comparison.statistics import Estimate, estimate, paired
from fedge.report.comparison.targets import BYTES, costs_to, default_target, megabytes
from fedge.report.comparison.yardsticks import Yardsticks
from fedge.report.html.tables import NOTHING, last, text_of, total
from fedge.report.listing import aligned
from fedge.report.sections.spread import leaf_spread

Read = Callable[[RunData], float | None]


def _last(column: str) -> Read:
    """Return what reads a column of the last round."""
    return lambda run: last(run.rounds, column)


def _over_leaves(column: str) -> Read:
    """Return what gives the mean over leaves of a column of leaf_rounds.csv in the last round."""

    def read(run: RunData) -> float | None:
        found = leaf_spread(run, column)
        return found.mean if found else None

    return read


METRICS: dict[str, Read] = {
    "mean test accuracy": _last("test_accuracy_mean"),
    "worst client's test accuracy": _last("test_accuracy_worst"),
    "10th percentile of test accuracy": _last("test_accuracy_p10"),
    "std of test accuracy over clients": _last("test_accuracy_std"),
    "Jain index of test accuracy": _last("test_accuracy_jain"),
    "mean test accuracy over leaves": _over_leaves("test_accuracy"),
    "mean macro-F1": _last("macro_f1_mean"),
    "mean test loss": _last("test_loss_mean"),
    "seconds of all rounds": lambda run: total(run.rounds, "seconds"),
    "megabytes up and down": lambda run: total(run.rounds, "uplink_bytes", "downlink_bytes") / 1e6,
    "megabytes of leaves and cloud": lambda run: megabytes(run.rounds, BYTES[2:]),
}
# left out where no run has them
OPTIONAL: dict[str, Read] = {
    "seen users: mean accuracy before fine-tuning": _last("shared_accuracy_mean"),
    "seen users: mean accuracy after fine-tuning": _last("tuned_accuracy_mean"),
    "unseen users: mean accuracy": _last("unseen_accuracy_mean"),
    "unseen users: worst accuracy": _last("unseen_accuracy_worst"),
    "unseen users: 10th percentile": _last("unseen_accuracy_p10"),
    "unseen users: std over unseen clients": _last("unseen_accuracy_std"),
    "unseen users: Jain index": _last("unseen_accuracy_jain"),
    "unseen users: mean over leaves": _over_leaves("unseen_accuracy"),
    "unseen users: mean macro-F1": _last("unseen_macro_f1_mean"),
    "adjusted Rand index": _last("ari"),
    "mean churn": lambda run: run.rounds["churn"].mean(),  # type: ignore[return-value,dict-item]
}
_SEEN, _UNSEEN = "test_accuracy_mean", "unseen_accuracy_mean"
_SHARED = "shared_accuracy_mean"  # of seen users, where leaves fine-tune what they serve
CSV_COLUMNS = (
    "metric", "group", "seeds", "n", "mean", "std", "low", "high", "reference", "n_pairs", "difference",
    "difference_low", "difference_high",
)  # fmt: skip


@dataclass(frozen=True)
class Final:
    """One metric of one group.

    Attributes:
        over_seeds: None when no run of the group reached its last round.
        difference: to the reference group, over common seeds; None for the reference itself.
    """

    metric: str
    group: str
    seeds: Sequence[int]
    over_seeds: Estimate | None
    reference: str
    difference: Estimate | None


def finals(groups: Sequence[Group], target: float | None = None) -> list[Final]:
    """Return every metric of every group; the first group is the reference.

    Args:
        groups: to compare.
        target: accuracy (0..1) to which rounds, bytes and seconds are counted; by default 95 % of the
            reference's final one, of seen and of unseen users.
    """
    found = []
    for metric, read in {**METRICS, **OPTIONAL, **_to_target(groups, target), **_relative(groups)}.items():
        per_group = [_values(group, read) for group in groups]
        if metric not in METRICS and not any(per_group):
            continue
        for group, values in zip(groups, per_group, strict=True):
            found.append(
                Final(
                    metric,
                    group.label,
                    sorted(values),
                    estimate([values[seed] for seed in sorted(values)]) if values else None,
                    groups[0].label,
                    None if group is groups[0] else paired(values, per_group[0]),
                )
            )
    return found


def _to_target(groups: Sequence[Group], target: float | None) -> dict[str, Read]:
    """Return the costs until the target is reached, on seen and on unseen users."""
    metrics: dict[str, Read] = {}
    for users, column in (("seen users", _SEEN), ("unseen users", _UNSEEN)):
        goal = default_target(groups[0], column) if target is None else target
        if goal is not None:
            metrics |= {f"{name}, {users}": read for name, read in costs_to(column, goal).items()}
    return metrics


def _relative(groups: Sequence[Group]) -> dict[str, Read]:
    """Return what measures runs by others that are among those compared."""
    by = Yardsticks(groups)
    metrics: dict[str, Read] = {}
    for who, unseen_clients in (("clients", False), ("unseen clients", True)):
        metrics[f"share of {who} worse off than local only"] = by.worse_off("local only", unseen_clients)
        metrics[f"share of {who} worse off than global"] = by.worse_off("global", unseen_clients)
    metrics["recovered share of the gap to the oracle, seen users"] = by.recovered(_SHARED, _SEEN)
    metrics["recovered share of the gap to the oracle, unseen users"] = by.recovered(_UNSEEN)
    return metrics


def _values(group: Group, read: Callable[[RunData], float | None]) -> dict[int, float]:
    """Return seed → number of a group's finished runs."""
    values = {seed: read(run) for seed, run in group.finished.items()}
    return {seed: value for seed, value in values.items() if value is not None}


def estimate_text(found: Estimate | None) -> str:
    """Return "0.9123 ± 0.0045"."""
    if found is None:
        return NOTHING
    return text_of(found.mean) + (f" ± {text_of(found.std)}" if found.std is not None else "")


def interval_text(found: Estimate | None) -> str:
    """Return "0.9011 to 0.9235"."""
    return NOTHING if found is None or found.low is None else f"{text_of(found.low)} to {text_of(found.high)}"


def write_csv(path: Path, rows: Sequence[Final]) -> None:
    """Write the final numbers with all their digits; what cannot be known is left empty."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(CSV_COLUMNS)
        table.writerows(map(harmless, map(csv_cells, rows)))


def csv_cells(row: Final) -> list[object]:
    """Return the cells of `CSV_COLUMNS`."""
    return [*_estimate_cells(row), *_difference_cells(row)]


def final_lines(rows: Sequence[Final], metrics: Collection[str] = tuple(METRICS)) -> Iterator[str]:
    """Yield the final numbers of some metrics as aligned text, with a header."""
    header = ("metric", "group", "n", "mean ± std", f"minus {rows[0].reference}", "95 % interval")
    body = [
        (r.metric, r.group, str(len(r.seeds)), estimate_text(r.over_seeds), estimate_text(r.difference),
         interval_text(r.difference))
        for r in rows if r.metric in metrics
    ]  # fmt: skip
    yield from aligned([header, *body])


def _estimate_cells(row: Final) -> list[object]:
    """Return the cells of the mean."""
    e = row.over_seeds
    numbers: list[object] = [0, *[None] * 4] if e is None else [e.n, e.mean, e.std, e.low, e.high]
    return [row.metric, row.group, " ".join(map(str, row.seeds)), *numbers]


def _difference_cells(row: Final) -> list[object]:
    """Return the cells of the difference."""
    d = row.difference
    return [None] * 5 if d is None else [row.reference, d.n, d.mean, d.low, d.high]
