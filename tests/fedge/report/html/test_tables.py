"""Numbers as text, and tables of them."""

import math

import polars as pl
import pytest

from fedge.report.html.tables import (
    NOTHING,
    bytes_text,
    frame_table,
    minus,
    numbered,
    percent,
    ranges,
    seconds_text,
    table,
    text_of,
    total,
)
from hhar.quantity import quantity


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, NOTHING), (math.nan, NOTHING), (True, "true"), (3, "3"), ("a", "a"),
        (0.12345, "0.1235"), (12.345, "12.3"), (1234.5, "1,234"), (-0.5, "−0.5000"), (-0.00001, "0.0000"),
        (math.inf, "∞"), (-math.inf, "−∞"), (9.6e14, "960,000,000,000,000"), (-1e304, "−1.0e+304"),
    ],
)  # fmt: skip
def test_values_as_text(value, text):
    assert text_of(value) == text


def test_amounts():
    assert [bytes_text(size) for size in (12, 1500, 2.5e6, 3e9, 4e12)] == [
        "12 B",
        "1.5 kB",
        "2.5 MB",
        "3.0 GB",
        "4.0 TB",
    ]
    assert [seconds_text(s) for s in (3.21, 59.94, 245, 7380)] == [
        "3.2 s",
        "59.9 s",
        "4 min 05 s",
        "2 h 03 min",
    ]
    assert (percent(1, 8), percent(1, 0)) == ("12.5 %", NOTHING)
    assert [quantity(n, noun) for n, noun in ((1, "leaf"), (2, "leaf"), (0, "round"))] == [
        "1 leaf",
        "2 leaves",
        "0 rounds",
    ]
    assert ranges([1, 2, 3, 5, 7, 8]) == "1–3, 5, 7–8"
    assert ranges([]) == ""
    assert (numbered("round", [2]), numbered("seed", [1, 2, 3, 7])) == ("round 2", "seeds 1–3, 7")
    assert minus(f"{-0.5:.2f}") == text_of(-0.5)[:5] == "−0.50"


def test_columns_of_numbers_are_numeric():
    found = table(["name", "score", "note"], [["a", 0.5, None], ["b", None, "late"]])
    assert found.numeric == {1}
    assert found.rows == [["a", "0.5000", NOTHING], ["b", NOTHING, "late"]]


def test_frames():
    frame = pl.DataFrame({"a": [1, 2], "b": [0.5, None]})
    assert frame_table(frame, b="share").rows == [["0.5000"], [NOTHING]]
    assert total(frame, "a", "b") == 3.5
