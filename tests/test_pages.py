"""Modules, names, files and tests in pages and comments exist."""

import re
from functools import cache
from pathlib import Path

import cited
import pytest

from fedge.config.registers import parts
from fedge.config.registers.register import Register

ROOT = cited.ROOT
GROUPS = {register.group for register in vars(parts).values() if isinstance(register, Register)}
IN_WHEELS = {"fedge/packaged/pyproject.toml", "fedge/packaged/docs/index.md"}  # made by the build
MADE_UP = {
    "fedge.from_pandas",
    "fedge.leaf.sizes",
    "fedge.somewhere",
    "tests/test_my_study_2.py",
}  # what tests make, or look for in vain


@cache
def functions(file: Path) -> frozenset[str]:
    """The test functions of a file."""
    return frozenset(re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8")))


@pytest.mark.slow
def test_every_name_that_is_cited_is_there():
    """`fedge.room.module.name` in a page, docstring or comment."""
    missing = [
        f"{file.relative_to(ROOT)}: {name}"
        for file, text in cited.texts()
        for name in cited.names(text)
        if name not in GROUPS | MADE_UP and not cited.is_there(name)
    ]
    assert missing == []


def test_every_file_that_is_cited_is_there():
    """Seen from the root, from the page, or from tests/."""
    missing = [
        f"{file.relative_to(ROOT)}: {path}"
        for file, text in cited.texts()
        for path, _ in cited.files(text)
        if path not in IN_WHEELS | MADE_UP
        and not any((place / path).exists() for place in (ROOT, file.parent, ROOT / "tests"))
    ]
    assert missing == []


@pytest.mark.parametrize("page", ["reliability", "privacy", "serving"])
def test_every_test_that_a_page_names_is_there(page):
    """In the file that is named for it, or in any."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    everywhere = {name for file in (ROOT / "tests").rglob("test_*.py") for name in functions(file)}
    missing = [
        f"{path}::{name}"
        for path, name in cited.tests(text)
        if name not in (functions(ROOT / "tests" / path) if path else everywhere)
        and not any((ROOT / "tests").rglob(f"{name}.py"))
    ]
    assert missing == []


def test_the_resolver_knows_what_is_not_there():
    """It would be of no use if it found everything."""
    assert cited.is_there("fedge.states.averaging.weighted_mean")
    assert cited.is_there("fedge.simulate")
    for name in (
        "fedge.strategy",
        "fedge.states.averaging.median",
        "fedge.records.reading.reader.RunData.lanes",
    ):
        assert not cited.is_there(name)
    assert list(cited.files("see docs/nowhere.md and `fedge/run.py::main`")) == [
        ("docs/nowhere.md", ""),
        ("fedge/run.py", "main"),
    ]
