"""Section on accuracy and loss: one line per leaf, with the range of its clients."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes

from fedge.console.palette import colour, dashes
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.points import Points, Series
from fedge.report.html.svg import legend_below, new_figure
from fedge.report.html.tables import NOTHING, NumberTable, table, text_of
from fedge.report.sections.position import name_axis, position, round_labels
from hhar.quantity import quantity

_SPREAD = ("mean", "std", "worst", "p10", "jain")  # columns of unseen clients
_LAST = "after the last round"
MANY_LEAVES = 12  # above this number, leaves are shown as a range, because lines would overlap


def accuracy_section(run: RunData) -> PageSection:
    """Score and loss over rounds."""
    return PageSection(
        f"{_capitalise(run.score.label)} and loss",
        [
            "The model that a leaf serves at the end of a round, on test windows; nothing is chosen on them.",
            "Point at a figure, or go through it with ← and →, for its values.",
        ],
        [
            accuracy_panel(run),
            loss_panel(run),
            overall_panel(run),
            *own_model_panels(run),
            *unseen_panels(run),
            *common_panels(run),
        ],
    )


def _capitalise(text: str) -> str:
    """Text with its first letter capitalised, for a title."""
    return text[:1].upper() + text[1:]


def accuracy_panel(run: RunData) -> Panel:
    """Test score per leaf over rounds."""
    return _per_leaf_panel(
        run, f"Test {run.score.label} per leaf", f"test_{run.score.name}", f"test {run.score.label}"
    )


def loss_panel(run: RunData) -> Panel:
    """Test loss per leaf over rounds."""
    return _per_leaf_panel(
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
    spread = [f" ± {text_of(float(value))}" for value in std]
    series = [
        _curve(
            axes, run, rounds, f"test_{run.score.name}_mean", "mean over clients (± std)", 0, spread=spread
        ),
        _curve(axes, run, rounds, f"test_{run.score.name}_worst", "worst client", 1, "dashed"),
    ]
    _finish(run, axes, f"test {run.score.label}")
    numbers = table(
        ("round", "mean", "std", "worst", *(s.label for s in run.scores[1:2]), "test loss", "training loss"),
        rounds.select(
            "global_round", *(f"test_{run.score.name}_{statistic}" for statistic in ("mean", "std", "worst")),
            *(f"{score.name}_mean" for score in run.scores[1:2]), "test_loss_mean", "train_loss_mean",
        ).iter_rows(),
    )  # fmt: skip
    caption = "Every client has equal weight, whatever its number of windows."
    return Panel("All clients", numbers, figure, caption, points=Points(axes, series, shown=_LAST))


def own_model_panels(run: RunData) -> list[Panel]:
    """Scores of the models kept by clients for themselves, beside the served ones; empty without any."""
    if run.client_models.is_empty():
        return []
    worst = pl.col("test_score").min() if run.score.higher_is_better else pl.col("test_score").max()
    over_clients = run.client_models.group_by(
        "unseen_client", "model", "global_round", maintain_order=True
    ).agg(
        clients=pl.len(), mean=pl.col("test_score").mean(), std=pl.col("test_score").std(ddof=0), worst=worst
    )
    kinds = over_clients.partition_by("unseen_client", "model", as_dict=True, maintain_order=True)
    figure, axes = new_figure()
    series = [
        _curve(axes, run, run.rounds, f"test_{run.score.name}_mean", "served models: mean", 0),
        *(
            _curve(axes, run, rows, statistic, f"{_own_model(*kind)}: {statistic}", index, style)
            for index, (kind, rows) in enumerate(kinds.items(), start=1)
            for statistic, style in (("mean", "solid"), ("worst", "dashed"))
        ),
    ]
    _finish(run, axes, f"test {run.score.label}")
    numbers = table(
        ("round", "model", "clients", "mean", "std", "worst"),
        (
            (number, _own_model(unseen, name), *rest)
            for unseen, name, number, *rest in over_clients.sort("global_round", maintain_order=True).rows()
        ),
    )
    caption = "Models that the algorithm leaves with each client, on its own test windows."
    return [Panel("Clients' own models", numbers, figure, caption, points=Points(axes, series, shown=_LAST))]


def unseen_panels(run: RunData) -> list[Panel]:
    """Scores on unseen and on seen users; empty without unseen clients."""
    rounds = run.rounds
    if rounds[f"unseen_{run.score.name}_mean"].is_null().all():
        return []
    figure, axes = new_figure()
    lines = (
        (f"test_{run.score.name}_mean", "seen users: mean", "solid"),
        (f"unseen_{run.score.name}_mean", "unseen users: mean", "dashed"),
        (f"unseen_{run.score.name}_worst", "unseen users: worst", "dotted"),
    )
    series = [
        _curve(axes, run, rounds, column, label, index, style)
        for index, (column, label, style) in enumerate(lines)
    ]
    _finish(run, axes, f"test {run.score.label}")
    numbers = table(
        (
            "round", "seen mean", "unseen mean", "std", "worst", run.score.tail_label, "Jain index",
            *(score.label for score in run.scores[1:2]),
        ),
        rounds.select(
            "global_round", f"test_{run.score.name}_mean",
            *(f"unseen_{run.score.name}_{statistic}" for statistic in _SPREAD),
            *(f"unseen_{score.name}_mean" for score in run.scores[1:2]),
        ).iter_rows(),
    )  # fmt: skip
    caption = (
        "Unseen: unseen clients, whose users have no window at any leaf; each gets the model of its leaf."
    )
    return [
        Panel("Seen and unseen users", numbers, figure, caption, points=Points(axes, series, shown=_LAST))
    ]


def common_panels(run: RunData) -> list[Panel]:
    """Scores of the global mean, clusters and leaves on the common test set; empty without one."""
    common = run.common_test
    if common.is_empty():
        return []
    figure, axes = new_figure()
    global_rows = common.filter(pl.col("model") == "global")
    by_kind = {
        kind: common.filter(pl.col("model") == kind)
        .group_by("global_round", maintain_order=True)
        .agg(
            mean=pl.col("test_score").mean(), low=pl.col("test_score").min(), high=pl.col("test_score").max()
        )
        for kind in ("cluster", "leaf")
    }
    x = position(run, global_rows["global_round"])
    axes.plot(
        x, _floats(global_rows["test_score"]), color=colour(0), marker=_marker(x), label="mean of all leaves"
    )
    for index, (kind, rows) in enumerate(by_kind.items(), start=1):
        x = position(run, rows["global_round"])
        axes.fill_between(x, _floats(rows["low"]), _floats(rows["high"]), color=colour(index), alpha=0.15,
                          linewidth=0)  # fmt: skip
        axes.plot(
            x, _floats(rows["mean"]), color=colour(index), linestyle=dashes(index), marker=_marker(x),
            label=f"{kind}s: mean and range",
        )  # fmt: skip
    _finish(run, axes, f"{run.score.label} on the common test set")
    legend_below(figure, axes, columns=3)
    columns = ("mean", "low", "high")
    numbers = table(
        (
            "round",
            "global mean",
            *(f"{kind}s {statistic}" for kind in by_kind for statistic in ("mean", "least", "most")),
        ),
        global_rows.select("global_round", "test_score")
        .join(by_kind["cluster"].select("global_round", *columns), on="global_round")
        .join(by_kind["leaf"].select("global_round", *columns), on="global_round", suffix="_leaf")
        .iter_rows(),
    )
    caption = f"{quantity(global_rows['test_samples'][-1], 'window')}, the same for every model."
    return [Panel("Common test set", numbers, figure, caption)]


def _own_model(unseen_client: int, name: str) -> str:
    """Name of an algorithm's model in figures and tables, of training (0) or unseen clients (1)."""
    return f"{name}, unseen users" if unseen_client else name


def _per_leaf_panel(run: RunData, title: str, column: str, label: str) -> Panel:
    """A column of leaf_rounds.csv over rounds."""
    figure, axes = new_figure()
    leaves = run.leaves["leaf"].unique().sort().to_list()
    if len(leaves) > MANY_LEAVES:
        series = [_draw_range(axes, run, column)]
        caption = f"{len(leaves)} leaves: median, with its middle 80 % and its range as bands."
    else:
        series = [_draw_leaf(axes, run, leaf, column) for leaf in leaves]
        caption = "Pooled over the leaf's windows; the band spans its clients. Unseen clients are left out."
    _finish(run, axes, label)
    numbers = _leaf_table(run.leaves, column, leaves)
    return Panel(title, numbers, figure, caption, points=Points(axes, series, shown=_LAST))


def _draw_leaf(axes: Axes, run: RunData, leaf: int, column: str) -> Series:
    """One leaf's line: its pooled number, with the range of its clients."""
    rows = run.leaves.filter(pl.col("leaf") == leaf)
    spread = (
        run.known_clients.filter(pl.col("leaf") == leaf)
        .group_by("global_round", maintain_order=True)
        .agg(low=pl.col(column).min(), high=pl.col(column).max())
    )
    axes.fill_between(
        position(run, spread["global_round"]), _floats(spread["low"]), _floats(spread["high"]),
        color=colour(leaf), alpha=0.15, linewidth=0,
    )  # fmt: skip
    ranges = {number: f" (clients {text_of(low)} to {text_of(high)})" for number, low, high in spread.rows()}
    clients = [ranges.get(number, "") for number in rows["global_round"]]  # a leaf may have no clients
    return _curve(axes, run, rows, column, f"leaf {leaf}", leaf, dashes(leaf), clients)


def _draw_range(axes: Axes, run: RunData, column: str) -> Series:
    """Many leaves as median, middle 80 % and range."""
    per_round = run.leaves.group_by("global_round", maintain_order=True).agg(
        *(pl.col(column).quantile(q, "linear").alias(str(q)) for q in (0.0, 0.1, 0.5, 0.9, 1.0))
    )
    x = position(run, per_round["global_round"])
    for low, high in (("0.0", "1.0"), ("0.1", "0.9")):
        axes.fill_between(
            x, _floats(per_round[low]), _floats(per_round[high]), color=colour(0), alpha=0.18, linewidth=0
        )
    least, most = (per_round[name].to_list() for name in ("0.0", "1.0"))
    spread = [f" (leaves {text_of(a)} to {text_of(b)})" for a, b in zip(least, most, strict=True)]
    return _curve(axes, run, per_round, "0.5", "median leaf", 0, spread=spread)


def _curve(
    axes: Axes,
    run: RunData,
    rows: pl.DataFrame,
    column: str,
    label: str,
    index: int,
    style: str = "solid",
    spread: Sequence[str] | None = None,
) -> Series:
    """Line over rounds, and its legend entry.

    Args:
        index: number of its colour.
        style: line style, from `fedge.console.palette.dashes`.
        spread: words after each value, (rows,); None for none.
    """
    x, y = position(run, rows["global_round"]), _floats(rows[column])
    axes.plot(x, y, color=colour(index), linestyle=style, marker=_marker(x), label=label)
    values = [
        text_of(float(value)) + suffix for value, suffix in zip(y, spread or [""] * len(y), strict=True)
    ]
    positions = round_labels(run, rows["global_round"])
    x_values = _floats(x)
    points = list(zip(map(float, x_values), map(float, y), positions, values, strict=True))
    return Series(label, colour(index), style, points, values[-1] if values else NOTHING)


def _leaf_table(leaves: pl.DataFrame, column: str, names: list[int]) -> NumberTable:
    """Table with a row per round and a column per leaf."""
    wide = leaves.pivot("leaf", index="global_round", values=column)
    return table(("round", *(f"leaf {leaf}" for leaf in names)), wide.select(
        "global_round", *(str(leaf) for leaf in names)
    ).iter_rows())  # fmt: skip


def _finish(run: RunData, axes: Axes, label: str) -> None:
    """Label the axes."""
    name_axis(run, axes)
    axes.set_ylabel(label)


def _floats(column: pl.Series) -> np.ndarray:
    """A column as floats; missing values become NaN and are not drawn."""
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()


def _marker(rounds: pl.Series) -> Any:
    """Marker for a single round, which a line would not show."""
    return "o" if len(rounds) == 1 else None
