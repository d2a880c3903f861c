"""The section on accuracy and loss: a line per leaf, the spread of its clients around it."""

from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from fedge.console.palette import colour, dashes
from fedge.records.reader import RunData
from fedge.report.html.page import Panel, Section
from fedge.report.html.svg import legend_below, new_figure
from fedge.report.html.tables import Table, table
from fedge.report.sections.position import name_axis, position

_SPREAD = ("mean", "std", "worst", "p10", "jain")  # columns of unseen clients
MANY_LEAVES = 12  # above, leaves are shown as a range: lines would hide each other


def accuracy_section(run: RunData) -> Section:
    """Accuracy and loss over rounds."""
    return Section(
        f"{_capital(run.score.said)} and loss",
        ["The model that a leaf serves at the end of a round, on test windows on which nothing was chosen."],
        [accuracy_panel(run), loss_panel(run), overall_panel(run), *unseen_panels(run)],
    )


def _capital(said: str) -> str:
    """Words with a capital, to begin a title."""
    return said[:1].upper() + said[1:]


def accuracy_panel(run: RunData) -> Panel:
    """Test accuracy per leaf over rounds."""
    return _per_leaf(
        run, f"Test {run.score.said} per leaf", f"test_{run.score.name}", f"test {run.score.said}"
    )


def loss_panel(run: RunData) -> Panel:
    """Test loss per leaf over rounds."""
    return _per_leaf(
        run,
        "Test loss per leaf",
        "test_loss",
        "cross entropy per window" if run.has_classes else "loss per window",
    )


def overall_panel(run: RunData) -> Panel:
    """Mean and worst client over rounds."""
    rounds = run.rounds
    figure, axes = new_figure()
    x = position(run, rounds["global_round"])
    mean, std = (_floats(rounds[f"test_{run.score.name}_{name}"]) for name in ("mean", "std"))
    low, high = run.score.lowest, run.score.highest
    axes.fill_between(
        x, (mean - std).clip(low, high), (mean + std).clip(low, high), color=colour(0), alpha=0.18,
        linewidth=0,
    )  # fmt: skip
    axes.plot(x, mean, color=colour(0), marker=_marker(x), label="mean over clients (± std)")
    axes.plot(
        x, rounds[f"test_{run.score.name}_worst"], color=colour(1), linestyle="dashed", marker=_marker(x),
        label="worst client",
    )  # fmt: skip
    _finish(run, axes, f"test {run.score.said}")
    legend_below(figure, axes, columns=2)
    numbers = table(
        ("round", "mean", "std", "worst", *(s.said for s in run.scores[1:2]), "test loss", "training loss"),
        rounds.select(
            "global_round", *(f"test_{run.score.name}_{of}" for of in ("mean", "std", "worst")),
            *(f"{score.name}_mean" for score in run.scores[1:2]), "test_loss_mean", "train_loss_mean",
        ).iter_rows(),
    )  # fmt: skip
    return Panel("All clients", numbers, figure, "Every client counts the same, whatever its windows.")


def unseen_panels(run: RunData) -> list[Panel]:
    """Accuracy on users unseen in training beside that on seen ones; nothing without those."""
    rounds = run.rounds
    if rounds[f"unseen_{run.score.name}_mean"].is_null().all():
        return []
    figure, axes = new_figure()
    x = position(run, rounds["global_round"])
    lines = (
        (f"test_{run.score.name}_mean", "seen users: mean", "solid"),
        (f"unseen_{run.score.name}_mean", "unseen users: mean", "dashed"),
        (f"unseen_{run.score.name}_worst", "unseen users: worst", "dotted"),
    )
    for index, (column, label, style) in enumerate(lines):
        axes.plot(
            x, _floats(rounds[column]), color=colour(index), linestyle=style, marker=_marker(x), label=label
        )
    _finish(run, axes, f"test {run.score.said}")
    legend_below(figure, axes, columns=2)
    numbers = table(
        (
            "round", "seen mean", "unseen mean", "std", "worst", "10th percentile", "Jain index",
            *(score.said for score in run.scores[1:2]),
        ),
        rounds.select(
            "global_round", f"test_{run.score.name}_mean",
            *(f"unseen_{run.score.name}_{of}" for of in _SPREAD),
            *(f"unseen_{score.name}_mean" for score in run.scores[1:2]),
        ).iter_rows(),
    )  # fmt: skip
    caption = "Unseen: unseen clients, whose users no leaf has a window of; each gets the model of its leaf."
    return [Panel("Seen and unseen users", numbers, figure, caption)]


def _per_leaf(run: RunData, title: str, column: str, label: str) -> Panel:
    """One of the leaves' numbers over rounds."""
    figure, axes = new_figure()
    leaves = run.leaves["leaf"].unique().sort().to_list()
    if len(leaves) > MANY_LEAVES:
        _draw_range(axes, run, column)
        caption = f"{len(leaves)} leaves: median, middle 80 % and range."
    else:
        for leaf in leaves:
            _draw_leaf(axes, run, leaf, column)
        caption = "Pooled over the leaf's windows; the band spans its clients. Unseen clients are left out."
    _finish(run, axes, label)
    legend_below(figure, axes, columns=4)
    return Panel(title, _leaf_table(run.leaves, column, leaves), figure, caption)


def _draw_leaf(axes: Axes, run: RunData, leaf: int, column: str) -> None:
    """Draw one leaf: its pooled number and the range of its clients'."""
    own = run.leaves.filter(pl.col("leaf") == leaf)
    spread = (
        run.known_clients.filter(pl.col("leaf") == leaf)
        .group_by("global_round", maintain_order=True)
        .agg(low=pl.col(column).min(), high=pl.col(column).max())
    )
    axes.fill_between(
        position(run, spread["global_round"]), _floats(spread["low"]), _floats(spread["high"]),
        color=colour(leaf), alpha=0.15, linewidth=0,
    )  # fmt: skip
    x = position(run, own["global_round"])
    axes.plot(
        x, _floats(own[column]), color=colour(leaf), linestyle=dashes(leaf), marker=_marker(x),
        label=f"leaf {leaf}",
    )  # fmt: skip


def _draw_range(axes: Axes, run: RunData, column: str) -> None:
    """Draw many leaves as median, middle 80 % and range."""
    per_round = run.leaves.group_by("global_round", maintain_order=True).agg(
        *(pl.col(column).quantile(q, "linear").alias(str(q)) for q in (0.0, 0.1, 0.5, 0.9, 1.0))
    )
    x = position(run, per_round["global_round"])
    for low, high, label in (("0.0", "1.0", "all leaves"), ("0.1", "0.9", "middle 80 %")):
        axes.fill_between(
            x, _floats(per_round[low]), _floats(per_round[high]), color=colour(0), alpha=0.18, linewidth=0,
            label=label,
        )  # fmt: skip
    axes.plot(x, _floats(per_round["0.5"]), color=colour(0), marker=_marker(x), label="median leaf")


def _leaf_table(leaves: pl.DataFrame, column: str, names: list[int]) -> Table:
    """A row per round, a column per leaf."""
    wide = leaves.pivot("leaf", index="global_round", values=column)
    return table(("round", *(f"leaf {leaf}" for leaf in names)), wide.select(
        "global_round", *(str(leaf) for leaf in names)
    ).iter_rows())  # fmt: skip


def _finish(run: RunData, axes: Axes, label: str) -> None:
    """Name the axes."""
    name_axis(run, axes)
    axes.set_ylabel(label)


def _floats(column: pl.Series) -> np.ndarray:
    """A column as floats; missing values are NaN, which is not drawn."""
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _marker(rounds: pl.Series) -> Any:
    """A marker where a line alone would not show: a single round."""
    return "o" if len(rounds) == 1 else None
