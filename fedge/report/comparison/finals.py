"""Final numbers of groups of runs: mean ± std over seeds, and paired differences from the first group."""

import csv
import io
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedge.process.durable import write_output
from fedge.process.escape import escape_cells, printable
from fedge.report.comparison.groups import Group
from fedge.report.comparison.metrics import (
    COMMON_TEST,
    OWN_MODELS,
    Metric,
    comparison_metrics,
    cost,
    own_model_metrics,
    share_metric,
    validation_metric,
)
from fedge.report.comparison.statistics import Estimate, estimate, paired_difference
from fedge.report.comparison.targets import JOULES, VIRTUAL, costs_to, default_target, device_costs_to
from fedge.report.comparison.yardsticks import Yardsticks
from fedge.report.html.tables import NOTHING, text_of
from fedge.report.listing import aligned
from fedge.tasks.task import Score
from hhar.quantity import quantity

CSV_COLUMNS = (
    "metric", "group", "seeds", "n", "mean", "std", "low", "high", "reference", "n_pairs", "difference",
    "difference_low", "difference_high",
)  # fmt: skip
_OPTIONAL_PREFIXES = (OWN_MODELS, COMMON_TEST, VIRTUAL, JOULES)  # prefixes of metrics shown if a run has them


@dataclass(frozen=True)
class Final:
    """One metric of one group.

    Attributes:
        over_seeds: None if no run of the group reached its last round.
        difference: difference from the reference group, over common seeds; None for the reference itself.
        is_best: whether no other group's mean is better; False for a single group, or equal means, or if
            a run of the group has no number, which might be the worst.
        is_always: whether every comparison has this metric.
        headline: its position in a summary, from 1; 0 if not included.
        runs: runs of the group, with or without a number.
    """

    metric: str
    group: str
    seeds: Sequence[int]
    over_seeds: Estimate | None
    reference: str
    difference: Estimate | None
    is_best: bool = False
    is_always: bool = False
    headline: int = 0
    runs: int = 0


def finals(groups: Sequence[Group], target: float | None = None) -> list[Final]:
    """Every metric of every group; the first group is the reference.

    Args:
        groups: groups to compare, by the scores of the first one's task.
        target: target score for rounds, bytes and seconds; None for 95 % of the reference's final score, on
            seen and on unseen users.
    """
    rows = []
    first = groups[0].runs[0]
    general = comparison_metrics(first.scores, first.least_loss)
    own_models = own_model_metrics(first.scores[0], [run for group in groups for run in group.runs])
    for name, metric in {
        **general,
        **own_models,
        **_target_metrics(groups, target),
        **_relative_metrics(groups),
    }.items():
        per_group = [_values(group, metric) for group in groups]
        if metric.always or any(per_group):
            rows += _metric_rows(name, metric, groups, per_group)
    return rows


def choice(rows: Sequence[Final], score: Score) -> str | None:
    """Sentence on the group with the best validation score of served models; None without a best one.

    Selection uses no test scores, so those of the selected group remain an unbiased measure.
    """
    name = validation_metric(score)
    validated = [row for row in rows if row.metric == name]
    best = [row for row in validated if row.is_best]
    if len(best) == 1:
        return printable(
            f"by {name}, on which to choose: {best[0].group} ({estimate_text(best[0].over_seeds)})"
        )
    leading = _best_mean([row.over_seeds for row in validated], 1 if score.higher_is_better else -1)
    partial = [row for row in validated if row.over_seeds and row.over_seeds.mean == leading]
    if len(partial) != 1:
        return None
    only = f"{len(partial[0].seeds)} of its {quantity(partial[0].runs, 'run')}"
    return printable(f"by {name}, no choice yet: {partial[0].group} leads, but with {only} only")


def _metric_rows(
    name: str, metric: Metric, groups: Sequence[Group], per_group: Sequence[dict[int, float]]
) -> list[Final]:
    """One metric of every group; `per_group` has seed → number."""
    estimates = [
        estimate([values[seed] for seed in sorted(values)], metric.low, metric.high) if values else None
        for values in per_group
    ]
    width = metric.high - metric.low
    best = _best_mean(estimates, metric.better)
    return [
        Final(
            name,
            group.label,
            sorted(values),
            result,
            groups[0].label,
            None if group is groups[0] else paired_difference(values, per_group[0], -width, width),
            result is not None and result.mean == best and len(values) == len(group.runs) + group.missing,
            metric.always,
            metric.headline,
            len(group.runs) + group.missing,
        )
        for group, values, result in zip(groups, per_group, estimates, strict=True)
    ]


def _best_mean(estimates: Sequence[Estimate | None], better: int) -> float | None:
    """Best mean; None if all are equal, or fewer than two."""
    means = [result.mean for result in estimates if result is not None and not math.isnan(result.mean)]
    if not better or len(means) < 2 or len(set(means)) == 1:
        return None
    return max(means, key=lambda mean: better * mean)


def _target_metrics(groups: Sequence[Group], target: float | None) -> dict[str, Metric]:
    """Costs until the target is reached, on seen and on unseen users."""
    metrics: dict[str, Metric] = {}
    name = groups[0].score.name
    for users, column in (("seen users", f"test_{name}_mean"), ("unseen users", f"unseen_{name}_mean")):
        goal = default_target(groups[0], column) if target is None else target
        if goal is not None:
            reads = {**costs_to(column, goal), **device_costs_to(column, goal)}
            metrics |= {f"{cost_name}, {users}": cost(read) for cost_name, read in reads.items()}
    return metrics


def _relative_metrics(groups: Sequence[Group]) -> dict[str, Metric]:
    """Measures of runs relative to yardsticks among the compared runs."""
    yardsticks = Yardsticks(groups)
    metrics: dict[str, Metric] = {}
    for users, unseen_clients in (("clients", False), ("unseen clients", True)):
        metrics[f"share of {users} worse off than local only"] = share_metric(
            yardsticks.worse_off("local only", unseen_clients)
        )
        metrics[f"share of {users} worse off than global"] = share_metric(
            yardsticks.worse_off("global", unseen_clients)
        )
    recovered = "recovered share of the gap to the oracle"  # may lie outside 0 to 1
    name = groups[0].score.name
    shared, seen = (
        f"shared_{name}_mean",
        f"test_{name}_mean",
    )  # on seen users; of shared models if leaves fine-tune
    metrics[f"{recovered}, seen users"] = Metric(yardsticks.recovered(shared, seen), 1)
    metrics[f"{recovered}, unseen users"] = Metric(yardsticks.recovered(f"unseen_{name}_mean"), 1)
    return metrics


def _values(group: Group, metric: Metric) -> dict[int, float]:
    """Seed → number of a group's finished runs."""
    values = {seed: metric(run) for seed, run in group.finished.items()}
    return {seed: value for seed, value in values.items() if value is not None and not math.isnan(value)}


def estimate_text(result: Estimate | None) -> str:
    """Text such as "0.9123 ± 0.0045"."""
    if result is None:
        return NOTHING
    return text_of(result.mean) + (f" ± {text_of(result.std)}" if result.std is not None else "")


def interval_text(result: Estimate | None) -> str:
    """Text such as "0.9011 to 0.9235"."""
    return (
        NOTHING
        if result is None or result.low is None
        else f"{text_of(result.low)} to {text_of(result.high)}"
    )


def write_csv(path: Path, rows: Sequence[Final]) -> None:
    """Write the final numbers with all digits, atomically; unknown ones are left empty."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(CSV_COLUMNS)
    table.writerows(map(escape_cells, map(csv_cells, rows)))
    write_output(path, text.getvalue().encode())


def csv_cells(row: Final) -> list[object]:
    """Cells in the order of `CSV_COLUMNS`."""
    return [*_estimate_cells(row), *_difference_cells(row)]


def is_shown(row: Final, metrics: Collection[str] | None = None) -> bool:
    """Whether a metric is shown in overviews and terminals.

    Args:
        row: its final number.
        metrics: names of the chosen metrics; None for those of every comparison. Own models, the common test
            set and costs of devices are shown as well, if known.
    """
    is_chosen = row.is_always if metrics is None else row.metric in metrics
    return is_chosen or row.metric.startswith(_OPTIONAL_PREFIXES)


def final_lines(rows: Sequence[Final], metrics: Collection[str] | None = None) -> Iterator[str]:
    """Final numbers as aligned text with a header.

    Args:
        rows: final numbers of all metrics.
        metrics: names of the chosen metrics, as in `is_shown`.
    """
    header = ("metric", "group", "n", "mean ± std", f"minus {rows[0].reference}", "95 % interval")
    body = [
        (r.metric, r.group, str(len(r.seeds)), estimate_text(r.over_seeds), estimate_text(r.difference),
         interval_text(r.difference))
        for r in rows
        if is_shown(r, metrics)
    ]  # fmt: skip
    yield from aligned([header, *body])


def _estimate_cells(row: Final) -> list[object]:
    """Cells of the mean."""
    e = row.over_seeds
    numbers: list[object] = [0, *[None] * 4] if e is None else [e.n, e.mean, e.std, e.low, e.high]
    return [row.metric, row.group, " ".join(map(str, row.seeds)), *numbers]


def _difference_cells(row: Final) -> list[object]:
    """Cells of the difference."""
    d = row.difference
    return [None] * 5 if d is None else [row.reference, d.n, d.mean, d.low, d.high]
