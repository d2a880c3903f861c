"""Section on devices of a run on the virtual clock: scores over time, devices' work, staleness."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedge.console.palette import colour
from fedge.records.reading.reader import RunData
from fedge.report.html.page import PageSection, Panel, Tile
from fedge.report.html.svg import integer_ticks, legend_below, new_figure
from fedge.report.html.tables import NOTHING, bytes_text, frame_table, percent, seconds_text, table, text_of
from hhar.quantity import quantity

_OUTCOMES = ("updates", "dropped", "away", "late", "stale", "failed")
_ROWS = 12  # number of devices drawn


def device_sections(run: RunData) -> list[PageSection]:
    """The section, for a run on the virtual clock; empty for others."""
    if run.versions.is_empty():
        return []
    views = [
        ("virtual time", score_panel(run)),
        ("updates", updates_panel(run)),
        ("bytes", bytes_panel(run)),
    ]
    panels = [
        Panel(f"{_score_title(run)} over …", views=views),
        versions_panel(run),
        stale_over_time_panel(run),
    ]
    if not run.jobs.is_empty():
        panels.append(timeline_panel(run))
    if not run.staleness.is_empty():
        panels.append(staleness_panel(run))
    if not run.devices.is_empty():
        panels.append(outcomes_panel(run))
    return [PageSection("Devices", _sentences(run), panels)]


def device_tiles(run: RunData) -> list[Tile]:
    """Virtual time, versions, staleness and utilisation; empty off the virtual clock."""
    if run.versions.is_empty():
        return []
    row, config = run.versions.row(-1, named=True), run.config
    leaf_versions = _cell(row, "leaf_versions") if _has_cloud(run) else None
    cloud_staleness = _cell(row, "cloud_staleness") if _has_cloud(run) else None
    return [
        Tile("Virtual time", seconds_text(row["virtual_s"]), quantity(len(run.versions), "evaluation")),
        Tile(
            "Versions",
            str(row["version"]),
            f"of the server, from {quantity(row['updates'], 'update')}"
            if leaf_versions is None
            else f"of the cloud; {leaf_versions} of leaves, from {quantity(row['updates'], 'update')}",
        ),
        Tile(
            "Staleness",
            _two_decimals(row["mean_staleness"]),
            "mean of what arrived"
            if cloud_staleness is None
            else f"mean at leaves; at the cloud {_two_decimals(cloud_staleness)}",
        ),
        Tile(
            "At work",
            percent(row["utilisation"], 1),
            f"of {quantity(config.get('asynchrony.concurrency', '?'), 'place')}; "
            f"{percent(row['wasted'], 1)} of it lost",
        ),
    ]


def _has_cloud(run: RunData) -> bool:
    """Whether there is a cloud above leaves."""
    return len(run.manifest.get("clients_per_leaf", ())) > 1


def _cell(row: Mapping[str, Any], column: str) -> Any:
    """A cell; None if the run's version did not write the column."""
    return row.get(column)


def _two_decimals(value: float | None) -> str:
    """A number with two decimals, as text."""
    return NOTHING if value is None else f"{value:.2f}"


def _sentences(run: RunData) -> list[str]:
    """Sentences on the virtual clock's result."""
    config, last = run.config, run.versions.row(-1, named=True)
    num_bytes = sum(last[column] for column in run.versions.columns if column.endswith("_bytes"))
    return [
        f"{config.get('asynchrony.rule')} on the virtual clock: {text_of(last['virtual_s'])} virtual s, "
        f"{quantity(config.get('asynchrony.concurrency', '?'), 'device')} at work at a time, "
        f"{quantity(last['updates'], 'update')} taken in of {quantity(last['jobs'], 'job')}, "
        f"{quantity(last['version'], 'version')}, {bytes_text(num_bytes)} moved.",
        f"Places were in use {percent(last['utilisation'], 1)} of the time, {percent(last['wasted'], 1)} of "
        f"which was lost. Mean staleness {_two_decimals(last['mean_staleness'])}. Gini coefficient of the "
        f"devices' updates {_two_decimals(last['gini'])}.",
        *_cloud_sentence(run, last),
        *_limits(run),
    ]


def _cloud_sentence(run: RunData, last: Mapping[str, Any]) -> list[str]:
    """Sentence on the tier above the leaves; empty without one."""
    if not _has_cloud(run) or _cell(last, "leaf_versions") is None:
        return []
    return [
        f"Leaves made {quantity(last['leaf_versions'], 'version')}, and the cloud {last['version']} of "
        f"what they sent by {run.config.get('asynchrony.cloud-rule')}; mean staleness there "
        f"{_two_decimals(_cell(last, 'cloud_staleness'))}."
    ]


def _limits(run: RunData) -> list[str]:
    """Sentence on the bottleneck of the run's real time; empty if not recorded."""
    limits = run.manifest.get("limits")
    if not limits:
        return []
    return [
        f"Limited by {limits['by']}: the loop waited {percent(limits['waited'], 1)} of its real time for "
        f"{quantity(limits['workers'], 'worker')}."
    ]


def score_panel(run: RunData) -> Panel:
    """The score over virtual time."""
    rows = run.versions
    figure, axes = new_figure()
    _draw_score(run, axes, rows["virtual_s"])
    axes.set_xlabel("virtual s")
    legend_below(figure, axes)
    numbers = frame_table(
        rows, virtual_s="virtual s", version="version", updates="updates", **_scores(run),
        uplink_bytes="bytes up", downlink_bytes="bytes down", mean_staleness="mean staleness",
    )  # fmt: skip
    return Panel(
        f"{_score_title(run)} over virtual time",
        numbers,
        figure,
        "The model that the server has at that moment.",
    )


def _scores(run: RunData) -> dict[str, str]:
    """Columns of the score, with their headings."""
    return {f"seen_{run.score.name}": "seen users", f"unseen_{run.score.name}": "unseen users"}


def _score_title(run: RunData) -> str:
    """Name of the score with its first letter capitalised, for a title."""
    return run.score.label[:1].upper() + run.score.label[1:]


def _draw_score(run: RunData, axes: Axes, costs: pl.Series) -> None:
    """Draw the score on seen and unseen users over a cost."""
    rows = run.versions
    for index, (users, label) in enumerate((("seen", "seen users"), ("unseen", "unseen"))):
        column = f"{users}_{run.score.name}"
        if rows[column].null_count() < len(rows):
            axes.plot(costs, rows[column], color=colour(index), marker=".", label=label)
    axes.set_ylabel(f"mean test {run.score.label}")


def bytes_panel(run: RunData) -> Panel:
    """The score over the bytes of all models sent."""
    rows = run.versions
    total_bytes = rows.select(
        pl.sum_horizontal(column for column in rows.columns if column.endswith("_bytes"))
    )
    megabytes = total_bytes.to_series() / 1e6
    figure, axes = new_figure()
    _draw_score(run, axes, megabytes)
    axes.set_xlabel("megabytes moved, both tiers")
    legend_below(figure, axes)
    numbers = frame_table(
        rows.with_columns(megabytes.alias("megabytes")), megabytes="megabytes", **_scores(run)
    )  # fmt: skip
    return Panel(f"{_score_title(run)} over bytes", numbers, figure, "What comes sooner may cost more.")


def versions_panel(run: RunData) -> Panel:
    """Number of models made by servers over virtual time."""
    rows = run.versions
    figure, axes = new_figure()
    axes.plot(
        rows["virtual_s"],
        rows["version"],
        color=colour(0),
        marker=_single_marker(rows),
        label="cloud" if _has_cloud(run) else "server",
    )
    headers = {"virtual_s": "virtual s", "version": "versions", "updates": "updates", "at_work": "at work"}
    if _has_cloud(run) and rows["leaf_versions"].null_count() < len(rows):
        axes.plot(
            rows["virtual_s"],
            rows["leaf_versions"],
            color=colour(1),
            linestyle="dashed",
            marker=_single_marker(rows),
            label="leaves, together",
        )
        headers["leaf_versions"] = "of leaves"
    axes.set_xlabel("virtual s")
    axes.set_ylabel("versions so far")
    axes.set_ylim(bottom=0)
    legend_below(figure, axes)
    return Panel(
        "Versions over virtual time",
        frame_table(rows, **headers),
        figure,
        "A version is a model that a server made.",
    )


def stale_over_time_panel(run: RunData) -> Panel:
    """Mean staleness of all arrivals so far over virtual time."""
    rows = run.versions
    figure, axes = new_figure()
    headers = {"virtual_s": "virtual s", "mean_staleness": "mean staleness"}
    lines = [("mean_staleness", "at leaves" if _has_cloud(run) else "at the server")]
    if _has_cloud(run) and rows["cloud_staleness"].null_count() < len(rows):
        lines.append(("cloud_staleness", "at the cloud"))
        headers["cloud_staleness"] = "at the cloud"
    for index, (column, label) in enumerate(lines):
        measured = rows.drop_nulls(column)
        axes.plot(
            measured["virtual_s"],
            measured[column],
            color=colour(index),
            linestyle=("solid", "dashed")[index],
            marker=_single_marker(measured),
            label=label,
        )
    axes.set_xlabel("virtual s")
    axes.set_ylabel("mean staleness so far")
    axes.set_ylim(bottom=0)
    legend_below(figure, axes)
    caption = "Versions made between the start and the arrival of each update."
    return Panel("Staleness over virtual time", frame_table(rows, **headers), figure, caption)


def _single_marker(rows: pl.DataFrame) -> str | None:
    """Marker for a single row, which a line would not show."""
    return "o" if len(rows) == 1 else None


def updates_panel(run: RunData) -> Panel:
    """The score over the updates aggregated by servers."""
    rows = run.versions
    figure, axes = new_figure()
    _draw_score(run, axes, rows["updates"])
    axes.set_xlabel("updates taken in")
    legend_below(figure, axes)
    numbers = frame_table(rows, updates="updates", jobs="jobs", **_scores(run))
    return Panel(
        f"{_score_title(run)} over updates",
        numbers,
        figure,
        "An update is a device's job that arrived and was used.",
    )


def timeline_panel(run: RunData) -> Panel:
    """Work of a few devices over time, with outcomes."""
    devices = run.jobs["device"].unique(maintain_order=False).sort().to_list()[:_ROWS]
    figure, axes = new_figure(1.2 + 0.22 * len(devices))
    for index, outcome in enumerate(_OUTCOMES):
        jobs = run.jobs.filter((pl.col("outcome") == outcome) & pl.col("device").is_in(devices))
        for row, device in enumerate(devices):
            spans = jobs.filter(pl.col("device") == device).select("began_s", "ended_s").rows()
            if spans:
                label = outcome if outcome not in axes.get_legend_handles_labels()[1] else None
                bars = [(began, ended - began) for began, ended in spans]
                axes.broken_barh(bars, (row - 0.4, 0.8), color=colour(index), alpha=0.8, label=label)
    axes.set_yticks(range(len(devices)), [str(device) for device in devices])
    axes.set_ylabel("device")
    axes.set_xlabel("virtual s")
    legend_below(figure, axes)
    rows = (
        run.jobs.filter(pl.col("device").is_in(devices))
        .group_by("device")
        .agg(pl.len().alias("jobs"), (pl.col("outcome") == "updates").sum().alias("updates"),
             (pl.col("ended_s") - pl.col("began_s")).mean().alias("mean_s"))
        .sort("device")
    )  # fmt: skip
    numbers = frame_table(rows, device="device", jobs="jobs", updates="updates", mean_s="mean virtual s")
    caption = "A bar per job that has ended, of a few devices (devices/jobs.csv)."
    return Panel("When devices were at work", numbers, figure, caption)


def staleness_panel(run: RunData) -> Panel:
    """Histogram of the arrivals' staleness."""
    rows = run.staleness
    figure, axes = new_figure()
    axes.bar(rows["staleness"], rows["arrivals"], color=colour(0), width=0.9)
    integer_ticks(axes)
    axes.set_xlabel("versions made between start and arrival")
    axes.set_ylabel("arrivals")
    numbers = frame_table(rows, staleness="staleness", arrivals="arrivals")
    caption = "A version is a model that the server made; docs/devices.md gives the expected mean."
    return Panel("Staleness", numbers, figure, caption)


def outcomes_panel(run: RunData) -> Panel:
    """Outcomes of all jobs, and how unevenly devices contributed."""
    devices = run.devices
    counts = {name: int(devices[name].sum()) for name in _OUTCOMES}
    rows = [(name, count, percent(count, max(1, sum(counts.values())))) for name, count in counts.items()]
    return Panel(
        "Jobs, and who contributed", table(("outcome", "jobs", "share"), rows), _lorenz(devices),
        "Devices in ascending order of their updates: on the diagonal all contribute alike.",
    )  # fmt: skip


def _lorenz(devices: pl.DataFrame) -> Figure:
    """Lorenz curve of the devices' updates."""
    updates = np.sort(devices["updates"].to_numpy())
    share = np.concatenate([[0.0], np.cumsum(updates) / max(1, updates.sum())])
    figure, axes = new_figure()
    x = np.linspace(0, 1, len(share))
    axes.plot(x, share, color=colour(0))
    axes.plot([0, 1], [0, 1], color=colour(1), linewidth=0.8)
    axes.set_xlabel("share of devices")
    axes.set_ylabel("share of updates")
    return figure
