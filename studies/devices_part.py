"""Writes the results of `make results-devices` into docs/results.md: gains by asynchrony on a virtual clock.

    python -m studies.devices_part [--studies studies/devices] [--pages docs/results.md …]

A table per sweep and scenario, against the first entry of the sweep's first axis; all columns go into a CSV
file. Sweeps with missing runs are named and left out.
"""

import argparse
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from fedge.records.reading.reader import RunData
from fedge.report.comparison.groups import Group
from fedge.report.comparison.statistics import Estimate, estimate, paired_difference
from fedge.report.comparison.sweep_page import Comparison
from fedge.report.comparison.targets import SHARE
from studies.draws_part import complete, put_between
from studies.measures import Read, Study, over_seeds, values
from studies.page import NUMBERS
from studies.result_tables import as_csv, markdown

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
PAGES = (DOCS / "results.md", HERE / "discussion.md")
MARKS = "<!-- printed by `make results-devices` -->", "<!-- end of the part on devices -->"
LAST = 10  # evaluations, whose mean is an accuracy
FEW = 5  # evaluations whose mean is a steadier target than one: a jumping curve soon reaches any value once
HEADERS = (
    "", "virtual s to the target", "× as soon", "of five", "all evaluations, %", "last 10: seen, %",
    "difference", "unseen, %", "at work, of it lost, %", "mean staleness", "MB: all, to the target",
)  # fmt: skip
SHOWN = [n for n in range(len(HEADERS)) if n not in (3, 4, 8, 9)]  # on the page
_NOTHING = "–"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the part; 2 with one line on stderr per sweep when none is complete."""
    parser = argparse.ArgumentParser(
        description="Write what make results-devices has found into docs/results.md."
    )
    parser.add_argument("--studies", type=Path, default=HERE / "devices", help="folder of the sweep files")
    parser.add_argument("--pages", type=Path, nargs="+", default=PAGES, help="pages with the two marks")
    parser.add_argument("--full", type=Path, help="file of all columns (docs/results/FOLDER.csv)")
    options = parser.parse_args(arguments)
    by_path = {path: complete(path) for path in sorted(options.studies.glob("*.toml"))}
    shown = {
        path: study for path, study in by_path.items() if study is not None and _has_several_seeds(study)
    }
    parts = [section(study, path) for path, study in shown.items()]
    missing = [path.stem for path, study in by_path.items() if study is None]
    if not parts:
        return 2
    columns_path = options.full or DOCS / NUMBERS.format(options.studies.name)
    columns_path.write_text(all_columns(list(shown.values())), encoding="utf-8")
    left_out = [f"Not run here: {', '.join(missing)}.\n"] if missing else []
    for page in options.pages:
        put_between("\n".join([*left_out, *parts]), page, *MARKS)
    return 0


def _has_several_seeds(study: Study) -> bool:
    """True for a sweep of several seeds; those of one choose step sizes, and are not shown."""
    return any(len(group.runs) > 1 for comparison in study.comparisons for group in comparison.groups)


def section(study: Study, path: Path) -> str:
    """A sweep's heading, the comment at the top of its file, and a table per scenario."""
    comment = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        comment.append(line.removeprefix("#").strip())
    lines = [f"### devices-{study.sweep.name}\n", " ".join(comment) + "\n"]
    for comparison in study.comparisons:
        goal = target_of(comparison)
        title = f"*{comparison.title}*, target" if comparison.title else "Target"
        lines += [f"{title} {100 * goal:.1f} %:\n", table(comparison, goal)]
    return "\n".join(lines)


def target_of(comparison: Comparison) -> float:
    """95 % of the first group's final accuracy on seen users, a share 0..1."""
    accuracy = over_seeds(comparison.groups[0], last("seen_accuracy"))
    return SHARE * accuracy.mean if accuracy else 1.0


def table(comparison: Comparison, goal: float) -> str:
    """The table of a scenario: a row per group, the first is the reference; goal is a share 0..1."""
    reference = comparison.groups[0]
    rows = (row(group, reference, goal) for group in comparison.groups)
    return markdown(
        [*(HEADERS[n] for n in SHOWN[:-1]), "MB to the target"], (on_page(cells) for cells in rows)
    )


def on_page(cells: Sequence[str]) -> list[str]:
    """The shown cells of a row: scores without intervals, numbers of seeds where they are not all."""
    cells_by_column = dict(enumerate(cells))
    cells_by_column[1] = re.sub(r" \((\d+) of \1\)$", "", cells_by_column[1])
    cells_by_column |= {n: cells_by_column[n].partition(" (")[0] for n in (5, 7)}
    cells_by_column[10] = cells_by_column[10].rpartition(", ")[2]
    return [cells_by_column[n] for n in SHOWN]


def all_columns(studies: Sequence[Study]) -> str:
    """Every column of every table as CSV, after sweep, scenario and target in percent."""
    rows = []
    for study in studies:
        for comparison in study.comparisons:
            goal = target_of(comparison)
            leading = [study.sweep.name, comparison.title, f"{100 * goal:.1f}"]
            rows += [[*leading, *row(group, comparison.groups[0], goal)] for group in comparison.groups]
    return as_csv(["sweep", "scenario", "target, %", "method", *HEADERS[1:]], rows)


def row(group: Group, reference: Group, goal: float) -> list[str]:
    """Results of a group against the reference; goal is a share 0..1."""
    times = values(group, seconds_to(goal))
    accuracy_difference = None
    if group is not reference:
        accuracy_difference = paired_difference(
            values(group, last("seen_accuracy")), values(reference, last("seen_accuracy"))
        )
    utilisation, wasted = (over_seeds(group, final(column)) for column in ("utilisation", "wasted"))
    total_mb, target_mb = (over_seeds(group, megabytes_to(share)) for share in (None, goal))
    speedups: list[Estimate | None] = [None, None]
    if group is not reference:
        readers = seconds_to(goal), seconds_to(goal, FEW)
        speedups = [times_as_soon(values(group, read), values(reference, read)) for read in readers]
    return [
        group.label,
        f"{_mean_text(times)} ({len(times)} of {len(group.runs)})",
        *(with_interval(speedup, 1, 2) for speedup in speedups),
        with_interval(over_seeds(group, mean_of("seen_accuracy")), 100, 1),
        with_interval(over_seeds(group, last("seen_accuracy")), 100, 1),
        with_interval(accuracy_difference, 100, 1, "+"),
        with_interval(over_seeds(group, last("unseen_accuracy")), 100, 1),
        f"{_scaled(utilisation, 100, 0)}, {_scaled(wasted, 100, 0)}",
        _scaled(over_seeds(group, final("mean_staleness")), 1, 1),
        f"{_scaled(total_mb, 1, 0)}, {_scaled(target_mb, 1, 0)}",
    ]


# --- of one run -----------------------------------------------------------------------------------


def last(column: str) -> Read:
    """Reader of the mean of a column of versions.csv over the last ten evaluations."""
    return lambda run: _mean_without_nulls(run.versions[column].tail(LAST))


def mean_of(column: str) -> Read:
    """Reader of the mean of a column of versions.csv over all evaluations."""
    return lambda run: _mean_without_nulls(run.versions[column])


def final(column: str) -> Read:
    """Reader of a column of versions.csv at the last evaluation."""
    return lambda run: run.versions[column][-1]


def seconds_to(goal: float, evaluations: int = 1) -> Read:
    """Reader of the virtual seconds until the accuracy on seen users first reaches `goal`, 0..1.

    By the mean of the last `evaluations` evaluations.
    """

    def read(run: RunData) -> float | None:
        rows = run.versions.select("virtual_s", pl.col("seen_accuracy").rolling_mean(evaluations))
        times = rows.filter(pl.col("seen_accuracy") >= goal)["virtual_s"]
        return float(times[0]) if len(times) else None

    return read


def megabytes_to(goal: float | None) -> Read:
    """Reader of all megabytes moved, or those until seen users are at a share 0..1."""

    def read(run: RunData) -> float | None:
        rows = run.versions if goal is None else run.versions.filter(pl.col("seen_accuracy") >= goal)
        columns = [column for column in rows.columns if column.endswith("link_bytes")]
        index = -1 if goal is None else 0
        return sum(rows[column][index] for column in columns) / 1e6 if len(rows) else None

    return read


def _mean_without_nulls(column: pl.Series) -> float | None:
    mean = column.drop_nulls().mean()
    return float(mean) if isinstance(mean, float) else None


# --- over seeds -----------------------------------------------------------------------------------


def times_as_soon(times: Mapping[int, float], reference: Mapping[int, float]) -> Estimate | None:
    """The geometric mean of reference ÷ own over the seeds in which both get there; seed → seconds.

    >>> round(times_as_soon({1: 10.0, 2: 20.0}, {1: 20.0, 2: 40.0, 3: 9.0}).mean, 6)
    2.0
    """
    ratios = paired_difference(
        {seed: -math.log(seconds) for seed, seconds in times.items()},
        {seed: -math.log(seconds) for seed, seconds in reference.items()},
    )
    if ratios is None:
        return None
    low, high = (None if end is None else math.exp(end) for end in (ratios.low, ratios.high))
    return Estimate(math.exp(ratios.mean), None, low, high, ratios.n)


def _mean_text(values_by_seed: Mapping[int, float]) -> str:
    return f"{estimate(list(values_by_seed.values())).mean:.1f}" if values_by_seed else _NOTHING


def _scaled(value: Estimate | None, factor: float, digits: int) -> str:
    return _NOTHING if value is None else f"{factor * value.mean:.{digits}f}"


def with_interval(value: Estimate | None, factor: float, digits: int, sign: str = "") -> str:
    """A mean with its interval, times a factor; sign "+" shows the signs of both."""
    if value is None:
        return _NOTHING
    ends = "" if value.low is None or value.high is None else " ({:{f}} to {:{f}})".format(
        factor * value.low, factor * value.high, f=f"{sign}.{digits}f"
    )  # fmt: skip
    return re.sub(r"(?<![\d.])-", "−", f"{factor * value.mean:{sign}.{digits}f}{ends}")


if __name__ == "__main__":
    sys.exit(main())
