"""Comparison of runs from Python: `fedge.compare`, equivalent to the command `fedge compare`."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import polars as pl

from fedge.config.registers.option import shown
from fedge.process.escape import printable
from fedge.records.folder import short
from fedge.records.reading.reader import RunData, load_run
from fedge.records.reading.shown import html_table
from fedge.report.comparison.finals import CSV_COLUMNS, csv_cells, finals
from fedge.report.comparison.groups import group_runs
from fedge.report.comparison.page import group_differences, problems_of, write_comparison
from fedge.report.damaged_tables import intact_tables

_TEXTS = ("metric", "group", "seeds", "reference")
_COUNTS = ("n", "n_pairs")


class FinalNumbers(pl.DataFrame):
    """Final numbers returned by `compare`: a Polars frame, shown by Jupyter as a table by metric."""

    def _repr_html_(self, *, _from_series: bool = False) -> str:
        """HTML table, a row per metric and a column per group: mean ± std; difference and its interval."""
        rows: dict[str, dict[str, str]] = {}
        for row in self.iter_rows(named=True):
            if row["mean"] is not None:
                rows.setdefault(row["metric"], {})[f"{row['group']} (n = {row['n']})"] = _format_estimate(row)
        columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
        lines = [
            {"metric": metric} | {column: cells.get(column, "") for column in columns}
            for metric, cells in rows.items()
        ]
        return html_table(lines) if lines else "<p>no run has reached its last round</p>"


def _format_estimate(row: Mapping[str, Any]) -> str:
    """A number with its spread over seeds and, if known, its difference from the reference."""
    text = f"{row['mean']:.4g}" + ("" if row["std"] is None else f" ± {row['std']:.2g}")
    if row["difference"] is None:
        return text
    text += f"; {row['difference']:+.3g}"
    if row["difference_low"] is None:
        return text
    return f"{text} ({row['difference_low']:.3g} to {row['difference_high']:.3g})"


def compare(runs: Sequence[RunData | str | Path], page: str | Path | None = None) -> FinalNumbers:
    """Final numbers of several runs; runs differing only in seed form a group.

    Args:
        runs: results of `load_run` or `simulate`, or folders; the first one's group is the reference.
        page: where to write the page of ``fedge compare`` as well; None for nowhere.

    Returns:
        A row per metric and group, as a Polars frame: mean, std and 95 % t-interval (low, high) over the n
        seeds, and the paired difference to the reference with its interval; null if unknown.

    Raises:
        RunFolderError: a folder is not a run folder, or its tables are too damaged for any number to be
            known.
        ConfigError: the runs' tasks have different scores.
        ValueError: there is no run.
        OSError: the page cannot be written.

    Warns:
        UserWarning: a table has been changed since the run, or some of its lines are left out; or a run is
            left out because it repeats another; or the runs differ in their data or their number of rounds.

    >>> import fedge, io, tempfile
    >>> with tempfile.TemporaryDirectory() as runs:
    ...     config = {"num-server-rounds": 1, "train.local-epochs": 1, "report": False, "runs-dir": runs}
    ...     given = {"model": "linear", "data": "digits", "clients": 6, "terminal": io.StringIO()}
    ...     steps = [fedge.simulate(config | {"train.lr": lr}, **given) for lr in (0.001, 0.1)]
    >>> found = compare(steps).filter(metric="mean test accuracy")
    >>> found["group"].to_list(), found["difference"].is_null().to_list()  # groups A and B
    (['A', 'B'], [True, False])
    """
    if isinstance(runs, (str, bytes, PurePath, RunData)) or not isinstance(runs, Iterable):
        raise ValueError(f"runs must be a list of runs, but is {shown(runs)}; give for example [run, other]")
    if not (page is None or isinstance(page, (str, PurePath))) or page == "":
        raise ValueError(f"page must be the path of a file, but is {shown(page)}; leave it out for none")
    loaded = [run if isinstance(run, RunData) else load_run(run) for run in runs]
    if not loaded:
        raise ValueError("runs must name at least one run; give some of runs/")
    for run in loaded:  # the folder of a run given as data may be gone
        for problem in problems_of(run) if run.folder.is_dir() else run.problems:
            warnings.warn(printable(f"{short(run.folder)}: {problem}"), stacklevel=2)
    if page is None:
        with intact_tables(loaded):
            rows = finals(group_runs(loaded)[0])
    else:
        rows = write_comparison(loaded, Path(page))
    groups, left_out = group_runs(loaded)
    for line in (*(f"left out: {text}" for text in left_out), *group_differences(groups)):
        warnings.warn(printable(line), stacklevel=2)
    types = {
        column: pl.String if column in _TEXTS else pl.Int64 if column in _COUNTS else pl.Float64
        for column in CSV_COLUMNS
    }
    return FinalNumbers([csv_cells(row) for row in rows], schema=types, orient="row")
