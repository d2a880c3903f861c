"""The section on devices of a run on the virtual clock: how good by when, who did what, how stale it was."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedge.console.palette import colour
from fedge.records.reader import RunData
from fedge.report.html.page import Panel, Section
from fedge.report.html.svg import legend_below, new_figure
from fedge.report.html.tables import bytes_text, frame_table, percent, table, text_of

_OUTCOMES = ("updates", "dropped", "away", "late", "stale", "failed")
_ROWS = 12  # devices that are drawn


def device_sections(run: RunData) -> list[Section]:
    """Return the section on devices; none of a run that is not on the virtual clock."""
    if run.versions.is_empty():
        return []
    panels = [accuracy_panel(run), bytes_panel(run), updates_panel(run)]
    if not run.jobs.is_empty():
        panels.append(timeline_panel(run))
    if not run.staleness.is_empty():
        panels.append(staleness_panel(run))
    if not run.devices.is_empty():
        panels.append(outcomes_panel(run))
    return [Section("Devices", _sentences(run), panels)]


def _sentences(run: RunData) -> list[str]:
    """Say what the virtual clock came to."""
    config, last = run.config, run.versions.row(-1, named=True)
    moved = sum(last[column] for column in run.versions.columns if column.endswith("_bytes"))
    stale = None if last["mean_staleness"] is None else round(last["mean_staleness"], 2)
    return [
        f"{config.get('asynchrony.rule')} on the virtual clock: {text_of(last['virtual_s'])} virtual s, "
        f"{config.get('asynchrony.concurrency')} devices at work at a time, {last['updates']} updates taken "
        f"in of {last['jobs']} jobs, {last['version']} versions, {bytes_text(moved)} moved.",
        f"Places were in use {percent(last['utilisation'], 1)} of the time, {percent(last['wasted'], 1)} of "
        f"which was lost. Mean staleness {text_of(stale)}. Gini coefficient of the devices' updates "
        f"{text_of(round(last['gini'], 2))}.",
        *_limits(run),
    ]


def _limits(run: RunData) -> list[str]:
    """Say what limited the run, where it says so."""
    found = run.manifest.get("limits")
    if not found:
        return []
    return [
        f"Limited by {found['by']}: the loop waited {percent(found['waited'], 1)} of its real time for "
        f"{found['workers']} worker{'s' * (found['workers'] != 1)}."
    ]


def accuracy_panel(run: RunData) -> Panel:
    """Return accuracy over virtual time."""
    rows = run.versions
    figure, axes = new_figure()
    _draw_accuracy(axes, rows, rows["virtual_s"])
    axes.set_xlabel("virtual s")
    legend_below(figure, axes)
    told = frame_table(
        rows, virtual_s="virtual s", version="version", updates="updates", seen_accuracy="seen users",
        unseen_accuracy="unseen users", uplink_bytes="bytes up", downlink_bytes="bytes down",
        mean_staleness="mean staleness",
    )  # fmt: skip
    return Panel("Accuracy over virtual time", told, figure, "The model that the server has at that moment.")


def _draw_accuracy(axes: Axes, rows: pl.DataFrame, costs: pl.Series) -> None:
    """Draw accuracy on seen and unseen users over what it has cost."""
    for index, (column, label) in enumerate((("seen_accuracy", "seen users"), ("unseen_accuracy", "unseen"))):
        if rows[column].null_count() < len(rows):
            axes.plot(costs, rows[column], color=colour(index), marker=".", label=label)
    axes.set_ylabel("mean test accuracy")


def bytes_panel(run: RunData) -> Panel:
    """Return accuracy over the bytes of all models that were sent: soon is not cheap."""
    rows = run.versions
    moved = rows.select(pl.sum_horizontal(column for column in rows.columns if column.endswith("_bytes")))
    megabytes = moved.to_series() / 1e6
    figure, axes = new_figure()
    _draw_accuracy(axes, rows, megabytes)
    axes.set_xlabel("megabytes moved, both tiers")
    legend_below(figure, axes)
    told = frame_table(
        rows.with_columns(megabytes.alias("megabytes")), megabytes="megabytes", seen_accuracy="seen users",
        unseen_accuracy="unseen users",
    )  # fmt: skip
    return Panel("Accuracy over bytes", told, figure, "What comes sooner may cost more.")


def updates_panel(run: RunData) -> Panel:
    """Return accuracy over the updates that servers took in."""
    rows = run.versions
    figure, axes = new_figure()
    _draw_accuracy(axes, rows, rows["updates"])
    axes.set_xlabel("updates taken in")
    legend_below(figure, axes)
    told = frame_table(
        rows, updates="updates", jobs="jobs", seen_accuracy="seen users", unseen_accuracy="unseen users"
    )
    return Panel(
        "Accuracy over updates", told, figure, "An update is a device's job that arrived and counted."
    )


def timeline_panel(run: RunData) -> Panel:
    """Return when a few devices were at work, and what became of it."""
    devices = run.jobs["device"].unique(maintain_order=False).sort().to_list()[:_ROWS]
    figure, axes = new_figure(1.2 + 0.22 * len(devices))
    for index, outcome in enumerate(_OUTCOMES):
        mine = run.jobs.filter((pl.col("outcome") == outcome) & pl.col("device").is_in(devices))
        for row, device in enumerate(devices):
            spans = mine.filter(pl.col("device") == device).select("began_s", "ended_s").rows()
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
    told = frame_table(rows, device="device", jobs="jobs", updates="updates", mean_s="mean virtual s")
    caption = "A bar per job that has ended, of a few devices (devices/jobs.csv)."
    return Panel("When devices were at work", told, figure, caption)


def staleness_panel(run: RunData) -> Panel:
    """Return how many arrivals had which staleness."""
    rows = run.staleness
    figure, axes = new_figure()
    axes.bar(rows["staleness"], rows["arrivals"], color=colour(0), width=0.9)
    axes.set_xlabel("versions made between start and arrival")
    axes.set_ylabel("arrivals")
    told = frame_table(rows, staleness="staleness", arrivals="arrivals")
    caption = "A version is a model that the server made; docs/devices.md says what mean to expect."
    return Panel("Staleness", told, figure, caption)


def outcomes_panel(run: RunData) -> Panel:
    """Return what became of all jobs, and how unevenly devices contributed."""
    devices = run.devices
    counts = {name: int(devices[name].sum()) for name in _OUTCOMES}
    rows = [(name, count, percent(count, max(1, sum(counts.values())))) for name, count in counts.items()]
    return Panel(
        "Jobs, and who contributed", table(("outcome", "jobs", "share"), rows), _lorenz(devices),
        "Devices in ascending order of their updates: on the diagonal all contribute alike.",
    )  # fmt: skip


def _lorenz(devices: pl.DataFrame) -> Figure:
    """Return the Lorenz curve of the devices' updates."""
    updates = np.sort(devices["updates"].to_numpy())
    share = np.concatenate([[0.0], np.cumsum(updates) / max(1, updates.sum())])
    figure, axes = new_figure()
    places = np.linspace(0, 1, len(share))
    axes.plot(places, share, color=colour(0))
    axes.plot([0, 1], [0, 1], color=colour(1), linewidth=0.8)
    axes.set_xlabel("share of devices")
    axes.set_ylabel("share of updates")
    return figure
