"""Positions of global rounds on an axis: their numbers, or their virtual times."""

import polars as pl
from matplotlib.axes import Axes

from fedge.records.reading.reader import RunData
from fedge.report.html.svg import integer_ticks
from fedge.report.html.tables import text_of


def position(run: RunData, rounds: pl.Series) -> pl.Series:
    """Positions of global rounds on the axis, (N,): virtual seconds on the virtual clock, else numbers.

    Args:
        run: run of the rounds.
        rounds: numbers of global rounds, (N,).
    """
    if run.versions.is_empty():
        return rounds
    times = dict(run.versions.select("evaluation", "virtual_s").iter_rows())
    return pl.Series([times.get(number) for number in rounds], dtype=pl.Float64)


def round_labels(run: RunData, rounds: pl.Series) -> list[str]:
    """Names of global rounds for a figure's legend, (N,); on the virtual clock, their times."""
    if run.versions.is_empty():
        return [f"round {number}" for number in rounds]
    moments = position(run, rounds).to_list()
    return [
        f"evaluation {number}" if moment is None else f"{text_of(moment)} virtual s"
        for number, moment in zip(rounds, moments, strict=True)
    ]


def name_axis(run: RunData, axes: Axes) -> None:
    """Label the x axis: virtual seconds, or global rounds as whole numbers."""
    if run.versions.is_empty():
        axes.set_xlabel("global round")
        integer_ticks(axes)
    else:
        axes.set_xlabel("virtual s")
