"""Where global rounds stand on an axis: at their numbers, or at their moments of virtual time."""

import polars as pl
from matplotlib.axes import Axes

from fedge.records.reader import RunData
from fedge.report.html.svg import whole_ticks
from fedge.report.html.tables import text_of


def position(run: RunData, rounds: pl.Series) -> pl.Series:
    """Places of global rounds on the axis, (N,): virtual seconds of a run on the virtual clock, else numbers.

    Args:
        run: whose rounds they are.
        rounds: numbers of global rounds, (N,).
    """
    if run.versions.is_empty():
        return rounds
    when = dict(run.versions.select("evaluation", "virtual_s").iter_rows())
    return pl.Series([when.get(number) for number in rounds], dtype=pl.Float64)


def words_of(run: RunData, rounds: pl.Series) -> list[str]:
    """Names of global rounds as a figure's key says them, (N,): with their moment on the virtual clock."""
    if run.versions.is_empty():
        return [f"round {number}" for number in rounds]
    moments = position(run, rounds).to_list()
    return [
        f"evaluation {number}" if moment is None else f"{text_of(moment)} virtual s"
        for number, moment in zip(rounds, moments, strict=True)
    ]


def name_axis(run: RunData, axes: Axes) -> None:
    """Label of the x axis: virtual seconds, or global rounds, which are whole numbers."""
    if run.versions.is_empty():
        axes.set_xlabel("global round")
        whole_ticks(axes)
    else:
        axes.set_xlabel("virtual s")
