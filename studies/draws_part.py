"""Writes the draws of five data sets, and of no groups (`make results-draws`), into docs/results.md.

    python -m studies.draws_part [--studies studies/draws] [--full docs/results/draws.csv]
        [--pages docs/results.md studies/discussion.md]

All accuracies go into a CSV file, and differences of unseen clients with intervals into one beside it. Other
folders of such sweeps, e.g. `studies/rivals`, are treated alike, with their own marks and files.

Without a page after `--pages` the text is printed; `make results-quick` does so with a part of the sweeps, in
minutes. Sweeps with missing runs are named and left out, so one of them can be checked alone (`fedge sweep
studies/quick/hhar.toml`). The text stands, between two marks, in the page and in the text from which `make
results` makes the page.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from studies import result_tables as tables
from studies.measures import MissingRuns, Study, by_label, read_study
from studies.numbers import numbers
from studies.page import NUMBERS, Titled, put_between, section, titled_of

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
PAGES = (DOCS / "results.md", HERE / "discussion.md")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the part; 2 with one line on stderr when no sweep is complete."""
    parser = argparse.ArgumentParser(
        description="Write what make results-draws has found into docs/results.md."
    )
    parser.add_argument("--studies", type=Path, default=HERE / "draws", help="folder of the sweep files")
    parser.add_argument(
        "--pages", type=Path, nargs="*", default=PAGES, help="pages with the two marks; none: print it"
    )
    parser.add_argument("--full", type=Path, help="file of all numbers (docs/results/FOLDER.csv)")
    options = parser.parse_args(arguments)
    paths = sorted(options.studies.glob("*.toml"))
    read = {path.stem: complete(path) for path in paths}
    studies = [study for study in read.values() if study is not None]
    missing = [name for name, study in read.items() if study is None]
    if not studies:
        return 2
    text = part(studies, missing)
    marks_of_folder = marks(options.studies.name)
    for page in options.pages:
        put_between(text, page, *marks_of_folder)
    if options.pages:
        numbers_path = options.full or DOCS / NUMBERS.format(options.studies.name)
        numbers_path.write_text(numbers(studies), encoding="utf-8")
        planted = [(t, c) for study in studies for t, c in titled_of(study) if "oracle" in by_label(c)]
        unseen_path = numbers_path.with_stem(f"{numbers_path.stem}-unseen")
        unseen_path.write_text(tables.as_csv(*tables.newcomers_cells(with_unseen(planted))), encoding="utf-8")
    else:
        print(text, *map(section, studies), sep="\n")
    return 0


def complete(path: Path) -> Study | None:
    """The study of a sweep file, or None with a line on stderr where runs are missing."""
    try:
        return read_study(path)
    except MissingRuns as error:
        print(f"studies: {error}", file=sys.stderr)
        return None


def part(studies: Sequence[Study], missing: Sequence[str]) -> str:
    """The part: in how many seeds groups were found, and the gain from them.

    Args:
        studies: the complete sweeps.
        missing: names of the others.
    """
    titled = without_common_place([pair for study in studies for pair in titled_of(study)])
    planted = [(title, c) for title, c in titled if "oracle" in by_label(c)]
    controls = [(title, c) for title, c in titled if "oracle" not in by_label(c)]
    lines = []
    if planted:
        lines += ["Seeds in which groups were exact after the last round:\n"]
        lines += map(tables.found_table, tables.by_methods(planted))
    if controls:
        lines += ["Without planted groups, seeds in which all leaves were one cluster in every round:\n"]
        lines += [tables.whole_table(controls)]
    if comparable := with_unseen(planted):
        lines += ["Unseen clients, `fedge` minus other methods, points:\n"]
        lines += [tables.newcomers_table(comparable)]
    left_out = f"Not run here: {', '.join(missing)}.\n" if missing else ""
    return "\n".join(filter(None, (*lines, left_out)))


def without_common_place(titled: Titled) -> Titled:
    """Comparisons by their scenarios alone where data and leaves are the same in all."""
    places = {title.rpartition(", ")[0] for title, _ in titled}
    return (
        [(title.rpartition(", ")[2], c) for title, c in titled] if len(places) == 1 < len(titled) else titled
    )


def with_unseen(planted: Titled) -> Titled:
    """Comparisons in which unseen clients of fedge and of leaves alone can be compared."""
    return [(title, c) for title, c in planted if {"fedge", "local"} <= by_label(c).keys()]


def marks(folder: str) -> tuple[str, str]:
    """The two marks of a page between which the part of a folder of sweeps stands."""
    return f"<!-- printed by `make results-{folder}` -->", f"<!-- end of the {folder} -->"


if __name__ == "__main__":
    sys.exit(main())
