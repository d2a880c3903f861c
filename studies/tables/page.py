"""Writes docs/tables-of-papers.md: a section per folder of studies/tables, and a list of its numbers.

    python -m studies.tables.page [NAME …] [--tables studies/tables] [--page docs/tables-of-papers.md]

Sections of other folders stay as they are, so a table can be repeated alone. Numbers without intervals on the
page have them in `results/table-NAME.csv` beside it.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from studies.result_tables import markdown
from studies.tables.section import INSIDE, OUTSIDE, full_table, section

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/tables-of-papers.md"
FULL = "results/table-{}.csv"
_SWEEP = re.compile(r"\*([\w-]+)\*(?:: not run|.*: (\d+ of \d+) runs)")
BEGIN, END = "<!-- table {} -->", "<!-- end of table {} -->"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the sections; 2 with one line on stderr for a name without a folder."""
    parser = argparse.ArgumentParser(description="Write sections of docs/tables-of-papers.md.")
    parser.add_argument("names", nargs="*", help="folders of studies/tables (default: all)")
    parser.add_argument("--tables", type=Path, default=HERE, help="folder of the tables")
    parser.add_argument("--page", type=Path, default=PAGE, help="page with two marks per table")
    options = parser.parse_args(arguments)
    available = folders(options.tables)
    names = options.names or available
    for name in names:
        if name not in available:
            known_names = ", ".join(available)
            print(f"studies.tables: a table must be one of {known_names}, but is {name!r}", file=sys.stderr)
            return 2
    text = options.page.read_text(encoding="utf-8")
    for name in names:
        text = put(text, name, section(options.tables / name))
        if table_text := full_table(options.tables / name):
            path = options.page.parent / FULL.format(name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(table_text, encoding="utf-8")
    options.page.write_text(put(text, "list", overview(text)), encoding="utf-8")
    return 0


def folders(tables: Path) -> list[str]:
    """Names of the folders with a table."""
    return sorted(path.parent.name for path in tables.glob("*/reported.toml"))


def put(text: str, name: str, part: str) -> str:
    """Text with a part between the two marks of its name; without them it stays."""
    begin, end = BEGIN.format(name), END.format(name)
    before, has_begin, rest = text.partition(begin)
    _, has_end, after = rest.partition(end)
    return f"{before}{begin}\n\n{part}\n{end}{after}" if has_begin and has_end else text


@dataclass
class _Counted:
    """A sweep of the page, and where the numbers reported for it lie."""

    title: str
    sweep: str
    runs: str
    inside: int = 0
    outside: int = 0


def overview(text: str) -> str:
    """A row per sweep with reported numbers: runs, numbers inside the repetition's interval and outside."""
    sweeps: list[_Counted] = []
    title = ""
    for line in text.splitlines():
        if line.startswith("## "):
            title = line.removeprefix("## ")
        elif sweep := _SWEEP.match(line):
            sweeps += [_Counted(title, sweep[1], sweep[2])] if sweep[2] else []
        elif line.startswith("| ") and sweeps and sweeps[-1].title == title:
            last = line.strip("| ").rpartition("|")[2].strip()
            sweeps[-1].inside += last == INSIDE
            sweeps[-1].outside += last == OUTSIDE
    rows = [
        [entry.title, f"`{entry.sweep}`", entry.runs, str(entry.inside), str(entry.outside)]
        for entry in sweeps
        if entry.inside or entry.outside
    ]
    heads = ("", "settings", "runs", "reported numbers inside the interval", "outside")
    return markdown(heads, rows)


if __name__ == "__main__":
    sys.exit(main())
