"""Results of a sweep: the comparison as a page, as CSV and as lines.

``sweep.csv`` has the final numbers over seeds, one row per metric, group and combination; ``runs.csv`` has
the final numbers of every run. Both begin with a column per axis. Loads Matplotlib and Polars.
"""

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from fedge.process.durable import output_file
from fedge.process.escape import escape_cells
from fedge.records.manifest import RunFolderError
from fedge.records.reading.reader import RunData, load_run
from fedge.report.comparison.finals import CSV_COLUMNS, choice, csv_cells, final_lines, finals
from fedge.report.comparison.groups import Group, reached_end, seed_of_run, settings_of
from fedge.report.comparison.metrics import Metric, comparison_metrics, validation_metric
from fedge.report.comparison.sweep_page import Comparison, sweep_page
from fedge.report.damaged_tables import intact_tables
from fedge.report.html.page import write_page
from fedge.report.html.svg import figure_style
from fedge.sweep.study import StudyPlan
from hhar.quantity import quantity

PAGE, TABLE, RUNS = "sweep.html", "sweep.csv", "runs.csv"
_ON_TERMINAL = 2  # metrics printed in the terminal


def write_summary(study: StudyPlan) -> list[str]:
    """Write page and tables into a sweep's folder; returns the lines for the terminal.

    Raises:
        OSError: a file cannot be written.
        RunFolderError: tables of a run are damaged.
    """
    runs, missing = load_study(study)
    with intact_tables(list(runs.values())):
        results = comparisons(study, runs)
        _write_runs(study, runs)
        if not results:
            return ["no run of the sweep has a finished round: nothing to compare"]
        write_finals(study, results, study.folder / TABLE)
        write_study_page(study, missing, results, study.folder / PAGE)
        return list(_summary_lines(results))


def write_study_page(
    study: StudyPlan,
    missing: Sequence[str],
    results: Sequence[Comparison],
    path: Path,
    command: str = "fedge sweep",
) -> None:
    """Write the page of a sweep, which names the `command` that made it.

    Raises:
        OSError: the file cannot be written.
    """
    with figure_style():
        write_page(sweep_page(study.name, _lead(study), missing, results, command), path)


def load_study(study: StudyPlan) -> tuple[dict[str, RunData], list[str]]:
    """Results of the runs with a round, by name, and reasons for omitting the others."""
    runs, missing = {}, []
    for planned in study.runs:
        try:
            run = load_run(planned.folder)
        except RunFolderError:
            missing.append(f"{planned.name} did not start")
            continue
        if run.rounds.is_empty():
            missing.append(f"{planned.name} ({run.status}) has no finished round")
        else:
            runs[planned.name] = run
    return runs, missing


def comparisons(
    study: StudyPlan, runs: Mapping[str, RunData], target: float | None = None
) -> list[Comparison]:
    """Groups of the first axis for every combination of the other axes with any runs.

    Groups are formed by names, not by settings: the file defines which runs belong together.

    Args:
        study: the study's plan.
        runs: run name → its data.
        target: target score for costs, as in `fedge.report.comparison.finals.finals`.
    """
    first, other_axes = list(study.axes)[:1], list(study.axes)[1:]
    members: dict[tuple[str, ...], dict[str, list[RunData]]] = {}
    num_planned: Counter[tuple[tuple[str, ...], str]] = Counter()
    for planned in study.runs:  # in the order of the file
        place = tuple(planned.point[axis] for axis in other_axes)
        label = planned.point[first[0]] if first else study.name
        num_planned[place, label] += 1
        group = members.setdefault(place, {}).setdefault(label, [])  # in its order without any run, too
        if planned.name in runs:
            group.append(runs[planned.name])
    return [
        _comparison(
            dict(zip(other_axes, place, strict=True)),
            {label: found for label, found in groups.items() if found},
            {label: num_planned[place, label] for label in groups},
            target,
        )
        for place, groups in members.items()
        if any(groups.values())
    ]


def _comparison(
    point: Mapping[str, str],
    members: Mapping[str, Sequence[RunData]],
    planned: Mapping[str, int],
    target: float | None,
) -> Comparison:
    """Comparison of groups, given as label → runs, and label → number of planned runs."""
    groups = [
        Group(label, sorted(runs, key=seed_of_run), settings_of(runs[0]), planned[label] - len(runs))
        for label, runs in members.items()
    ]
    return Comparison(", ".join(point.values()), point, groups, finals(groups, target))


def _lead(study: StudyPlan) -> list[str]:
    """Lead of the comparison: number and source of the runs."""
    parts = [f"{len(entries)} {axis}" for axis, entries in study.axes.items()]
    parts.append(f"{quantity(len(study.seeds), 'seed')} ({', '.join(map(str, study.seeds))})")
    return [f"{quantity(len(study.runs), 'run')} from {study.source}: {' × '.join(parts)}."]


def _summary_lines(results: Sequence[Comparison]) -> Iterator[str]:
    """The first metrics of every combination as aligned text."""
    for comparison in results:
        if comparison.title:
            yield f"{comparison.title}:"
        metrics = list(dict.fromkeys(row.metric for row in comparison.rows))
        yield from final_lines(comparison.rows, metrics[:_ON_TERMINAL])
        if (line := choice(comparison.rows, comparison.groups[0].score)) is not None:
            yield f"  {line}"


def write_finals(study: StudyPlan, results: Sequence[Comparison], path: Path) -> None:
    """Write the final numbers over seeds as CSV, with a column for every axis but the first.

    Raises:
        OSError: the file cannot be written.
    """
    other_axes = list(study.axes)[1:]
    rows = [[*c.point.values(), *csv_cells(row)] for c in results for row in c.rows]
    _write_csv(path, [*other_axes, *CSV_COLUMNS], rows)


def _write_runs(study: StudyPlan, runs: Mapping[str, RunData]) -> None:
    """Write `RUNS`; a run short of its last round has no numbers."""
    rows = []
    metrics = {name: read for run in runs.values() for name, read in _common_metrics(run).items()}
    for planned in study.runs:
        run = runs.get(planned.name)
        numbers = (
            [read(run) for read in metrics.values()] if run and reached_end(run) else [None] * len(metrics)
        )
        status = run.status if run else "missing"
        rows.append([planned.name, *planned.point.values(), planned.seed, status, *numbers])
    _write_csv(study.folder / RUNS, ["run", *study.axes, "seed", "status", *metrics], rows)


def _common_metrics(run: RunData) -> dict[str, Metric]:
    """Metrics of every run of the task, and the one for model selection, by name."""
    selection_metric = validation_metric(run.score)
    return {
        name: metric
        for name, metric in comparison_metrics(run.scores).items()
        if metric.always or name == selection_metric
    }


def _write_csv(path: Path, header: Sequence[object], rows: Sequence[Sequence[object]]) -> None:
    """Write a table with all digits; unknown cells are left empty."""
    with output_file(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(escape_cells(header))
        table.writerows(map(escape_cells, rows))
