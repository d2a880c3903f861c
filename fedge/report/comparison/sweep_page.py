"""Page of a sweep: its first axis compared for every combination of the others.

Uses the sections of `fedge.report.comparison.page`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from fedge.report.comparison.curves import curves_section
from fedge.report.comparison.finals import Final, estimate_text, is_shown
from fedge.report.comparison.groups import Group, differing_settings
from fedge.report.comparison.page import (
    comparison_notices,
    final_section,
    settings_section,
    settings_table,
)
from fedge.report.html.page import Notice, Page, PageSection, Panel
from fedge.report.html.tables import NOTHING, table
from hhar.quantity import quantity


@dataclass(frozen=True)
class Comparison:
    """Groups of one combination of the axes other than the first.

    Attributes:
        title: names of its entries; empty for a sweep with one axis.
        point: axis → entry, by name.
        groups: groups in the order of the file; the first is the reference.
        rows: their final numbers.
    """

    title: str
    point: Mapping[str, str]
    groups: Sequence[Group]
    rows: Sequence[Final]


def sweep_page(
    name: str,
    lead: Sequence[str],
    missing: Sequence[str],
    comparisons: Sequence[Comparison],
    command: str = "fedge sweep",
) -> Page:
    """The page; to be created and rendered within `figure_style`.

    Args:
        name: name of the sweep.
        lead: introduction, one string per paragraph.
        missing: runs of the file without results, one line each.
        comparisons: at least one.
        command: command to write the page.
    """
    sections = [overview_section(comparisons)] if len(comparisons) > 1 else []
    for comparison in comparisons:
        sections += [
            _with_title(final_section(comparison.groups, comparison.rows), comparison.title),
            _with_title(curves_section(comparison.groups), comparison.title),
        ]
    return Page(
        title=f"Sweep: {name}",
        lead=lead,
        notices=_notices(missing, comparisons),
        sections=[*sections, *_settings_sections(comparisons)],
        footer=f"Made at {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC by {command}.",
    )


def _with_title(section: PageSection, title: str) -> PageSection:
    """Section of one comparison under its title."""
    return replace(section, title=f"{title}: {section.title.lower()}") if title else section


def _notices(missing: Sequence[str], comparisons: Sequence[Comparison]) -> list[Notice]:
    """Notices to read before the numbers, without repetitions."""
    lines = [Notice("error", f"Missing: {line}.") for line in missing]
    lines += [notice for comparison in comparisons for notice in comparison_notices(comparison.groups, [])]
    return list(dict.fromkeys(lines))


def overview_section(comparisons: Sequence[Comparison]) -> PageSection:
    """One table per metric: groups in rows, combinations in columns."""
    labels = list(dict.fromkeys(group.label for comparison in comparisons for group in comparison.groups))
    headers = ("", *(comparison.title for comparison in comparisons))
    panels = []
    metrics = dict.fromkeys(
        row.metric for comparison in comparisons for row in comparison.rows if is_shown(row)
    )
    for number, metric in enumerate(metrics):
        cells = {
            (comparison.title, row.group): estimate_text(row.over_seeds)
            for comparison in comparisons
            for row in comparison.rows
            if row.metric == metric
        }
        rows = [(label, *(cells.get((title, label), NOTHING) for title in headers[1:])) for label in labels]
        panels.append(Panel(metric.capitalize(), table(headers, rows), is_open=number == 0, is_wide=True))
    text = ["Mean ± sample standard deviation over seeds, after the last round. Differences are below."]
    return PageSection("Overview", text, panels)


def _settings_sections(comparisons: Sequence[Comparison]) -> list[PageSection]:
    """Options in which the compared groups differ, and options of the combinations."""
    sections = [settings_section(comparisons[0].groups)]
    if len(comparisons) > 1:
        differing = differing_settings([comparison.groups[0] for comparison in comparisons])
        text = [
            f"{quantity(len(differing), 'setting')} of {comparisons[0].groups[0].label} over the "
            "combinations."
        ]
        panel = settings_table([comparison.title for comparison in comparisons], differing)
        sections.append(PageSection("Combinations", text, [panel]))
    return sections
