"""Curves of groups of runs: the score over rounds, seconds, bytes, virtual time and energy."""

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes

from fedge.console.palette import colour, dashes
from fedge.records.reading.costs import bytes_so_far, joules, virtual_seconds
from fedge.records.reading.reader import RunData
from fedge.report.comparison.groups import Group, has_energy, is_on_clock, with_same_score
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.points import Points, Series
from fedge.report.html.svg import integer_ticks, new_figure
from fedge.report.html.tables import NOTHING, table, text_of

Position = Callable[[RunData], pl.Series]

_AXES: dict[str, tuple[str, Position]] = {
    "rounds": ("global round", lambda run: run.rounds["global_round"]),
    "seconds": ("seconds so far", lambda run: run.rounds["seconds"].cum_sum()),
    "bytes": ("MB so far, all tiers", lambda run: bytes_so_far(run.rounds) / 1e6),
}
_VIRTUAL = "virtual seconds"  # for groups with virtual time, with or without the virtual clock
_ENERGY = "energy"  # for groups with devices of known power


def _read_costs(costs: Callable[[RunData], pl.Series | None]) -> Position:
    """Reader of costs, for groups known to have them."""

    def position(run: RunData) -> pl.Series:
        series = costs(run)
        assert series is not None, "only groups that have it are drawn"
        return series

    return position


_COSTS: dict[str, tuple[Callable[[Group], bool], str, Position]] = {  # shown if any group has them
    _VIRTUAL: (is_on_clock, _VIRTUAL, _read_costs(virtual_seconds)),
    _ENERGY: (has_energy, "J of the devices so far", _read_costs(joules)),
}


_READING_HINT = (
    "Thick: mean over seeds; thin: each seed. Point at a figure, or go through it with ← and →, for its "
    "values."
)
_UNITS = {"seconds": "s", "bytes": "MB", _VIRTUAL: "virtual s", _ENERGY: "J"}
_YLABEL_WIDTH = 26  # characters fitting along a figure's y axis


def curves_section(groups: Sequence[Group]) -> PageSection:
    """The score over rounds and over costs, and the worst client over rounds."""
    score_label, test, groups = groups[0].score.label, f"test_{groups[0].score.name}", with_same_score(groups)
    unseen = f"unseen_{groups[0].score.name}_mean"
    mean = (f"{test}_mean", f"mean test {score_label}")
    panels = [
        curve_panel([group for group in groups if has(group)], *mean, over, groups)
        for over, (has, *_) in _COSTS.items()
        if any(map(has, groups))
    ]
    panels += [curve_panel(groups, *mean, over) for over in _AXES]
    panels.append(curve_panel(groups, f"{test}_worst", f"worst client's test {score_label}", "rounds"))
    optional_columns = {
        unseen: f"mean test {score_label} on unseen users",
        "ari": "adjusted Rand index of the clusters",
    }
    for column, label in optional_columns.items():
        if any(not run.rounds[column].is_null().all() for group in groups for run in group.runs):
            panels.append(curve_panel(groups, column, label, "rounds"))
    return PageSection(
        "Curves",
        [_READING_HINT],
        panels,
    )


def curve_panel(
    groups: Sequence[Group], column: str, label: str, over: str, compared: Sequence[Group] = ()
) -> Panel:
    """One metric of groups over rounds, or over costs.

    Args:
        groups: groups to draw.
        column: column of global_rounds.csv.
        label: name of the metric.
        over: "rounds", "seconds", "bytes", "virtual seconds", "energy".
        compared: all groups, whose positions determine colours; empty for those drawn.
    """
    axis_label, position = _COSTS[over][1:] if over in _COSTS else _AXES[over]
    figure, axes = new_figure()
    rows: list[tuple[Any, ...]] = []
    series = []
    for group in groups:
        index = (compared or groups).index(group)
        for run in group.runs:
            x, y = position(run).to_numpy(), run.rounds[column].to_numpy()
            axes.plot(x, y, color=colour(index), linewidth=0.6, alpha=0.5)
        means = _means(group, column, position)
        _draw_mean(axes, index, group.label, means)
        series.append(_series(index, group.label, means, over))
        rows += [(group.label, *row) for row in means.rows()]
    axes.set_xlabel(axis_label)
    axes.set_ylabel(textwrap.fill(label, _YLABEL_WIDTH))
    if over == "rounds":
        integer_ticks(axes)
    headers = ("group", "round", axis_label, label, "std over seeds", "seeds")
    return Panel(
        f"{label[0].upper()}{label[1:]} over {over}",
        table(headers, rows),
        figure,
        points=Points(axes, series, shown="after the last round"),
    )


def _series(index: int, label: str, means: pl.DataFrame, over: str) -> Series:
    """A group's legend entry: mean and standard deviation in every round."""
    points = []
    for number, x, y, std, _ in means.rows():
        y = math.nan if y is None else y
        position = f"round {number}" if over == "rounds" else f"round {number}, {text_of(x)} {_UNITS[over]}"
        spread = "" if std is None or math.isnan(std) else f" ± {text_of(std)}"
        points.append((x, y, position, text_of(y) + spread))
    return Series(label, colour(index), dashes(index), points, points[-1][3] if points else NOTHING)


def _draw_mean(axes: Axes, index: int, label: str, means: pl.DataFrame) -> None:
    """Draw the mean over seeds."""
    axes.plot(
        means["x"].to_numpy(), means["y"].to_numpy(), color=colour(index), linestyle=dashes(index),
        linewidth=2, label=label, marker="o" if len(means) == 1 else None,
    )  # fmt: skip


def _means(group: Group, column: str, position: Position) -> pl.DataFrame:
    """Round, mean position x, mean and std of y, and number of seeds with y, in rounds of every run."""
    frames = [
        run.rounds.select(
            pl.col("global_round").alias("round"), position(run).cast(pl.Float64).alias("x"),
            pl.col(column).alias("y"),
        )
        for run in group.runs
    ]  # fmt: skip
    return (
        pl.concat(frames)
        .group_by("round")
        .agg(
            pl.col("x").mean(),
            pl.col("y").mean(),
            pl.col("y").std().alias("std"),
            pl.col("y").count().alias("n"),
            pl.len().alias("runs"),
        )
        .filter(pl.col("runs") == len(frames))
        .drop("runs")
        .sort("round")
    )
