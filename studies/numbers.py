"""Accuracies of all methods of sweeps as CSV, beside the page discussing them."""

import csv
import io
from collections.abc import Iterator, Sequence

from fedge.report.comparison.groups import Group
from fedge.report.comparison.statistics import Estimate
from studies import measures
from studies.measures import Read, Study, difference, over_seeds
from studies.result_tables import clusters, name_of

COLUMNS = (
    "sweep", "scenario", "method", "seen", "seen_minus", "seen_low", "seen_high", "tuned", "unseen",
    "unseen_minus", "unseen_low", "unseen_high", "reference", "clusters",
)  # fmt: skip


def numbers(studies: Sequence[Study]) -> str:
    """A row per sweep, scenario and method: percent, means over seeds, intervals of paired differences."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for study in studies:
        writer.writerows(_rows(study))
    return text.getvalue()


def _rows(study: Study) -> Iterator[list[str]]:
    for comparison in study.comparisons:
        reference = comparison.groups[0]
        for group in comparison.groups:
            yield [
                study.sweep.name, comparison.title, _method_name(group),
                *_versus_reference(group, reference, measures.seen),
                _percent(over_seeds(group, measures.tuned)),
                *_versus_reference(group, reference, measures.unseen),
                _method_name(reference), clusters(group),
            ]  # fmt: skip


def _versus_reference(group: Group, reference: Group, read: Read) -> list[str]:
    """Accuracy, its difference to the reference and the ends of the difference's interval."""
    differences = None if group is reference else difference(group, reference, read)
    ends = (
        (None, None, None) if differences is None else (differences.mean, differences.low, differences.high)
    )
    return [_percent(over_seeds(group, read)), *map(_points, ends)]


def _percent(value: Estimate | None) -> str:
    return _points(None if value is None else value.mean)


def _points(share: float | None) -> str:
    """A share as percent with one digit after the point; nothing where there is none."""
    text = "" if share is None else f"{100 * share:.1f}"
    return "0.0" if text == "-0.0" else text


def _method_name(group: Group) -> str:
    return name_of(group).strip("*")
