"""Page of `fedge clock`: versions, staleness and utilisation of devices over virtual time."""

from collections.abc import Sequence
from pathlib import Path

from fedge.console.palette import colour, dashes
from fedge.report.html.page import Page, PageSection, Panel, Tile, write_page
from fedge.report.html.svg import figure_style, legend_below, new_figure
from fedge.report.html.tables import bytes_text, percent, seconds_text, table
from fedge.rounds.measurements.moment import VersionRow
from hhar.quantity import quantity

COLUMNS = (
    "virtual s",
    "versions",
    "updates",
    "cut short",
    "jobs",
    "staleness",
    "at work",
    "places used",
    "lost",
    "Gini",
    "MB",
)


def cells(row: VersionRow) -> tuple[object, ...]:
    """Numbers of one moment, in the order of `COLUMNS`."""
    num_bytes = row.up + row.down + row.cloud_up + row.cloud_down
    return (
        row.virtual_s, row.version, row.updates, row.partial, row.jobs, row.mean_staleness, row.at_work,
        row.utilisation, row.wasted, row.gini, num_bytes / 1e6,
    )  # fmt: skip


def write_clock_page(rows: Sequence[VersionRow], lead: Sequence[str], path: Path) -> None:
    """Write the page of a run without training, from at least one row.

    Raises:
        OSError: the file cannot be written.
    """
    with figure_style():
        write_page(clock_page(rows, lead), path)


def clock_page(rows: Sequence[VersionRow], lead: Sequence[str]) -> Page:
    """The page; to be created and rendered within `figure_style`."""
    last = rows[-1]
    has_cloud = last.cloud_up > 0
    staleness_text = "–" if last.mean_staleness is None else f"{last.mean_staleness:.2f}"
    versions = [("cloud" if has_cloud else "server", [row.version for row in rows])]
    staleness = [("at leaves" if has_cloud else "at the server", [row.mean_staleness for row in rows])]
    if has_cloud:
        versions.append(("leaves, together", [row.leaf_versions for row in rows]))
        staleness.append(("at the cloud", [row.cloud_staleness for row in rows]))
    panels = [
        _curves(rows, "Versions", "versions so far", versions),
        _curves(rows, "Staleness", "mean so far", staleness),
        _curves(rows, "At work", "share", [
            ("places used", [row.utilisation for row in rows]), ("of it lost", [row.wasted for row in rows]),
        ]),
        _curves(rows, "Gini coefficient of updates", "Gini", [("devices", [row.gini for row in rows])]),
        Panel("All numbers", table(COLUMNS, map(cells, rows)), is_wide=True),
    ]  # fmt: skip
    return Page(
        title="Virtual clock, without training",
        lead=lead,
        tiles=[
            Tile("Virtual time", seconds_text(last.virtual_s), quantity(len(rows), "evaluation")),
            Tile(
                "Versions",
                str(last.version),
                f"from {quantity(last.updates, 'update')} of {quantity(last.jobs, 'job')}",
            ),
            Tile("Staleness", staleness_text, "mean of what arrived"),
            Tile("At work", percent(last.utilisation, 1), f"of {quantity(last.places, 'place')}"),
            Tile("Traffic", bytes_text(last.up + last.down + last.cloud_up + last.cloud_down), "all tiers"),
        ],
        sections=[PageSection("Over virtual time", panels=panels)],
        footer="Made by fedge clock: times, bytes and staleness are those of a run; no model was trained.",
    )


def _curves(
    rows: Sequence[VersionRow], title: str, label: str, lines: Sequence[tuple[str, Sequence[float | None]]]
) -> Panel:
    """Panel of lines over virtual time; None values are not drawn."""
    figure, axes = new_figure()
    times = [row.virtual_s for row in rows]
    for index, (name, values) in enumerate(lines):
        points = [(x, y) for x, y in zip(times, values, strict=True) if y is not None]
        axes.plot(
            [x for x, _ in points], [y for _, y in points], color=colour(index), linestyle=dashes(index),
            label=name, marker="o" if len(points) == 1 else None,
        )  # fmt: skip
    axes.set_xlabel("virtual s")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    legend_below(figure, axes)
    numbers = table(
        ("virtual s", *(name for name, _ in lines)), zip(times, *(v for _, v in lines), strict=True)
    )
    return Panel(title, numbers, figure)
