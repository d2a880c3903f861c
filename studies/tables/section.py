"""The section of a table: reported and repeated numbers, orders that were claimed, and cuts."""

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
    own = [read_sweep(path) for path in files(folder, STUDY)]
    cut = [read_sweep(path) for path in files(folder, CUT)]
    if reported.differs:
        what = "Differences from the paper, settings as published:" if published else "Settings:"
        text += [what, "", *(f"- {line}" for line in reported.differs), ""]
    if cut:
        names = [sweep.path.name for sweep in cut]
        listed = ", ".join(f"[{name}](../studies/tables/{folder.name}/{name})" for name in names)
        text += [f"Cuts of {listed}:", "", cuts_table(published[0], cut, reported)]
    for sweeps in (own, cut, published):
        text += _of_sweeps(sweeps, reported)
    return "\n".join([*text, reported.found]).rstrip("\n") + "\n"


def _of_sweeps(sweeps: Sequence[Sweep], reported: Reported) -> list[str]:
    """The tables of sweeps as far as their runs are complete; those with the same variants share a table."""
    text: list[str] = []
    columns: list[tuple[str, list[list[str]]]] = []
    bare = _bare_of(reported)
    for sweep in sweeps:
        found, done = completed(sweep)
        command = _command(sweep, reported)
        if not found:
            text += [f"*{sweep.name}*: not run. `{command}`: {len(sweep.runs)} runs.\n"]
            continue
        seeds = len(sweep.seeds)
        own = [(c.title, bare_cells(c, bare)) for c in found if bare]
        if columns and _variants(own) != _variants(columns):
            text += [bare_table(columns, bare, seeds)]
            columns = []
        text += [f"*{sweep.name}*, `{command}`: {done} of {len(sweep.runs)} runs, {seeds} seeds.\n"]
        for measure in reported.measures:
            if measure.reported:
                text += [f"{measure.title}:\n", reported_table(found, measure, seeds)]
        text += [f"{line}\n" for line in broken(found)]
        rows = [row for claim in reported.claims for row in claimed(found, claim)]
        if rows:
            heads = ["the paper's order", "where", "difference", "seeds", "here"]
            text += ["Orders:\n", markdown(*without(heads, rows, "seeds", str(seeds)))]
        part = further_words(sweep.path) if len(sweeps) > 1 else ""
        columns += [(f"{part}: {title}" if part and title else title, cells) for title, cells in own]
    return [*text, bare_table(columns, bare, seeds)] if columns else text


def _variants(columns: Sequence[tuple[str, list[list[str]]]]) -> list[str]:
    return [row[0] for row in columns[0][1]]


def full_table(folder: Path) -> str:
    """Measures without reported numbers of every sweep as CSV, with intervals; "" without runs."""
    reported = read_reported(folder)
    bare = _bare_of(reported)
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


def _bare_of(reported: Reported) -> list[Measure]:
    return [measure for measure in reported.measures if not measure.reported]


def _command(sweep: Sweep, reported: Reported) -> str:
    settings = f" SETTINGS={PUBLISHED}" if sweep.path.stem.startswith(PUBLISHED) else ""
    what = "question" if sweep.path.stem.startswith(STUDY) else "table"
    return f"make {what}-{reported.name}{settings}"


def completed(sweep: Sweep) -> tuple[list[Comparison], int]:
    """Comparisons of the runs of a sweep that are at their end, and their number.

    Runs in which clients failed on the way, or that ended since nobody's training stayed finite, count by the
    rounds that they have: a method that breaks down does so in the table, too. Others that are not at their
    end are named on stderr.
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


def broken(found: Sequence[Comparison]) -> list[str]:
    """A line on runs whose training did not stay finite, where there are any."""
    runs = [run for comparison in found for group in comparison.groups for run in group.runs]
    ended = [f"`{run.folder.name}` in round {len(run.rounds) + 1}" for run in runs if diverged(run)]
    dropped = [f"`{run.folder.name}`" for run in runs if run.status == "partial"]
    lines = [f"Ended by losses or weights out of bounds: {', '.join(ended)}."] if ended else []
    return lines + ([f"With failed clients: {', '.join(dropped)}."] if dropped else [])


def over_runs(group: Group, measure: Measure) -> Estimate | None:
    """The mean of a measure with its interval over a group's runs, or None where no run has it.

    Shares, shown in percent, are between 0 and 1, and so are their means.
    """
    found = by_seed(group, measure.name)
    bounds = (0.0, 1.0) if measure.scale == PERCENT else (-math.inf, math.inf)
    return estimate(list(found.values()), *bounds) if found else None


def by_seed(group: Group, name: str) -> dict[int, float]:
    """Seed → reading, also of runs that diverged."""
    found = {seed_of_run(run): reading(name)(run) for run in group.runs}
    return {seed: value for seed, value in found.items() if value is not None}


# --- numbers beside each other ------------------------------------------------------------------------


def reported_table(found: Sequence[Comparison], measure: Measure, seeds: int) -> str:
    """A row per number that is repeated, and a sentence of those that are reported alone."""
    rows = [_row(comparison, group, measure) for comparison in found for group in comparison.groups]
    heads = ["", "", "reported", "repeated", "95 % interval", "seeds", "reported lies"]
    text = (
        [markdown(*without(heads, repeated, "seeds", str(seeds)))] if (repeated := with_number(rows)) else []
    )
    if alone := [f"{row[0]} {row[1]} ({row[2]})" for row in rows if row not in repeated]:
        text += [f"No value here: {', '.join(alone)}.\n"]
    return "\n".join(text)


def with_number(rows: Sequence[list[str]]) -> list[list[str]]:
    """Rows of numbers that are repeated."""
    return [row for row in rows if row[3] != _NOTHING]


def without(
    heads: Sequence[str], rows: Sequence[Sequence[str]], column: str, usual: str
) -> tuple[list[str], list[list[str]]]:
    """A table without a column in which every cell is the usual one."""
    at = list(heads).index(column)
    kept = [n for n in range(len(heads)) if n != at or any(row[at] != usual for row in rows)]
    return [heads[n] for n in kept], [[row[n] for n in kept] for row in rows]


def _row(comparison: Comparison, group: Group, measure: Measure) -> list[str]:
    theirs = measure.reported.get(comparison.title, {}).get(group.label)
    ours = over_runs(group, measure)
    reached = len(by_seed(group, measure.name))
    return [
        comparison.title, group.label, _theirs(theirs), _mean(ours, measure), _interval(ours, measure),
        str(reached) if reached == len(group.runs) else f"{reached} of {len(group.runs)}",
        verdict(theirs, ours, measure),
    ]  # fmt: skip


def verdict(theirs: Sequence[float] | None, ours: Estimate | None, measure: Measure) -> str:
    """Where a reported mean lies: inside or outside the 95 % interval of the repetition.

    An interval is not narrower than the last digit that is reported: half of it counts on either side.
    """
    if theirs is None or ours is None:
        return _NOTHING
    if ours.low is None or ours.high is None:
        return ALONE
    half = 0.5 * 10.0**-measure.digits
    low, high = measure.scale * ours.low - half, measure.scale * ours.high + half
    return INSIDE if low <= theirs[0] <= high else OUTSIDE


def bare_table(
    columns: Sequence[tuple[str, list[list[str]]]], measures: Sequence[Measure], seeds: int
) -> str:
    """A row per measure and variant, a column per comparison; means, and numbers of seeds if not all.

    Of the first measure what differs from the first variant is bold. Variants with the same numbers share a
    row; of further measures those are left out that have the numbers of the first.

    Args:
        columns: name of a comparison → its `bare_cells`.
        measures: those of the cells.
        seeds: of a whole sweep.
    """
    cells = [{row[0]: row for row in rows} for _, rows in columns]
    labels = list(dict.fromkeys(label for own in cells for label in own))

    def line(label: str, shown: Callable[[Sequence[str]], str]) -> list[str]:
        return [shown(own[label]) if label in own else _NOTHING for own in cells]

    firsts = {label: line(label, lambda row: bare(row[1])) for label in labels}
    rows = []
    for number, title in enumerate([*(measure.title for measure in measures), "seeds"]):
        if number == 0:
            block = {label: line(label, _as_marked) for label in labels}
        else:
            block = {label: line(label, lambda row, at=number + 2: bare(row[at])) for label in labels}  # type: ignore[misc]
            usual = {label: line(label, lambda row: str(seeds)) for label in labels}
            same = usual if title == "seeds" else firsts
            block = {label: found for label, found in block.items() if found != same[label]}
        first = "seeds, if fewer" if title == "seeds" else title
        first += "; others as above" if 0 < number < len(measures) and len(block) < len(labels) else ""
        for found, names in shared(block).items():
            rows.append([first, names, *found])
            first = ""
    return markdown(["", "", *(name for name, _ in columns)], rows)


def _as_marked(row: Sequence[str]) -> str:
    """A mean, in bold where it differs from the first variant's."""
    return f"**{bare(row[1])}**" if marked(row[2]).startswith("**") else bare(row[1])


def shared(block: Mapping[str, Sequence[str]]) -> dict[tuple[str, ...], str]:
    """Cells → the names of all that have them."""
    found: dict[tuple[str, ...], str] = {}
    for name, row in block.items():
        found[tuple(row)] = f"{found[tuple(row)]}, {name}" if tuple(row) in found else name
    return found


def bare(cell: str) -> str:
    """A cell without its interval.

    >>> bare("12.0 [1.0, 23.0]"), bare("2 of 3 (9 to 99 %)"), bare("–")
    ('12.0', '2 of 3', '–')
    """
    return re.sub(r" [\[(].*[\])]", "", cell)


def marked(apart: str) -> str:
    """A difference in bold where its interval, as shown, leaves out 0.

    >>> marked("+1.2 [+0.1, +2.3]"), marked("−1.2 [−2.4, +0.0]"), marked("–")
    ('**+1.2**', '−1.2', '–')
    """
    ends = [float(end.replace("−", "-")) for end in re.findall(r"[+−][\d.]+(?=[,\]])", apart)]
    is_apart = bool(ends) and (ends[0] > 0 or ends[1] < 0)
    return f"**{bare(apart)}**" if is_apart else bare(apart)


def bare_cells(comparison: Comparison, measures: Sequence[Measure]) -> list[list[str]]:
    """A row per variant: label, first measure, its difference from the first variant, other measures, seeds.

    Of further measures only the means are told.
    """
    first, reference = measures[0], comparison.groups[0]
    rows = []
    for group in comparison.groups:
        rest = [cell(group, measure, with_interval=False) for measure in measures[1:]]
        apart = None
        if group is not reference:
            apart = paired_difference(by_seed(group, first.name), by_seed(reference, first.name))
        rows.append([
            group.label, cell(group, first), _with_interval(apart, first, "+"), *rest, str(len(group.runs)),
        ])  # fmt: skip
    return rows


def cell(group: Group, measure: Measure, with_interval: bool = True) -> str:
    """A mean with its interval, or of a reading that is true or false how many runs have it."""
    if measure.name not in TRUE_OR_FALSE:
        shown = _with_interval if with_interval else _mean
        return shown(over_runs(group, measure), measure)
    found = by_seed(group, measure.name)
    return counted(int(sum(found.values())), len(found)) if found else _NOTHING


def counted(count: int, of: int) -> str:
    """How many of how many, with the 95 % interval of Clopper and Pearson 1934 in percent.

    >>> counted(2, 3)
    '2 of 3 (9 to 99 %)'
    >>> counted(0, 3)
    '0 of 3 (0 to 71 %)'
    """
    tail = (1 - LEVEL) / 2
    low = float(betaincinv(count, of - count + 1, tail)) if count else 0.0
    high = float(betaincinv(count + 1, of - count, 1 - tail)) if count < of else 1.0
    return f"{count} of {of} ({100 * low:.0f} to {100 * high:.0f} %)"


def claimed(found: Sequence[Comparison], claim: Claim) -> list[list[str]]:
    """A row per comparison in which a claimed order can be looked at."""
    rows = []
    shown = Measure(claim.measure, "", claim.scale, claim.digits)
    for comparison in found:
        groups = {group.label: group for group in comparison.groups}
        if claim.where not in ("", comparison.title) or not {claim.more, claim.less} <= groups.keys():
            continue
        more, less = (by_seed(groups[name], claim.measure) for name in (claim.more, claim.less))
        apart = paired_difference(more, less)
        if apart is not None:
            what = f"{claim.more} above {claim.less}, {claim.measure}"
            rows.append(
                [what, comparison.title, _with_interval(apart, shown, "+"), str(apart.n), order(apart)]
            )
    return rows


def order(apart: Estimate) -> str:
    """Whether a difference is above 0, below it, or neither by its interval."""
    if apart.low is None or apart.high is None:
        return ALONE
    return _ORDERS[True if apart.low > 0 else False if apart.high < 0 else None]


def _theirs(theirs: Sequence[float] | None) -> str:
    return _NOTHING if theirs is None else " ± ".join(f"{value:g}" for value in theirs)


def _mean(found: Estimate | None, measure: Measure) -> str:
    return _NOTHING if found is None else _minus(f"{measure.scale * found.mean:.{measure.digits}f}")


def _interval(found: Estimate | None, measure: Measure, sign: str = "") -> str:
    if found is None or found.low is None or found.high is None:
        return _NOTHING
    ends = (f"{measure.scale * end:{sign}.{measure.digits}f}" for end in (found.low, found.high))
    return _minus(f"[{', '.join(ends)}]")


def _with_interval(found: Estimate | None, measure: Measure, sign: str = "") -> str:
    if found is None:
        return _NOTHING
    mean = _minus(f"{measure.scale * found.mean:{sign}.{measure.digits}f}")
    ends = _interval(found, measure, sign)
    return mean if ends == _NOTHING else f"{mean} {ends}"


def _minus(text: str) -> str:
    return text.replace("-", "−")
