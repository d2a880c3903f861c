"""Page of a memory profile, and page comparing two."""

from collections.abc import Iterator
from pathlib import Path

from fedge.console.palette import colour, dashes
from fedge.profile.allocators import Capture
from fedge.profile.result import (
    Growth,
    Profile,
    allocator_changes,
    flame_file,
    largest_captures,
    resident_changes,
)
from fedge.profile.watch import ROLES
from fedge.report.html.page import Page, PageSection, Panel, Tile, write_page
from fedge.report.html.svg import figure_style, legend_below, new_figure
from fedge.report.html.tables import NOTHING, seconds_text, table
from fedge.report.listing import aligned
from hhar.quantity import quantity

_ON_TERMINAL = 8
_RESIDENT = (
    "RSS counts pages that processes share (libraries, mapped windows) in each of them; USS only those "
    "that a process has to itself. Sampled five times a second from outside, without memray."
)
_ALLOCATED = (
    "From the same run under memray, at the moment at which the process held most: what was asked for since "
    "Fedge was loaded, whether it was ever touched or not. Heap is malloc and the like; mapped is mmap. "
    "Memory that loading a module took is named by the package that imported it."
)


def write_profile_page(profile: Profile, path: Path) -> None:
    """Write the page of a profile.

    Raises:
        OSError: the file cannot be written.
    """
    with figure_style():
        write_page(profile_page(profile), path)


def profile_page(profile: Profile) -> Page:
    """The page; to be created and rendered within `figure_style`."""
    facts = profile.facts
    changed = ", ".join(f"{key}={value}" for key, value in facts["changed"].items())
    return Page(
        title=f"Memory: {profile.name}",
        lead=[
            f"{quantity(facts['rounds'], 'global round')} with {quantity(facts['clients'], 'client')} on the "
            f"engine {facts['engine']}; changed from the defaults: {changed or 'nothing'}.",
            f"The run took {seconds_text(facts['seconds'])}, under memray "
            f"{seconds_text(facts['seconds_captured'])}.",
        ],
        tiles=_tiles(profile),
        sections=[
            _resident_section(profile),
            *map(_capture_section, largest_captures(profile.captures)),
            _versions_section(profile),
        ],
        footer=f"Made at {facts['when']} by `fedge profile`.",
    )


def _tiles(profile: Profile) -> list[Tile]:
    """Peaks to read first."""
    return [
        Tile(
            f"{role}, peak RSS", f"{peak['rss_mib']:,.0f} MiB", f"{peak['uss_mib']:,.0f} MiB of its own (USS)"
        )
        for role, peak in profile.peaks.items()
        if role != "launcher"
    ]


def _resident_section(profile: Profile) -> PageSection:
    """Resident memory over time, by role."""
    return PageSection("Resident memory", [_RESIDENT], [_resident_panel(profile)])


def _resident_panel(profile: Profile) -> Panel:
    """RSS and USS of every role over time."""
    figure, axes = new_figure()
    for index, role in enumerate(role for role in ROLES if role in profile.peaks):
        own = [sample for sample in profile.samples if sample.role == role]
        seconds = [sample.seconds for sample in own]
        axes.plot(seconds, [s.rss_mib for s in own], color=colour(index), label=f"{role}, RSS")
        axes.plot(
            seconds, [s.uss_mib for s in own], color=colour(index), linestyle=dashes(1), label=f"{role}, USS"
        )
    axes.set_xlabel("seconds")
    axes.set_ylabel("MiB")
    axes.set_ylim(bottom=0)
    legend_below(figure, axes, columns=2)
    headers = ("role", "processes", "peak RSS, MiB", "of the largest", "peak USS, MiB")
    rows = [
        (role, int(p["processes"]), p["rss_mib"], p["largest_rss_mib"], p["uss_mib"])
        for role, p in profile.peaks.items()
    ]
    caption = "Summed over the processes of a role; each peak at its own moment."
    return Panel("By role", table(headers, rows), figure, caption, is_open=True)


def _capture_section(capture: Capture) -> PageSection:
    """Section on one process's memory, with the name of its flame graph."""
    title = "Server" if capture.role == "server" else "Largest worker"
    text = [
        f"Process {capture.pid} held {capture.heap_mib:,.0f} MiB of heap and {capture.mapped_mib:,.0f} MiB "
        f"mapped. {_ALLOCATED}"
    ]
    if capture.client_mib:
        text.append(f"Clients' threads of this process asked for {capture.client_mib:,.0f} MiB of it.")
    if capture.store_mib:
        text.append(
            f"Not counted: {capture.store_mib:,.0f} MiB that Ray set aside for its object store, of which "
            f"hardly a page is ever touched."
        )
    panel = Panel(
        "Largest allocators",
        table(("what", "from", "heap, MiB", "mapped, MiB", "allocations"), _allocator_rows(capture)),
        is_open=True,
        is_wide=True,
    )
    link = (f"Flame graph of the {capture.role}", flame_file(capture))
    return PageSection(title, text, [panel], links=[link])


def _allocator_rows(capture: Capture) -> Iterator[tuple[object, ...]]:
    """Yield the table of a capture."""
    for top in capture.top:
        place = f"{top.via} (client)" if top.by_client and capture.client_mib else top.via
        yield top.what, place.strip() or NOTHING, top.heap_mib, top.mapped_mib, top.count


def _versions_section(profile: Profile) -> PageSection:
    """Versions."""
    rows = [(name, str(version)) for name, version in profile.facts["versions"].items()]
    return PageSection("Versions", (), [Panel("Versions", table(("what", "version"), rows))])


def profile_lines(profile: Profile) -> Iterator[str]:
    """Yield the largest numbers as aligned text."""
    header = ("role", "processes", "peak RSS MiB", "peak USS MiB")
    rows = [
        (role, f"{p['processes']:.0f}", f"{p['rss_mib']:.0f}", f"{p['uss_mib']:.0f}")
        for role, p in profile.peaks.items()
    ]
    yield from aligned([header, *rows])
    for capture in largest_captures(profile.captures):
        yield ""
        yield f"{capture.role}: {capture.heap_mib:.0f} MiB heap, {capture.mapped_mib:.0f} MiB mapped"
        yield from aligned(
            [
                (f"  {top.mib:7.1f} MiB", f"{top.what}{', from ' if top.via else ''}{top.via}")
                for top in capture.top[:_ON_TERMINAL]
            ]
        )


# --- two profiles -------------------------------------------------------------------------------------


def write_comparison_page(before: Profile, after: Profile, path: Path) -> None:
    """Write the page comparing two profiles.

    Raises:
        OSError: the file cannot be written.
    """
    with figure_style():
        write_page(comparison_page(before, after), path)


def comparison_page(before: Profile, after: Profile) -> Page:
    """The page of two profiles."""
    engines = {profile.facts["engine"] for profile in (before, after)}
    differing = [
        f"{key}: {before.facts.get(key)} before, {after.facts.get(key)} after"
        for key in ("engine", "rounds", "clients", "changed")
        if before.facts.get(key) != after.facts.get(key)
    ]
    headers = ("", "before, MiB", "after, MiB", "change, MiB", "change")
    resident = table(headers, map(_change_row, resident_changes(before, after)))
    allocated = table(headers, map(_change_row, allocator_changes(before, after)))
    return Page(
        title=f"Memory: {before.name} and {after.name}",
        lead=[f"Before: {before.name}, {before.facts['when']}. After: {after.name}, {after.facts['when']}."]
        + [f"The runs differ in {'; '.join(differing)}." for _ in range(bool(differing))],
        sections=[
            PageSection(
                "Resident memory", [_RESIDENT], [Panel("Peaks", resident, is_open=True, is_wide=True)]
            ),
            PageSection(
                "Allocators",
                [_ALLOCATED, "Of the server and the largest worker."],
                [Panel("Largest changes first", allocated, is_open=True, is_wide=True)],
            ),
        ],
        footer=f"Engine: {' and '.join(sorted(engines))}. Made by `fedge profile --compare`.",
    )


def _change_row(change: Growth) -> tuple[object, ...]:
    """The cells of a change."""
    difference = None if change.before is None or change.after is None else change.after - change.before
    return change.name, change.before, change.after, difference, percent_text(change)


def percent_text(change: Growth) -> str:
    """Change as text, e.g. "+3.2 %", "new" or "gone"."""
    if change.percent is None:
        return "new" if change.before is None else "gone" if change.after is None else NOTHING
    return f"{change.percent:+.1f} %".replace("-", "−")


def change_lines(before: Profile, after: Profile) -> Iterator[str]:
    """Yield resident memory before and after as aligned text."""
    rows = [
        (c.name, _format_mib(c.before), _format_mib(c.after), percent_text(c))
        for c in resident_changes(before, after)
    ]
    yield from aligned([("peak", "before MiB", "after MiB", "change"), *rows])


def _format_mib(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.0f}"
