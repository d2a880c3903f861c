"""Modules, names, files and tests in pages and comments exist."""

import re
import shlex
from functools import cache
from itertools import pairwise
from pathlib import Path

import cited
import pytest

from fedge.config.registers import parts
from fedge.config.registers.register import Register
from fedge.launch.projects.project import parse_override

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


def commands():
    """(page, words) of every command of `fedge` and `flwr` in a block for the shell."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        for block in re.findall(r"```(?:sh|bash)\n(.*?)```", text, re.DOTALL):
            command = ""
            for line in block.splitlines():
                command += line + "\n"
                try:
                    words = shlex.split(command, comments=True)
                except ValueError:  # a quotation goes on in the next line
                    continue
                command = ""
                if {"fedge", "flwr"} & set(words):
                    yield page.name, words


def test_options_in_commands_are_read_as_they_stand(tmp_path, monkeypatch):
    """Of every -c, in a folder without a clone of Fedge; "…" stands for more of them."""
    monkeypatch.chdir(tmp_path)
    read = 0
    for page, words in commands():
        for flag, value in pairwise(words):
            if flag == "-c" and "…" not in value:
                read += 1
                if "=" in value or value.startswith(("fedge:", "configs/")):
                    assert parse_override(value), (page, value)
    assert read > 40


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
