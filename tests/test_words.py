"""tools.words, by hand; docstrings whose first words name the thing; messages in plain words."""

import pytest

from tools.words import ROOT, comments, docstrings, messages, per_thousand, riddles, stilted

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


def test_a_stilted_message_is_found(tmp_path):
    """Also in an f-string over two lines; not in a docstring."""
    path = tmp_path / "module.py"
    source = '"""Nobody, anew."""\nx = 1\nraise ValueError(f"{x} must be 2, "\n    f"but is 1; mend it")\n'
    path.write_text(source)
    assert list(messages(source)) == [" must be 2, but is 1; mend it"]
    assert stilted([path]) == [f"{path}: must be 2, but is 1; mend it"]


def test_messages_are_in_plain_words():
    """Errors, notes, help and meanings of options, in words of the field: "fix it", not "mend it"."""
    rooms = ("fedge", "hhar")
    assert stilted(path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))) == []
