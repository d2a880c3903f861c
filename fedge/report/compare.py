"""Runs compared from Python: `fedge.compare`. The command `fedge compare` does the same."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from fedge.records.reader import RunData, load_run
from fedge.report.comparison.finals import CSV_COLUMNS, csv_cells, finals
from fedge.report.comparison.groups import group_runs
from fedge.report.comparison.page import write_comparison

_TEXTS = ("metric", "group", "seeds", "reference")
_COUNTS = ("n", "n_pairs")


def compare(runs: Sequence[RunData | str | Path], page: str | Path | None = None) -> pl.DataFrame:
    """Return the final numbers of several runs; runs that differ only in seed are one group.

    Args:
        runs: as `load_run` or `simulate` returned them, or their folders; the first one's group is the
            reference.
        page: where to write the page of ``fedge compare`` as well; None for nowhere.

    Returns:
        A row per metric and group: mean, std and 95 % t-interval (low, high) over the n seeds, and the paired
        difference to the reference with its interval; null where it cannot be known.

    Raises:
        RunFolderError: a folder is not that of a run.
        ValueError: there is no run.
        OSError: the page cannot be written.
    """
    loaded = [run if isinstance(run, RunData) else load_run(run) for run in runs]
    if not loaded:
        raise ValueError("runs must name at least one run; give some of runs/")
    groups, _ = group_runs(loaded)
    rows = finals(groups) if page is None else write_comparison(loaded, Path(page))
    types = {
        column: pl.String if column in _TEXTS else pl.Int64 if column in _COUNTS else pl.Float64
        for column in CSV_COLUMNS
    }
    return pl.DataFrame([csv_cells(row) for row in rows], schema=types, orient="row")
