"""Section on data: windows of each client by class, user and device."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from matplotlib.axes import Axes

from fedge.console.palette import colour
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel
from fedge.report.html.svg import legend_below, new_figure
from fedge.report.html.tables import table
from fedge.report.sections.clients import MANY_CLASSES, MANY_CLIENTS, shorten, users_of
from hhar.quantity import quantity


def windows_section(run: RunData) -> PageSection:
    """The data of every client."""
    panels = []
    if not run.partition.is_empty():
        panels = [classes_panel(run), holdings_panel(run)]
    return PageSection("Data", _sentences(run), panels)


def _sentences(run: RunData) -> list[str]:
    """Sentences on the data and their split."""
    data = run.manifest.get("data")
    if not data:
        return ["The run ended before its data were loaded."]
    scenario = run.manifest.get("scenario")
    scenario_text = f" Scenario {scenario['kind']}: each leaf's group is in the table." if scenario else ""
    if run.eras[1:]:
        rounds = ", ".join(str(first) for first, _ in run.eras[1:])
        scenario_text = scenario_text[:-1] + f", as it is in round 1; leaves change theirs in round {rounds}."
    has_classes = any(_classes(run))
    split = {
        "session": "whole sessions",
        "blocks": "contiguous blocks of time" + " per class" * has_classes,
        "given": "the split that the data bring",
    }
    noun = "class" if has_classes else "output"
    return [
        f"Source: {data['name']}, {quantity(data['windows'], 'window', separated=True)} of "
        f"{quantity(len(data['classes']), noun)}, {quantity(len(data['channels']), 'channel')} "
        f"({', '.join(data['channels'])}). "
        f"Training, validation and test windows are split by {split.get(data['split'], data['split'])}."
        + (" The data have lost their time order: blocks are random windows." * _is_disordered(data))
        + scenario_text,
        f"Fingerprint (sha256): {data['fingerprint']}",
    ]


def _is_disordered(data: Mapping[str, Any]) -> bool:
    """Whether windows were split by blocks of time although their time order was lost."""
    return data.get("time_order") == "lost"


def _classes(run: RunData) -> list[str]:
    """The classes in label order; only "" if windows have no classes, as in regression."""
    present = run.partition["class"].drop_nulls().unique().sort().to_list()
    return list(run.manifest.get("data", {}).get("classes", present)) if present else [""]


def classes_panel(run: RunData) -> Panel:
    """Windows per class, stacked, for every client, or for every leaf if there are many clients."""
    unit = "client" if run.partition["client"].n_unique() <= MANY_CLIENTS else "leaf"
    classes = _classes(run)
    counts = _per_class(run.partition, unit, classes)
    figure, axes = new_figure(0.9 + 0.24 * max(len(counts), 6))
    if len(classes) <= MANY_CLASSES:
        _draw_stacked(axes, counts, classes)
        legend_below(figure, axes, columns=4)
    else:
        axes.imshow(
            counts.drop(unit).to_numpy(), cmap="cividis", aspect="auto",
            extent=(0, len(classes), len(counts) - 0.5, -0.5),
        )  # fmt: skip
        axes.set_xlabel("classes in label order; the brighter, the more windows")
        axes.grid(False)
    axes.set_yticks(range(len(counts)), [f"{unit} {key}" for key in counts[unit]])
    if not any(classes):
        return Panel(f"Windows per {unit}", table((unit, "all"), counts.iter_rows()), figure)
    numbers = table((unit, *classes, "all"), (
        (*row, sum(row[1:])) for row in counts.iter_rows()
    ))  # fmt: skip
    return Panel(f"Windows per class and {unit}", numbers, figure)


def _draw_stacked(axes: Axes, counts: pl.DataFrame, classes: Sequence[str]) -> None:
    """Bars of windows, classes one after the other; `counts` has a column per class after its first."""
    base = [0] * len(counts)
    for index, name in enumerate(classes):
        windows = counts[:, 1 + index].to_list()
        axes.barh(
            range(len(counts)), windows, left=base, height=0.75, color=colour(index), label=shorten(name),
            hatch="//" if index >= 7 else None,
        )  # fmt: skip
        base = [a + b for a, b in zip(base, windows, strict=True)]
    axes.set_ylim(len(counts) - 0.4, -0.6)
    axes.set_xlabel("windows (training, validation and test)")
    axes.grid(False, axis="y")


def _per_class(partition: pl.DataFrame, by: str, classes: Sequence[str]) -> pl.DataFrame:
    """Windows with a row per client or leaf, and a column per class in label order after its first."""
    sums = partition.group_by(by, pl.col("class").fill_null("")).agg(pl.col("windows").sum())
    counts = {(key, name): windows for key, name, windows in sums.iter_rows()}  # names may be any text
    keys = partition[by].unique().sort().to_list()
    columns = [[counts.get((key, name), 0) for key in keys] for name in classes]
    return pl.DataFrame([pl.Series(by, keys), *(pl.Series(f"{n} windows", c) for n, c in enumerate(columns))])


def holdings_panel(run: RunData) -> Panel:
    """Table of each client's windows."""
    per_client = (
        run.partition.group_by("client", "leaf", "unseen_client", "group")
        .agg(
            *(
                pl.col("windows").filter(pl.col("split") == split).sum().alias(split)
                for split in ("train", "val", "test")
            ),
            pl.col("device").unique().drop_nulls().sort(),
        )
        .sort("client")
    )
    users = users_of(run)
    rows = (
        (
            r["client"],
            r["leaf"],
            *([] if run.truth is None else [r["group"]]),
            users[r["client"]] or "–",
            "unseen" if r["unseen_client"] else "seen",
            _devices(r["device"]),
            r["train"],
            r["val"],
            r["test"],
        )
        for r in per_client.iter_rows(named=True)
    )
    group = () if run.truth is None else ("planted group",)
    headers = ("client", "leaf", *group, "users", "in training", "devices", "training", "validation", "test")
    return Panel("What each client holds", table(headers, rows), is_open=len(per_client) <= MANY_CLIENTS)


def _devices(names: Sequence[str]) -> str:
    """Names of devices, or their number."""
    return ", ".join(names) or "–" if len(names) <= 4 else f"{len(names)} devices"
