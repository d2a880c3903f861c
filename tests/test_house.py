"""The house: rooms with a surface, floors that hold, imports that stay light (docs/architecture.md)."""

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from pkgutil import iter_modules

import pytest

from tools import rooms

ROOT = Path(__file__).parents[1]
HEAVY = {"torch", "flwr", "ray", "polars", "matplotlib"}
PACKAGES = sorted(
    ".".join(file.parent.relative_to(ROOT).parts)
    for top in ("fedge", "hhar")
    for file in (ROOT / top).rglob("__init__.py")
)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_what_it_is(package: str) -> None:
    """One line that names it, and what it may import."""
    words = importlib.import_module(package).__doc__
    assert words is not None
    assert 20 < len(words.splitlines()[0]) <= 110


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_there(package: str) -> None:
    """Loaded on first use, and never in the place of a module of the same name."""
    room = importlib.import_module(package)
    names = list(getattr(room, "__all__", ()))
    for name in names:
        assert getattr(room, name) is not None
    assert not set(names) & {module.name for module in iter_modules(room.__path__)}


def test_a_room_says_truly_what_it_may_import() -> None:
    """The end of its docstring names the floor under it, and nothing that stands beside or above it."""
    floors = rooms.floors()
    for number, floor in enumerate(floors):
        under = set(floors[number + 1]) if number + 1 < len(floors) else set()
        below = {room for lower in floors[number + 1 :] for room in lower}
        for room in floor:
            if (ROOT / "fedge" / room / "__init__.py").exists():
                words = importlib.import_module(f"fedge.{room}").__doc__ or ""
                end = words.rstrip().split("\n\n")[-1]
                assert end.startswith("Imports"), f"fedge.{room}"
                assert under <= set(re.findall(r"`(\w+)`", end)) <= below, f"fedge.{room} says: {end}"


@pytest.mark.parametrize("module", ["fedge", "fedge.cli", "hhar", "hhar.cli"])
def test_commands_load_nothing_heavy(module: str) -> None:
    """`fedge --help` and a refused run do not wait for torch."""
    heavy = HEAVY if module.startswith("fedge") else HEAVY - {"polars"} | {"fedge"}
    code = f"import sys, {module}; print(sorted({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("file", "line", "arrow"),
    [
        (None, "", ""),
        ("fedge/config/option.py", "import fedge.run.run", "fedge.config.option -> fedge.run.run"),
        (
            "fedge/training/scaffold.py",
            "from fedge.data import split",
            "fedge.training.scaffold -> fedge.data",
        ),
        ("hhar/npz.py", "import fedge.seeding", "hhar.npz -> fedge.seeding"),
    ],
)
def test_a_forbidden_import_breaks_a_contract(
    file: str | None, line: str, arrow: str, tmp_path: Path
) -> None:
    """Upwards, sideways, or from the data set into the simulator; without one all contracts are kept."""
    for top in ("fedge", "hhar"):
        shutil.copytree(ROOT / top, tmp_path / top, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    if file is not None:
        with (tmp_path / file).open("a", encoding="utf-8") as source:
            source.write(f"\n{line}\n")
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter, "--no-cache"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode == 0) == (file is None), done.stdout
    assert arrow in done.stdout


def test_the_page_of_rooms_is_the_code() -> None:
    """What `python -m tools.rooms` writes is there."""
    page = rooms.PAGE.read_text(encoding="utf-8")
    assert rooms.written(page) == page, "run python -m tools.rooms"


def test_every_cited_contract_is_defined() -> None:
    """Sources and tests cite contracts by number; docs/architecture.md says what they are."""
    defined = set(re.findall(r"^\*\*C(\d+) ", rooms.PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert defined == {str(number) for number in range(1, 16)}
    for top in ("fedge", "hhar", "studies", "tests"):
        for file in (ROOT / top).rglob("*.py"):
            for number in re.findall(
                r"\bC(\d+)\b", " ".join(re.findall(r"ontracts?[^.\n]*", file.read_text(encoding="utf-8")))
            ):
                assert number in defined, f"{file} cites contract C{number}"
