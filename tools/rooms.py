"""Writes the table of rooms in docs/architecture.md from the contract in pyproject.toml.

python -m tools.rooms
"""

from pathlib import Path

from fedge.launch.projects.project import read_toml

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
MARKS = ("<!-- written by `python -m tools.rooms` -->", "<!-- end of the rooms -->")


def floors(project: Path = ROOT / "pyproject.toml") -> list[list[str]]:
    """Rooms of every floor, from the top down."""
    contracts = read_toml(project, "pyproject.toml")["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [layer.split(" | ") for layer in layers]


def table() -> str:
    """Table of rooms, from the top floor down."""
    lines = ["| floor | rooms |", "|---:|---|"]
    for height, floor in zip(range(len(floors()), 0, -1), floors(), strict=True):
        lines.append(f"| {height} | {', '.join(f'`{room}`' for room in floor)} |")
    return "\n".join(lines)


def written(page: str) -> str:
    """The page with its table as in the current code."""
    before, rest = page.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    return f"{before}{MARKS[0]}\n\n{table()}\n\n{MARKS[1]}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
