"""Writes the table of rooms in docs/architecture.md from docstrings and the contract in pyproject.toml.

python -m tools.rooms
"""

import ast
import re
from pathlib import Path

from fedge.launch.projects.project import read_toml

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
MARKS = ("<!-- written by `python -m tools.rooms` -->", "<!-- end of the rooms -->")


def floors(project: Path = ROOT / "pyproject.toml") -> list[list[str]]:
    """The rooms of every floor, from the top down."""
    contracts = read_toml(project, "pyproject.toml")["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [layer.split(" | ") for layer in layers]


def table() -> str:
    """The table of rooms, from the top floor down."""
    lines = ["| floor | room | what it is |", "|---:|---|---|"]
    for height, floor in zip(range(len(floors()), 0, -1), floors(), strict=True):
        lines += [f"| {height} | `{room}` | {_first_line(ROOT / 'fedge' / room)} |" for room in floor]
    return "\n".join(lines)


def _first_line(place: Path) -> str:
    """The first line of the docstring of a package or module, without the page of docs/ in parentheses."""
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    line = (ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or "").splitlines()[0]
    return re.sub(r" \(docs/[\w-]+\.md\)", "", line)


def written(page: str) -> str:
    """The page with its table as the code has it now."""
    before, rest = page.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    return f"{before}{MARKS[0]}\n\n{table()}\n\n{MARKS[1]}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
