"""tools.words, by hand; and docstrings whose first words name the thing."""

import pytest

from tools.words import ROOT, comments, docstrings, per_thousand, riddles

SOURCE = '''"""A module. It does what it says."""
x = 1  # what it holds


def f():
    """Mean of `what` that is given."""
'''


def test_docstrings_and_comments_are_found():
    assert docstrings(SOURCE) == ["A module. It does what it says.", "Mean of `what` that is given."]
    assert list(comments(SOURCE)) == ["what it holds"]


def test_words_per_thousand_by_hand():
    """Twelve words: it twice, what once, that once; the one in backquotes does not count."""
    total, shares = per_thousand(docstrings(SOURCE))
    assert total == 12
    assert shares["it"] == pytest.approx(2000 / 12)
    assert shares["what"] == pytest.approx(1000 / 12)
    assert shares["that"] == pytest.approx(1000 / 12)
    assert shares["who"] == 0


@pytest.mark.parametrize(
    "first",
    ["Return a mean.", "What there is.", "Who is asked.", "Whose it is.", "Tell what happened."],
)
def test_a_riddle_is_found(first, tmp_path):
    path = tmp_path / "module.py"
    path.write_text(f'"""{first}"""\n')
    assert riddles([path]) == [f"{path}: {first}"]


def test_docstrings_name_their_thing_first():
    """No "Return …", no "Who is …", in all Python of the repository: the name of the result or the act."""
    rooms = ("benchmarks", "examples", "fedge", "hhar", "studies", "tests", "tools")
    assert riddles(path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))) == []
