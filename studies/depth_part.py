"""Writes the results of `make results-depth` into docs/results.md: trees of other depths.

    python -m studies.depth_part [--study studies/depth/motionsense.toml] [--pages docs/results.md …]

A table per kind of clients, against the first tree, and a figure of the first kind. Measures are those of
studies/PROTOCOL.md. The text stands in the page, and in the text from which `make results` makes the page.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from fedge.records.reading.costs import bytes_so_far
from fedge.records.reading.reader import RunData
from fedge.report.comparison.groups import Group
from fedge.report.comparison.sweep_page import Comparison
from fedge.report.comparison.targets import SHARE
from studies import figures
from studies.devices_part import times_as_soon, with_interval
from studies.draws_part import complete, put_between
from studies.measures import Read, Study, difference, over_seeds, served, values
from studies.result_tables import markdown

HERE = Path(__file__).parent
STUDY = HERE / "depth/motionsense.toml"
MARKS = "<!-- printed by `make results-depth` -->", "<!-- end of the part on depth -->"
PAGES = (HERE.parent / "docs/results.md", HERE / "discussion.md")
FIGURE = "results/depth.svg"  # in docs
ACCURACY = "test_accuracy_mean"
HEADERS = (
    "", "virtual s to the target", "÷ own", "J of a client", "÷ own", "MB", "÷ own", "MB at the root",
    "÷ own", "after all rounds, %", "difference", "at one moment, %", "difference",
)  # fmt: skip
_MEGA = 1e6
_NOTHING = "–"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the part; 2 with one line on stderr where runs are missing, or not of the same clients."""
    parser = argparse.ArgumentParser(
        description="Write what make results-depth has found into docs/results.md."
    )
    parser.add_argument("--study", type=Path, default=STUDY, help="the sweep file")
    parser.add_argument("--pages", type=Path, nargs="+", default=PAGES, help="pages with the two marks")
    parser.add_argument("--figure", type=Path, default=HERE.parent / "docs" / FIGURE, help="file to draw")
    options = parser.parse_args(arguments)
    study = complete(options.study)
    if study is None:
        return 2
    if other_run := with_other_clients(study):
        print(
            f"studies: {other_run} must have the clients of the other trees, but has others", file=sys.stderr
        )
        return 2
    first = study.comparisons[0]
    figures.over_time(first, ACCURACY, "accuracy, mean over clients", options.figure)
    tables = "\n".join(table(comparison) for comparison in study.comparisons)
    caption = f"{first.title}: accuracy over virtual time, mean over seeds, band from lowest to highest"
    for page in options.pages:
        put_between(f"{tables}\n![{caption}]({FIGURE})\n", page, *MARKS)
    return 0


def with_other_clients(study: Study) -> str:
    """Name of a run whose clients have other windows than those of its seed's first run; empty for none."""
    for comparison in study.comparisons:
        first = comparison.groups[0].finished
        for group in comparison.groups[1:]:
            for seed, run in group.finished.items():
                if seed in first and not _windows(run).equals(_windows(first[seed])):
                    return run.name
    return ""


def _windows(run: RunData) -> pl.DataFrame:
    """Windows per client, split, user, device and class, whatever leaf the client stands under."""
    rows = run.partition.drop("leaf", "group")
    return rows.sort(rows.columns)


def table(comparison: Comparison) -> str:
    """The target of a kind of clients, and a row per tree."""
    reference = comparison.groups[0]
    goal = target_of(reference)
    moment = first_end(comparison.groups)
    rows = (row(group, reference, goal, moment) for group in comparison.groups)
    return f"*{comparison.title}*, target {100 * goal:.1f} %:\n\n{markdown(HEADERS, rows)}"


def target_of(reference: Group) -> float:
    """95 % of a tree's final accuracy, mean over seeds, a share 0..1."""
    accuracy = over_seeds(reference, served)
    assert accuracy is not None
    return SHARE * accuracy.mean


def first_end(groups: Sequence[Group]) -> dict[int, float]:
    """Seed → virtual seconds at which the first of its trees has ended."""
    ends: dict[int, float] = {}
    for group in groups:
        for seed, run in group.finished.items():
            end = float(run.rounds["virtual_s"][-1])
            ends[seed] = min(end, ends.get(seed, end))
    return ends


def row(group: Group, reference: Group, goal: float, moment: Mapping[int, float]) -> list[str]:
    """Results of a tree against the reference.

    Args:
        group: the tree.
        reference: the first tree.
        goal: accuracy, a share 0..1.
        moment: seed → virtual seconds.
    """
    cells = [group.label]
    for read, digits in (
        (at_target("virtual_s", goal), 1), (joules_of_a_client(goal), 2),
        (megabytes(goal), 1), (megabytes_at_the_root(goal), 1),
    ):  # fmt: skip
        group_values = values(group, read)
        cells += [_mean_with_count(group, read, len(group_values), digits)]
        versus_reference = (
            None if group is reference else times_as_soon(group_values, values(reference, read))
        )
        cells += [with_interval(versus_reference, 1, 2)]
    for read in (served, at_moment(moment)):
        versus_reference = None if group is reference else difference(group, reference, read)
        cells += [
            with_interval(over_seeds(group, read), 100, 1),
            with_interval(versus_reference, 100, 1, "+"),
        ]
    return cells


def _mean_with_count(group: Group, read: Read, count: int, digits: int) -> str:
    """A mean over the seeds with a value, and their number unless all have one."""
    value = over_seeds(group, read)
    if value is None:
        return _NOTHING
    count_text = "" if count == len(group.runs) else f" ({count} of {len(group.runs)})"
    return f"{value.mean:.{digits}f}{count_text}"


# --- of one run -----------------------------------------------------------------------------------


def reached(run: RunData, goal: float) -> int | None:
    """The row of the first round after which clients are at an accuracy 0..1; None where they never are."""
    rounds = (run.rounds[ACCURACY] >= goal).arg_true()
    return int(rounds[0]) if len(rounds) else None


def at_target(column: str, goal: float) -> Read:
    """Reader of a column of global_rounds.csv at the target."""

    def read(run: RunData) -> float | None:
        index = reached(run, goal)
        return None if index is None else float(run.rounds[column][index])

    return read


def joules_of_a_client(goal: float) -> Read:
    """Reader of the joules until the target, mean over clients."""
    all_joules = at_target("joules", goal)

    def read(run: RunData) -> float | None:
        joules = all_joules(run)
        return None if joules is None else joules / sum(run.manifest["clients_per_leaf"])

    return read


def megabytes(goal: float) -> Read:
    """Reader of the 10⁶ bytes on all edges until the target."""

    def read(run: RunData) -> float | None:
        index = reached(run, goal)
        return None if index is None else float(bytes_so_far(run.rounds)[index]) / _MEGA

    return read


def megabytes_at_the_root(goal: float) -> Read:
    """Reader of those into and out of the root; a single leaf's are its clients'."""

    def read(run: RunData) -> float | None:
        index = reached(run, goal)
        if index is None:
            return None
        if len(run.manifest["clients_per_leaf"]) == 1:
            return megabytes(goal)(run)
        last_round = run.rounds["global_round"][index]
        rows = run.servers.filter((pl.col("tier") == 1) & (pl.col("global_round") <= last_round))
        return sum(int(rows[column].sum()) for column in ("uplink_bytes", "downlink_bytes")) / _MEGA

    return read


def at_moment(moment: Mapping[int, float]) -> Read:
    """Reader of the accuracy at the last evaluation up to a moment of the run's seed."""

    def read(run: RunData) -> float | None:
        time_limit = moment[int(run.manifest["seed"])]
        rows = run.rounds.filter(pl.col("virtual_s") <= time_limit)
        return float(rows[ACCURACY][-1]) if len(rows) else None

    return read


if __name__ == "__main__":
    sys.exit(main())
