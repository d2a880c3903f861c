"""Section on clients: the best and worst served, and confusion matrices."""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedge.console.palette import colour
from fedge.metrics.scores import accuracy
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.svg import legend_below, new_figure
from fedge.report.html.tables import NumberTable, table, text_of
from fedge.report.sections.spread import spread_panel
from hhar.quantity import quantity

MANY_CLIENTS = 40  # above this number, bars become a scatter plot over ranks
MANY_CLASSES = 40  # above this number, a matrix is an image, and its table has one row per class
LONGEST_LABEL = 24  # characters; longer names leave no room for the figure


def clients_section(run: RunData) -> PageSection:
    """Every client's score after the last round, its spread, and confusion matrices."""
    last = last_clients(run)
    panels = [clients_panel(run, last, users_of(run)), spread_panel(run)]
    return PageSection("Clients", _sentences(run, last), panels + _confusion_panels(run, last))


def _confusion_panels(run: RunData, last: pl.DataFrame) -> list[Panel]:
    """Confusion matrices of all known clients, of the worst of them, and of all unseen clients."""
    unseen_clients = set(last.filter(pl.col("unseen_client") == 1)["client"])
    known = {client: matrix for client, matrix in run.confusion.items() if client not in unseen_clients}
    unseen = {client: matrix for client, matrix in run.confusion.items() if client in unseen_clients}
    panels = []
    if known:
        worst, matrix = min(known.items(), key=lambda item: (accuracy(item[1]), item[0]))
        panels = [
            _confusion(run, np.sum(list(known.values()), axis=0), "all clients"),
            _confusion(run, matrix, f"worst client ({worst})"),
        ]
    if unseen:
        panels.append(_confusion(run, np.sum(list(unseen.values()), axis=0), "all unseen clients"))
    return panels


def last_clients(run: RunData) -> pl.DataFrame:
    """Rows of clients.csv in the last round."""
    return run.clients.filter(pl.col("global_round") == pl.col("global_round").max())


def users_of(run: RunData) -> dict[int, str]:
    """Client → users of its windows, as text with at most three names."""
    grouped = run.partition.group_by("client").agg(pl.col("user").unique().sort())
    return {client: _abbreviate(users) for client, users in grouped.iter_rows()}


def sole_users_of(run: RunData) -> dict[int, str]:
    """Client → the user of all its windows, for clients of one user; a name may have commas."""
    grouped = run.partition.group_by("client").agg(pl.col("user").unique().sort())
    return {client: users[0] for client, users in grouped.iter_rows() if len(users) == 1 and users[0]}


def _abbreviate(names: Sequence[str | None]) -> str:
    """Names, or the first two and the number of others."""
    present = [name for name in names if name]
    return (
        ", ".join(present) if len(present) <= 3 else f"{present[0]}, {present[1]} and {len(present) - 2} more"
    )


def _sentences(run: RunData, last: pl.DataFrame) -> list[str]:
    """Sentences on the worst and best client, for seen and unseen users."""
    users, text, test = sole_users_of(run), [], f"test_{run.score.name}"
    for flag, noun in ((0, "client"), (1, "unseen client")):
        rows = last.filter(pl.col("unseen_client").fill_null(0) == flag)
        scored = worst_first(run, rows)
        if scored.is_empty():
            text += [] if rows.is_empty() else [f"No {noun} was evaluated."]
            continue
        worst, best = scored.row(0, named=True), scored.row(-1, named=True)
        statement = (
            f"the worst {noun} is {_describe_client(worst, users, test)}; "
            f"the best is {_describe_client(best, users, test)}"
        )
        if len(scored) == 1:
            statement = f"the only {noun} is {_describe_client(worst, users, test)}"
        elif worst[test] == best[test]:
            statement = f"all {quantity(len(scored), noun)} have {text_of(worst[test])}"
        text.append(f"After round {worst['global_round']}, {statement}.")
    return text or ["No client was evaluated."]


def worst_first(run: RunData, clients: pl.DataFrame) -> pl.DataFrame:
    """Rows of evaluated clients, the worst first."""
    test = f"test_{run.score.name}"
    order = [not run.score.higher_is_better, False]
    return clients.drop_nulls(test).sort(test, "client", descending=order)


def _describe_client(row: dict[str, float], users: dict[int, str], test: str) -> str:
    """Text such as "client 3 (user d, leaf 1) with 0.9123 on 92 test windows"."""
    user = users.get(int(row["client"]))
    user_part = f"user {user}, " if user else ""
    return (
        f"client {row['client']} ({user_part}leaf {row['leaf']}) with {text_of(row[test])} "
        f"on {quantity(row['test_samples'], 'test window')}"
    )


def clients_panel(run: RunData, last: pl.DataFrame, users: dict[int, str]) -> Panel:
    """Score of every client after the last round."""
    test, further = f"test_{run.score.name}", run.scores[1:2]
    scored = last.drop_nulls(test)
    if scored.is_empty():
        figure, caption = None, "No client was evaluated."
    elif len(scored) > MANY_CLIENTS:
        figure, caption = _rank_plot(run, scored), "Sorted; colours are leaves, crosses are unseen clients."
    else:
        figure, caption = (
            _bar_plot(run, scored),
            "Colours are leaves; the worst is named; unseen clients are hatched.",
        )
    if 0 < len(scored) < len(last):
        caption += f" {quantity(len(last) - len(scored), 'client')} without a score: left out."
    ordered = last.sort(test, "client", descending=[not run.score.higher_is_better, False], nulls_last=True)
    numbers = table(
        (
            "client", "leaf", "user", "in training", f"test {run.score.label}",
            *(score.label for score in further), "test windows",
            "training windows",
        ),
        (
            (r["client"], r["leaf"], users.get(r["client"], "–"), "unseen" if r["unseen_client"] else "seen",
             r[test], *(r[score.name] for score in further), r["test_samples"], r["train_samples"])
            for r in ordered.iter_rows(named=True)
        ),
    )  # fmt: skip
    return Panel(f"Final test {run.score.label} per client", numbers, figure, caption)


def _bar_plot(run: RunData, last: pl.DataFrame) -> Figure:
    """Figure with one bar per evaluated client, in order of clients, so leaves are adjacent."""
    figure, axes = new_figure(0.9 + 0.24 * max(len(last), 6))
    test, is_share = f"test_{run.score.name}", run.score.unit == "share"
    scores = last[test].cast(pl.Float64).to_numpy()
    rows = np.arange(len(last))
    seen: set[int] = set()
    for row, score, leaf, unseen_client in zip(
        rows, scores, last["leaf"], last["unseen_client"], strict=True
    ):
        axes.barh(
            row, score, height=0.72, color=colour(leaf), label=None if leaf in seen else f"leaf {leaf}",
            hatch="//" if unseen_client else None,
        )  # fmt: skip
        seen.add(leaf)
    merits = scores if run.score.higher_is_better else -scores
    known_merits = np.where(last["unseen_client"].fill_null(0).to_numpy() == 1, np.inf, merits)
    worst = int(np.argmin(known_merits)) if np.isfinite(known_merits).any() else None
    for row, score in zip(rows, scores, strict=True):
        axes.annotate(
            f"{score:.3f}" + ("  worst" if row == worst else ""), (score, row), (3, 0),
            textcoords="offset points", va="center", fontsize=9.5, annotation_clip=False,
        )  # fmt: skip
    names = [
        f"{'unseen' if unseen else 'client'} {c}"
        for c, unseen in last.select("client", "unseen_client").iter_rows()
    ]
    axes.set_yticks(rows, names)
    axes.set_ylim(len(last) - 0.4, -0.6)
    if is_share:
        axes.set_xlim(0, 1.18)
        axes.set_xticks(np.linspace(0, 1, 6))
    axes.set_xlabel(f"test {run.score.label}")
    axes.grid(False, axis="y")
    legend_below(figure, axes, columns=4)
    return figure


def _rank_plot(run: RunData, last: pl.DataFrame) -> Figure:
    """Figure of many clients sorted by score."""
    figure, axes = new_figure()
    test = f"test_{run.score.name}"
    ranked = worst_first(run, last).with_row_index("rank", offset=1)
    for unseen_clients, style in (
        (False, {"s": 6, "linewidths": 0}),
        (True, {"s": 14, "linewidths": 0.8, "marker": "x"}),
    ):
        rows = ranked.filter((pl.col("unseen_client").fill_null(0) == 1) == unseen_clients)
        axes.scatter(rows["rank"], rows[test], c=[colour(leaf) for leaf in rows["leaf"]], **style)
    axes.set_xlabel("clients, worst first")
    axes.set_ylabel(f"test {run.score.label}")
    return figure


# --- confusion ----------------------------------------------------------------------------------------


def _confusion(run: RunData, matrix: np.ndarray, subject: str) -> Panel:
    """Confusion matrix with the run's class names."""
    return confusion_panel(matrix, classes_of(run, len(matrix)), f"Confusion matrix, {subject}")


def classes_of(run: RunData, count: int) -> list[str]:
    """Names of the classes, or their numbers."""
    names = list(run.manifest.get("data", {}).get("classes", []))
    return names if len(names) == count else [str(number) for number in range(count)]


def confusion_panel(matrix: np.ndarray, classes: Sequence[str], title: str) -> Panel:
    """Confusion matrix (classes, classes) int64: shares of each true class drawn, windows in a table."""
    row_sums = matrix.sum(axis=1, keepdims=True)
    shares, count = matrix / np.maximum(row_sums, 1), len(classes)
    figure, axes = new_figure(3.6 if count <= 8 else 4.6)
    if count <= MANY_CLASSES:
        axes.pcolormesh(shares, cmap="cividis", vmin=0, vmax=1)
        names = [shorten(name) for name in classes]
        axes.set_xticks(np.arange(count) + 0.5, names, rotation=35, ha="right")
        axes.set_yticks(np.arange(count) + 0.5, names)
    else:
        axes.imshow(shares, cmap="cividis", vmin=0, vmax=1, extent=(0, count, count, 0), aspect="auto")
    if count <= 12:
        annotate_cells(axes, shares, lambda share: f"{100 * share:.0f}", 0.0)
    axes.set_ylim(count, 0)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    axes.grid(False)
    axes.tick_params(length=0)
    caption = "Percent of the windows of each true class."
    if count > MANY_CLASSES:
        caption = (
            "Share of the windows of each true class, classes in label order; all numbers: confusion.json."
        )
    return Panel(title, _confusion_table(matrix, classes), figure, caption)


def _confusion_table(matrix: np.ndarray, classes: Sequence[str]) -> NumberTable:
    """Windows by true and predicted class; of many classes, only the one each is most often taken for."""
    diagonal, row_sums, predicted = np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)
    rates = [
        (_share(diagonal[k], row_sums[k]), _share(diagonal[k], predicted[k])) for k in range(len(classes))
    ]
    if len(classes) <= MANY_CLASSES:
        headers = ("true", *(f"as {name}" for name in classes), "recall", "precision")
        return table(headers, ((name, *map(int, matrix[k]), *rates[k]) for k, name in enumerate(classes)))
    errors = matrix - np.diag(diagonal)
    mistakes = [(classes[int(row.argmax())], int(row.max())) if row.any() else (None, None) for row in errors]
    headers = ("true", "windows", "right", "most often taken for", "times", "recall", "precision")
    return table(headers, (
        (name, int(row_sums[k]), int(diagonal[k]), *mistakes[k], *rates[k]) for k, name in enumerate(classes)
    ))  # fmt: skip


def shorten(name: str) -> str:
    """A name for an axis or a legend, of at most 24 characters."""
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"


def annotate_cells(axes: Axes, values: np.ndarray, text: Callable[[float], str], low: float) -> None:
    """Write values (rows, columns) into the cells of a cividis map from `low` (below 1) to 1."""
    for (row, column), value in np.ndenumerate(values):
        dark = (value - low) / (1 - low) < 0.45
        axes.text(
            column + 0.5, row + 0.5, text(float(value)), ha="center", va="center", fontsize=9,
            color="#ffffff" if dark else "#000000",
        )  # fmt: skip


def _share(part: int, whole: int) -> float | None:
    """part / whole; None if `whole` is zero."""
    return float(part / whole) if whole else None
