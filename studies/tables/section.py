"""The section of a table: reported and repeated numbers, claimed orders, and cuts."""

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scipy.special import betaincinv

from fedge.records.reading.reader import load_run
from fedge.report.comparison.groups import Group, seed_of_run
from fedge.report.comparison.statistics import LEVEL, Estimate, estimate, paired_difference
from fedge.report.comparison.sweep_page import Comparison
from fedge.sweep.plan import Sweep, read_sweep
from fedge.sweep.study import study_of
from fedge.sweep.summary import comparisons
from studies.result_tables import as_csv, markdown
from studies.tables.readings import TRUE_OR_FALSE, diverged, reading
from studies.tables.reported import PERCENT, Claim, Measure, Reported, read_reported
from studies.tables.settings import CUT, PUBLISHED, STUDY, cuts_table, files, further_words

ENDED = "completed", "partial"
INSIDE, OUTSIDE, ALONE = "inside", "outside", "one seed"
_NOTHING = "–"
_ORDERS = {True: "yes", False: "the other way", None: "undecided"}


def section(folder: Path) -> str:
    """The section of a folder: its paper, differences, and every sweep with completed runs."""
    reported = read_reported(folder)
    text = [f"## {reported.title}", "", reported.source, ""]
    published = [read_sweep(path) for path in files(folder, PUBLISHED)]
    own_sweeps = [read_sweep(path) for path in files(folder, STUDY)]
    cut = [read_sweep(path) for path in files(folder, CUT)]
    if reported.differs:
        heading = "Differences from the paper, settings as published:" if published else "Settings:"
        text += [heading, "", *(f"- {line}" for line in reported.differs), ""]
    if cut:
        names = [sweep.path.name for sweep in cut]
        listed = ", ".join(f"[{name}](../studies/tables/{folder.name}/{name})" for name in names)
        text += [f"Cuts of {listed}:", "", cuts_table(published[0], cut, reported)]
    for sweeps in (own_sweeps, cut, published):
        text += _sweep_tables(sweeps, reported)
    return "\n".join([*text, reported.found]).rstrip("\n") + "\n"


def _sweep_tables(sweeps: Sequence[Sweep], reported: Reported) -> list[str]:
    """The tables of sweeps as far as their runs are complete; those with the same variants share a table."""
    text: list[str] = []
    columns: list[tuple[str, list[list[str]]]] = []
    bare = _unreported_measures(reported)
    for sweep in sweeps:
        finished, num_done = completed(sweep)
        command = _command(sweep, reported)
        if not finished:
            text += [f"*{sweep.name}*: not run. `{command}`: {len(sweep.runs)} runs.\n"]
            continue
        seeds = len(sweep.seeds)
        own_columns = [(c.title, bare_cells(c, bare)) for c in finished if bare]
        if columns and _variants(own_columns) != _variants(columns):
            text += [bare_table(columns, bare, seeds)]
            columns = []
        text += [f"*{sweep.name}*, `{command}`: {num_done} of {len(sweep.runs)} runs, {seeds} seeds.\n"]
        for measure in reported.measures:
            if measure.reported:
                text += [f"{measure.title}:\n", reported_table(finished, measure, seeds)]
        text += [f"{line}\n" for line in broken(finished)]
        rows = [row for claim in reported.claims for row in claimed(finished, claim)]
        if rows:
            heads = ["the paper's order", "where", "difference", "seeds", "here"]
            text += ["Orders:\n", markdown(*without(heads, rows, "seeds", str(seeds)))]
        part = further_words(sweep.path) if len(sweeps) > 1 else ""
        columns += [(f"{part}: {title}" if part and title else title, cells) for title, cells in own_columns]
    return [*text, bare_table(columns, bare, seeds)] if columns else text


def _variants(columns: Sequence[tuple[str, list[list[str]]]]) -> list[str]:
    return [row[0] for row in columns[0][1]]


def full_table(folder: Path) -> str:
    """Measures without reported numbers of every sweep as CSV, with intervals; "" without runs."""
    reported = read_reported(folder)
    bare = _unreported_measures(reported)
    rows = []
    for path in (*files(folder, STUDY), *files(folder, CUT), *files(folder, PUBLISHED)):
        sweep = read_sweep(path)
        for comparison in completed(sweep)[0] if bare else []:
            rows += [[sweep.name, comparison.title, *cells] for cells in bare_cells(comparison, bare)]
    titles = [measure.title for measure in bare]
    heads = (
        ("settings", "where", "variant", titles[0], "minus the first", *titles[1:], "seeds") if rows else ()
    )
    return as_csv(heads, rows) if rows else ""


def _unreported_measures(reported: Reported) -> list[Measure]:
    return [measure for measure in reported.measures if not measure.reported]


def _command(sweep: Sweep, reported: Reported) -> str:
    settings = f" SETTINGS={PUBLISHED}" if sweep.path.stem.startswith(PUBLISHED) else ""
    target = "question" if sweep.path.stem.startswith(STUDY) else "table"
    return f"make {target}-{reported.name}{settings}"


def completed(sweep: Sweep) -> tuple[list[Comparison], int]:
    """Comparisons of the ended runs of a sweep, and the runs' number.

    Runs with failures of clients on the way, or ended because no client's training stayed finite, count by
    their rounds: a method that breaks down does so in the table, too. Other unfinished runs are named on
    stderr.
    """
    runs = {}
    for planned in sweep.runs:
        if planned.folder.is_dir():
            run = load_run(planned.folder)
            if run.status in ENDED or diverged(run):
                runs[planned.name] = run
            elif run.status != "running":
                print(f"studies.tables: {planned.folder} is {run.status}; left out", file=sys.stderr)
    return (comparisons(study_of(sweep), runs) if runs else []), len(runs)


def broken(finished: Sequence[Comparison]) -> list[str]:
    """A line on runs whose training did not stay finite, where there are any."""
    runs = [run for comparison in finished for group in comparison.groups for run in group.runs]
    ended = [f"`{run.folder.name}` in round {len(run.rounds) + 1}" for run in runs if diverged(run)]
    dropped = [f"`{run.folder.name}`" for run in runs if run.status == "partial"]
    lines = [f"Ended by losses or weights out of bounds: {', '.join(ended)}."] if ended else []
    return lines + ([f"With failed clients: {', '.join(dropped)}."] if dropped else [])


def over_runs(group: Group, measure: Measure) -> Estimate | None:
    """The mean of a measure with its interval over a group's runs, or None where no run has it.

    Shares, shown in percent, are between 0 and 1, and so are their means.
    """
    values = by_seed(group, measure.name)
    bounds = (0.0, 1.0) if measure.scale == PERCENT else (-math.inf, math.inf)
    return estimate(list(values.values()), *bounds) if values else None


def by_seed(group: Group, name: str) -> dict[int, float]:
    """Seed → reading, also of diverged runs."""
    values = {seed_of_run(run): reading(name)(run) for run in group.runs}
    return {seed: value for seed, value in values.items() if value is not None}


# --- numbers beside each other ------------------------------------------------------------------------


def reported_table(finished: Sequence[Comparison], measure: Measure, seeds: int) -> str:
    """A row per repeated number, and a sentence on the numbers only reported."""
    rows = [
        _reported_row(comparison, group, measure) for comparison in finished for group in comparison.groups
    ]
    heads = ["", "", "reported", "repeated", "95 % interval", "seeds", "reported lies"]
    text = (
        [markdown(*without(heads, repeated, "seeds", str(seeds)))] if (repeated := with_number(rows)) else []
    )
    if alone := [f"{row[0]} {row[1]} ({row[2]})" for row in rows if row not in repeated]:
        text += [f"No value here: {', '.join(alone)}.\n"]
    return "\n".join(text)


def with_number(rows: Sequence[list[str]]) -> list[list[str]]:
    """Rows of repeated numbers."""
    return [row for row in rows if row[3] != _NOTHING]


def without(
    heads: Sequence[str], rows: Sequence[Sequence[str]], column: str, usual: str
) -> tuple[list[str], list[list[str]]]:
    """A table without a column in which every cell is the usual one."""
    index = list(heads).index(column)
    kept = [n for n in range(len(heads)) if n != index or any(row[index] != usual for row in rows)]
    return [heads[n] for n in kept], [[row[n] for n in kept] for row in rows]


def _reported_row(comparison: Comparison, group: Group, measure: Measure) -> list[str]:
    reported = measure.reported.get(comparison.title, {}).get(group.label)
    repeated = over_runs(group, measure)
    num_values = len(by_seed(group, measure.name))
    return [
        comparison.title, group.label, _reported_text(reported), _mean_text(repeated, measure),
        _interval_text(repeated, measure),
        str(num_values) if num_values == len(group.runs) else f"{num_values} of {len(group.runs)}",
        verdict(reported, repeated, measure),
    ]  # fmt: skip


def verdict(reported: Sequence[float] | None, repeated: Estimate | None, measure: Measure) -> str:
    """Where a reported mean lies: inside or outside the 95 % interval of the repetition.

    An interval is not narrower than the last reported digit: half of its unit counts on either side.
    """
    if reported is None or repeated is None:
        return _NOTHING
    if repeated.low is None or repeated.high is None:
        return ALONE
    half = 0.5 * 10.0**-measure.digits
    low, high = measure.scale * repeated.low - half, measure.scale * repeated.high + half
    return INSIDE if low <= reported[0] <= high else OUTSIDE


def bare_table(
    columns: Sequence[tuple[str, list[list[str]]]], measures: Sequence[Measure], seeds: int
) -> str:
    """A row per measure and variant, a column per comparison; means, and numbers of seeds if not all.

    Numbers of the first measure are bold if they differ from the first variant's. Variants with the same
    numbers share a row; in further measures, variants with the numbers of the first measure are left out.

    Args:
        columns: name of a comparison → its `bare_cells`.
        measures: those of the cells.
        seeds: of a whole sweep.
    """
    cells = [{row[0]: row for row in rows} for _, rows in columns]
    labels = list(dict.fromkeys(label for column_cells in cells for label in column_cells))

    def line(label: str, shown: Callable[[Sequence[str]], str]) -> list[str]:
        return [shown(column_cells[label]) if label in column_cells else _NOTHING for column_cells in cells]

    firsts = {label: line(label, lambda row: bare(row[1])) for label in labels}
    rows = []
    for number, title in enumerate([*(measure.title for measure in measures), "seeds"]):
        if number == 0:
            block = {label: line(label, _marked_mean) for label in labels}
        else:
            block = {label: line(label, lambda row, at=number + 2: bare(row[at])) for label in labels}  # type: ignore[misc]
            usual = {label: line(label, lambda row: str(seeds)) for label in labels}
            same = usual if title == "seeds" else firsts
            block = {label: row_cells for label, row_cells in block.items() if row_cells != same[label]}
        first = "seeds, if fewer" if title == "seeds" else title
        first += "; others as above" if 0 < number < len(measures) and len(block) < len(labels) else ""
        for row_cells, names in shared(block).items():
            rows.append([first, names, *row_cells])
            first = ""
    return markdown(["", "", *(name for name, _ in columns)], rows)


def _marked_mean(row: Sequence[str]) -> str:
    """A mean, in bold where it differs from the first variant's."""
    return f"**{bare(row[1])}**" if marked(row[2]).startswith("**") else bare(row[1])


def shared(block: Mapping[str, Sequence[str]]) -> dict[tuple[str, ...], str]:
    """Cells → the names of all with these cells."""
    names_by_cells: dict[tuple[str, ...], str] = {}
    for name, row in block.items():
        names_by_cells[tuple(row)] = (
            f"{names_by_cells[tuple(row)]}, {name}" if tuple(row) in names_by_cells else name
        )
    return names_by_cells


def bare(cell: str) -> str:
    """A cell without its interval.

    >>> bare("12.0 [1.0, 23.0]"), bare("2 of 3 (9 to 99 %)"), bare("–")
    ('12.0', '2 of 3', '–')
    """
    return re.sub(r" [\[(].*[\])]", "", cell)


def marked(text: str) -> str:
    """A difference in bold where its interval, as shown, leaves out 0.

    >>> marked("+1.2 [+0.1, +2.3]"), marked("−1.2 [−2.4, +0.0]"), marked("–")
    ('**+1.2**', '−1.2', '–')
    """
    ends = [float(end.replace("−", "-")) for end in re.findall(r"[+−][\d.]+(?=[,\]])", text)]
    is_significant = bool(ends) and (ends[0] > 0 or ends[1] < 0)
    return f"**{bare(text)}**" if is_significant else bare(text)


def bare_cells(comparison: Comparison, measures: Sequence[Measure]) -> list[list[str]]:
    """A row per variant: label, first measure, its difference from the first variant, other measures, seeds.

    Of further measures only the means are told.
    """
    first, reference = measures[0], comparison.groups[0]
    rows = []
    for group in comparison.groups:
        rest = [cell(group, measure, with_interval=False) for measure in measures[1:]]
        gain = None
        if group is not reference:
            gain = paired_difference(by_seed(group, first.name), by_seed(reference, first.name))
        rows.append([
            group.label, cell(group, first), _mean_with_interval(gain, first, "+"), *rest,
            str(len(group.runs)),
        ])  # fmt: skip
    return rows


def cell(group: Group, measure: Measure, with_interval: bool = True) -> str:
    """A mean with its interval, or the number of runs for which a true-or-false reading holds."""
    if measure.name not in TRUE_OR_FALSE:
        shown = _mean_with_interval if with_interval else _mean_text
        return shown(over_runs(group, measure), measure)
    values = by_seed(group, measure.name)
    return counted(int(sum(values.values())), len(values)) if values else _NOTHING


def counted(count: int, total: int) -> str:
    """How many of how many, with the 95 % interval of Clopper and Pearson 1934 in percent.

    >>> counted(2, 3)
    '2 of 3 (9 to 99 %)'
    >>> counted(0, 3)
    '0 of 3 (0 to 71 %)'
    """
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(count, total - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, total - count, 1 - tail)) if count < total else 1.0
    return f"{count} of {total} ({100 * low:.0f} to {100 * high:.0f} %)"


def claimed(finished: Sequence[Comparison], claim: Claim) -> list[list[str]]:
    """A row per comparison in which a claimed order can be looked at."""
    rows = []
    shown = Measure(claim.measure, "", claim.scale, claim.digits)
    for comparison in finished:
        groups = {group.label: group for group in comparison.groups}
        if claim.where not in ("", comparison.title) or not {claim.more, claim.less} <= groups.keys():
            continue
        more, less = (by_seed(groups[name], claim.measure) for name in (claim.more, claim.less))
        gain = paired_difference(more, less)
        if gain is not None:
            label = f"{claim.more} above {claim.less}, {claim.measure}"
            rows.append(
                [label, comparison.title, _mean_with_interval(gain, shown, "+"), str(gain.n), order(gain)]
            )
    return rows


def order(gain: Estimate) -> str:
    """Whether a difference is above 0, below it, or neither by its interval."""
    if gain.low is None or gain.high is None:
        return ALONE
    return _ORDERS[True if gain.low > 0 else False if gain.high < 0 else None]


def _reported_text(values: Sequence[float] | None) -> str:
    return _NOTHING if values is None else " ± ".join(f"{value:g}" for value in values)


def _mean_text(value: Estimate | None, measure: Measure) -> str:
    return _NOTHING if value is None else _minus(f"{measure.scale * value.mean:.{measure.digits}f}")


def _interval_text(value: Estimate | None, measure: Measure, sign: str = "") -> str:
    if value is None or value.low is None or value.high is None:
        return _NOTHING
    ends = (f"{measure.scale * end:{sign}.{measure.digits}f}" for end in (value.low, value.high))
    return _minus(f"[{', '.join(ends)}]")


def _mean_with_interval(value: Estimate | None, measure: Measure, sign: str = "") -> str:
    if value is None:
        return _NOTHING
    mean = _minus(f"{measure.scale * value.mean:{sign}.{measure.digits}f}")
    ends = _interval_text(value, measure, sign)
    return mean if ends == _NOTHING else f"{mean} {ends}"


def _minus(text: str) -> str:
    return text.replace("-", "−")
