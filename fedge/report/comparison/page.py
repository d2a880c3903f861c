"""Page of a comparison: curves, final numbers over seeds, differences of the groups."""

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from fedge.config.registers.parts import names_in
from fedge.console.palette import colour
from fedge.records.outputs import damaged_tables
from fedge.records.reading.reader import RunData
from fedge.report.comparison.curves import curves_section
from fedge.report.comparison.finals import Final, choice, estimate_text, finals, interval_text
from fedge.report.comparison.formats import FORMATS, headlines, value_text
from fedge.report.comparison.groups import (
    Group,
    differing_settings,
    group_runs,
    is_ended_early,
    is_on_clock,
    mixed_settings,
    reached_end,
    seed_of_run,
    with_same_score,
)
from fedge.report.comparison.statistics import estimate
from fedge.report.comparison.yardsticks import SMALLEST_GAP, is_fine_tuned, yardstick_role
from fedge.report.damaged_tables import intact_tables
from fedge.report.html.page import Notice, Page, PageSection, Panel, write_page
from fedge.report.html.points import Points, Series
from fedge.report.html.svg import figure_style, new_figure
from fedge.report.html.tables import numbered, table, text_of
from fedge.tasks.task import Score
from hhar.quantity import quantity

_STATISTICS = (
    "Mean ± sample standard deviation over seeds, after the last round. Intervals are 95 % t-intervals over "
    "seeds, never over leaves or clients, whose results depend on each other. A difference is paired: the "
    "same seed in both groups. Intervals are not adjusted for their number: of many, one in twenty misses "
    "by chance. No interval extends beyond the range of its measure"
)
_MOST_IN_TITLE = 4  # largest number of groups
_MOST_OPEN_ROWS = 60
_LABEL_WIDTH = 58  # characters per line within a figure


def write_comparison(runs: Sequence[RunData], path: Path, target: float | None = None) -> list[Final]:
    """Write the comparison of `runs` to `path`; returns the final numbers.

    `target` is the score up to which costs are counted; see `fedge.report.comparison.finals.finals`.

    Raises:
        OSError: the file cannot be written.
        RunFolderError: tables of a run are damaged.
    """
    with intact_tables(runs), figure_style():
        groups, left_out = group_runs(runs)
        rows = finals(groups, target)
        write_page(compare_page(groups, left_out, rows), path)
    return rows


def compare_page(groups: Sequence[Group], left_out: Sequence[str], rows: Sequence[Final]) -> Page:
    """The page; to be created and rendered within `figure_style`."""
    count = sum(len(group.runs) for group in groups)
    names = ", ".join(f"{g.label} ({numbered('seed', [seed_of_run(r) for r in g.runs])})" for g in groups)
    return Page(
        title="Comparison: "
        + (
            " · ".join(group.label for group in groups)
            if len(groups) <= _MOST_IN_TITLE
            else f"{len(groups)} groups"
        ),
        lead=[
            f"{quantity(count, 'run')} in {quantity(len(groups), 'group')}, within which only seeds differ: "
            f"{names}."
        ],
        notices=comparison_notices(groups, left_out),
        sections=[final_section(groups, rows), curves_section(groups), settings_section(groups)],
        footer=f"Made at {datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC by fedge compare.",
    )


def problems_of(run: RunData) -> list[str]:
    """A line for each of a run's tables that is damaged, or partly left out."""
    return [*damaged_tables(run.folder, run.manifest), *run.problems]


def _describe_early_end(run: RunData) -> str:
    """Name of a run ended early, with its last round and the cause."""
    planned = quantity(run.config.get("num-server-rounds", "?"), "round")
    return f"{run.name} ({run.manifest['stopped']['by']} after {run.rounds['global_round'][-1]} of {planned})"


def _was_ended_by_callback(run: RunData) -> bool:
    """Whether a run ended early without reaching the limit of a virtual clock."""
    return run.manifest["stopped"]["by"] in names_in(str(run.config.get("callbacks", "")))


def group_differences(groups: Sequence[Group]) -> list[str]:
    """Differences between groups other than their methods, one line each with the numbers of every group."""
    differing = differing_settings(groups)
    return [
        f"The groups differ in their {meaning}: final numbers do not compare like with like"
        for key, meaning in (("data (sha256)", "data"), ("num-server-rounds", "number of rounds"))
        if key in differing
    ]


def comparison_notices(groups: Sequence[Group], left_out: Sequence[str]) -> list[Notice]:
    """Notices to read before the numbers."""
    runs = [run for group in groups for run in group.runs]
    notices = [Notice("warning", f"Left out: {text}.") for text in left_out]
    notices += [
        Notice("warning", f"{run.name} ({run.status}) has {len(run.rounds)} of "
               f"{quantity(run.config.get('num-server-rounds', '?'), 'round')}: in the curves, not in the "
               f"final numbers.")
        for run in runs if not reached_end(run)
    ]  # fmt: skip
    if early := [
        _describe_early_end(run) for run in runs if is_ended_early(run) and _was_ended_by_callback(run)
    ]:
        notices.append(
            Notice("note", f"Ended by a callback, so final numbers are of that round: {', '.join(early)}.")
        )
    notices += [
        Notice("warning", f"{run.name}: clients failed during the run.")
        for run in runs
        if run.status == "partial"
    ]
    notices += [Notice("warning", f"{run.name}: {problem}.") for run in runs for problem in problems_of(run)]
    if any(run.manifest.get("data", {}).get("synthetic") for run in runs):
        notices.append(Notice("warning", "Synthetic data: scores say nothing about people."))
    differently_scored = [group for group in groups if group not in with_same_score(groups)]
    notices += [
        Notice("warning", f"{group.label} is scored by {group.score.label}, not by "
               f"{groups[0].score.label}: it has none of these numbers.")
        for group in differently_scored
    ]  # fmt: skip
    notices += [
        Notice("warning", f"The runs of {group.label} are no repetitions: they differ in "
               f"{', '.join(names)}.")
        for group in groups if (names := mixed_settings(group))
    ]  # fmt: skip
    on_clock = [group for group in groups if is_on_clock(group)]
    notices += [
        Notice("warning", f"{group.label} is not on the virtual clock, so it has no virtual seconds; rounds "
               'have it with devices.time-rounds=true, or on that clock with asynchrony.rule="fedavg".')
        for group in groups if on_clock and group not in on_clock
    ]  # fmt: skip
    notices += [Notice("warning", f"{line}.") for line in group_differences(groups)]
    if len({json.dumps(run.manifest.get("versions", {}), sort_keys=True) for run in runs}) > 1:
        notices.append(Notice("note", "The runs were made with different versions of Fedge or its packages."))
    if any(len(group.finished) < 2 for group in groups):
        notices.append(
            Notice("note", "A group with one finished seed has no standard deviation and no interval.")
        )
    return notices


# --- final numbers ------------------------------------------------------------------------------------


def final_section(groups: Sequence[Group], rows: Sequence[Final]) -> PageSection:
    """The final numbers."""
    reference = groups[0].label
    text = [_STATISTICS + _bounds_text(groups[0].score)]
    if len(groups) > 1:
        text.append(f"A difference is a group minus the first, {reference}.")
    if (line := choice(rows, groups[0].score)) is not None:
        text.append(f"{line[0].upper()}{line[1:]}.")
    text += yardstick_sentences(groups)
    panels = [headline_panel(groups, rows), seeds_panel(groups), final_panel(rows, reference)]
    copies = [(f"As {words}, to copy", make(rows)) for words, make in FORMATS.values()]
    return PageSection("Final numbers", text, panels, copies=copies)


def _bounds_text(score: Score) -> str:
    """End of the sentence about intervals: the bounds of a score."""
    bounds = [bound for bound in (score.highest, score.lowest) if math.isfinite(bound)]
    best_first = bounds if score.higher_is_better else bounds[::-1]
    return f": {score.label} at {best_first[0]:g}." if bounds else "."


def headline_panel(groups: Sequence[Group], rows: Sequence[Final]) -> Panel:
    """The main numbers, one group per row, the best marked."""
    metrics = headlines(rows)
    row_of = {(row.group, row.metric): row for row in rows}
    cells, best = [], []
    for number, group in enumerate(groups):
        group_rows = [row_of[group.label, metric] for metric in metrics]
        cells.append(
            (
                group.label,
                max(row.over_seeds.n if row.over_seeds else 0 for row in group_rows),
                *(_non_breaking(value_text(row)) for row in group_rows),
            )
        )
        best += [(number, column + 2) for column, row in enumerate(group_rows) if row.is_best]
    caption = "Mean over seeds, and its 95 % interval if there is more than one."
    return Panel("At a glance", table(("group", "n", *metrics), cells, best), None, caption, True, True)


def yardstick_sentences(groups: Sequence[Group]) -> list[str]:
    """Sentences about the groups serving as yardsticks, and about their use."""
    roles = {group.label: role for group in groups if (role := yardstick_role(group))}
    if not roles:
        return []
    listing = ", ".join(f"{label} ({role})" for label, role in roles.items())
    score = groups[0].score
    is_bounded = math.isfinite(score.highest - score.lowest)
    smallest = f"{100 * SMALLEST_GAP:g} {'point' if score.unit == 'share' else 'percent'}"
    unit_suffix = "" if score.unit == "share" else " of its range" if is_bounded else " of the oracle's"
    text = (
        f"The other groups are compared with {listing}, seed by seed, where all clients have the same test "
        f"windows. Worse off: a {'lower' if score.higher_is_better else 'higher'} test {score.label}."
    )
    if {"global", "oracle"} <= set(roles.values()):
        text += (
            f" Recovered: 0 is the global model's {score.label}, 1 the oracle's; a seed in "
            f"which these are less than {smallest}{unit_suffix} apart has nothing to recover."
        )
    sentences = [text]
    if any(is_fine_tuned(group.runs[0]) for group in groups):
        sentences.append(
            "Fine-tuned runs measure only those fine-tuned alike. Worse off compares what is served; what is "
            f"recovered of seen users' {score.label}, the models before fine-tuning."
        )
    return sentences


def final_panel(rows: Sequence[Final], reference: str) -> Panel:
    """The table of final numbers."""
    headers = (
        "metric",
        "group",
        "n",
        "mean ± std",
        "95 % interval",
        f"minus {reference}",
        "95 % interval",
        "pairs",
    )
    best = [(number, 3) for number, row in enumerate(rows) if row.is_best]
    return Panel(
        "All final numbers: mean ± std over seeds",
        table(
            headers,
            (
                (r.metric, r.group, r.over_seeds.n if r.over_seeds else 0, estimate_text(r.over_seeds),
                 interval_text(r.over_seeds), estimate_text(r.difference), interval_text(r.difference),
                 r.difference.n if r.difference else None)
                for r in rows
            ),
            best,
        ),
        is_open=len(rows) <= _MOST_OPEN_ROWS,
        is_wide=True,
    )  # fmt: skip


def _non_breaking(text: str) -> str:
    """Text such as "0.91 (0.90 to 0.92)", breakable only before the interval."""
    mean, bracket, rest = text.partition("(")
    return mean + bracket + rest.replace(" ", "\N{NO-BREAK SPACE}")


def seeds_panel(groups: Sequence[Group]) -> Panel:
    """Every seed's final score, with mean and interval of each group."""
    score, groups = groups[0].score, with_same_score(groups)
    mean, unseen = f"test_{score.name}_mean", f"unseen_{score.name}_mean"
    columns = (mean, f"test_{score.name}_worst", unseen, "ari")
    labels = [textwrap.wrap(group.label, _LABEL_WIDTH) or [""] for group in groups]
    heights = [0.26 + 0.17 * len(lines) for lines in labels]
    figure, axes = new_figure(0.7 + max(sum(heights), 0.8))
    rows: list[tuple[Any, ...]] = []
    series = []
    offset = 0.0
    for index, group in enumerate(groups):
        axes.text(
            0, offset, "\n".join(labels[index]), transform=axes.get_yaxis_transform(), fontsize=9, va="top",
            linespacing=1.1,
        )  # fmt: skip
        offset += heights[index]
        finished = group.finished
        scores = {
            seed: value for seed, run in finished.items() if (value := run.rounds[mean][-1]) is not None
        }
        points = _draw_seeds(axes, index, group, offset - 0.14, scores)
        series.append(Series(group.label, colour(index), "solid", points, ""))
        rows += [
            (group.label, seed, run.name, *(run.rounds[column][-1] for column in columns))
            for seed, run in finished.items()
        ]
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_ylim(offset + 0.05, -0.05)
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel(f"final test {score.label}, mean over clients")
    headers = ("group", "seed", "run", "mean over clients", "worst client", "unseen users", "ARI")
    caption = "A dot per run that reached its last round; the bar is the mean and its 95 % interval."
    drawn = [entry for entry in series if entry.points]
    return Panel(
        "Every seed",
        table(headers, rows),
        figure,
        caption,
        points=Points(axes, drawn, "xy", "Point at a dot.") if drawn else None,
    )


def _draw_seeds(
    axes: Axes, index: int, group: Group, height: float, scores: Mapping[int, float]
) -> list[tuple[float, float, str, str]]:
    """Draw the dots of a group, seed → score, over a bar; returns them as points."""
    if not scores:
        axes.text(0.5, height, "no run reached its end", transform=axes.get_yaxis_transform(), fontsize=9)
        return []
    result = estimate(list(scores.values()), group.score.lowest, group.score.highest)
    if result.low is not None and result.high is not None:
        axes.plot([result.low, result.high], [height] * 2, color=colour(index), linewidth=5, alpha=0.3)
    axes.plot(result.mean, height, "|", color=colour(index), markersize=11, markeredgewidth=2)
    axes.plot(
        list(scores.values()), [height] * len(scores), "o", color=colour(index), markersize=5, alpha=0.75
    )
    return [
        (v, height, f"{group.label}, seed {seed}: {text_of(v)}", text_of(v)) for seed, v in scores.items()
    ]


# --- settings -----------------------------------------------------------------------------------------


def settings_section(groups: Sequence[Group]) -> PageSection:
    """Settings in which the groups differ."""
    differing = differing_settings(groups)
    if not differing:
        return PageSection("What differs", ["There is one group: its runs differ in nothing but the seed."])
    text = [
        f"{quantity(len(differing), 'setting')} {'differs' if len(differing) == 1 else 'differ'}, all others "
        "agree."
    ]
    return PageSection("What differs", text, [settings_table([g.label for g in groups], differing)])


def settings_table(labels: Sequence[str], settings: Mapping[str, Sequence[Any]]) -> Panel:
    """Settings as a table: name → its value in each of `labels`."""
    rows = [(name, *map(_setting_text, values)) for name, values in settings.items()]
    return Panel("Settings", table(("setting", *labels), rows), is_open=True, is_wide=True)


def _setting_text(value: Any) -> str:
    """A setting as text."""
    return "–" if value is None else value if isinstance(value, str) and value else json.dumps(value)
