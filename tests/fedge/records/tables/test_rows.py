"""Rows of tables that a power cut or a hand has damaged."""

import csv

import pytest

from fedge.records.tables.rows import csv_rows, records_of

LONG = "x" * (csv.field_size_limit() + 1)


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("1,a", ["1", "a"]),
        ("", []),
        ("\0\0", ["\ufffd\ufffd"]),
        (LONG, []),
        ("1," + LONG, []),
        ('1,"a', ["1", "a"]),
    ],
    ids=["whole", "empty", "zeros", "endless", "endless second cell", "open quote"],
)
def test_a_row_that_cannot_be_read_has_no_cells_and_ends_nothing(line, read):
    assert list(csv_rows(["round,words", line])) == [["round", "words"], read]
    assert list(csv_rows([line])) == [read]


def test_rows_after_a_damaged_one_are_read():
    assert list(records_of(["round,words", LONG, "\0", "2,b,c"])) == [
        {},
        {"round": "\ufffd"},
        {"round": "2", "words": "b"},
    ]
    assert list(records_of([])) == []
