"""Text from elsewhere is shown, not carried out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.process.escape import cell, cell_text, printable, read_json


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "a\nb", "a\rb", "\x00", "\u202eabc", "\u2028", "\ud800",
        "\N{TAG LATIN SMALL LETTER A}",
    ],
)  # fmt: skip
def test_what_a_terminal_would_act_on_is_escaped(text):
    made = printable(text)
    assert made.isprintable()
    assert made.encode("utf-8").decode("unicode_escape") == text


@given(st.text())
def test_printable_text_stays_as_it_is(text):
    made = printable(text)
    assert made.isprintable()
    assert (made == text) == text.isprintable()
    assert printable(made) == made


@pytest.mark.parametrize("text", ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "=\t1"])
def test_no_cell_is_a_formula(text):
    assert cell(text) == "'" + printable(text)


@given(st.text(alphabet="'=+-@a1"))
def test_cells_are_told_apart_and_give_their_text_back(text):
    assert cell_text(cell(text)) == text
    assert cell(text).lstrip("'")[:1] not in tuple("=+-@") or cell(text).startswith("'")


def test_names_are_cells_as_they_are():
    assert [cell(name) for name in ("nexus4_1", "Ana", "", "a=b")] == ["nexus4_1", "Ana", "", "a=b"]


def test_json_that_is_nested_without_end_is_no_json():
    with pytest.raises(ValueError, match="nested without end"):
        read_json("[" * 100_000)
