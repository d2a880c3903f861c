"""SECURITY.md: every promise has its test, and every test that it names is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
SECTIONS = ("## What is promised", "## Deployments: what holds, and its test")


def rows(section):
    """(promise, rest of the row) of each row of a section's table."""
    lines = [line for line in TEXT.partition(section)[2].partition("\n## ")[0].splitlines() if "|" in line]
    return [tuple(cell.strip() for cell in line.strip("|").split("|", 1)) for line in lines[2:]]


def named_tests(text):
    """Paths of tests that a text names; one without its folder is in that of the one before."""
    folder, found = Path(), []
    for name in re.findall(r"`([\w./-]*test_\w+\.py)`", text):
        folder = Path(name).parent if "/" in name else folder
        found.append(ROOT / folder / Path(name).name)
    return found


@pytest.mark.parametrize(("promise", "said"), [row for section in SECTIONS for row in rows(section)])
def test_a_promise_names_tests_that_are_there(promise, said):
    tests = named_tests(said)
    assert tests, f"no test is named for: {promise}"
    for test in tests:
        assert test.is_file(), f"{test} is not there, which is named for: {promise}"
        assert "def test_" in test.read_text(encoding="utf-8")


def test_all_tests_that_are_named_anywhere_are_there():
    assert [str(test) for test in named_tests(TEXT) if not test.is_file()] == []


def test_a_name_of_none_would_be_found():
    assert not named_tests("`tests/fedge/link/test_nothing_of_the_kind.py`")[0].is_file()
    assert named_tests("`tests/a/test_b.py`, `test_c.py`") == [
        ROOT / f"tests/a/test_{name}.py" for name in "bc"
    ]
