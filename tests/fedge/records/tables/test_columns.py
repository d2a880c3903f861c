"""A column and a table by hand: values, cells, and a table that another version began."""

import csv
import io
from types import SimpleNamespace

import pytest

from fedge.records.tables.columns import FLOAT, INT, TEXT, Column, Table, at, columns_as_markdown

TABLE = Table(
    "some.csv",
    "A row per thing.",
    (
        Column("n", INT, "", "number", at("n")),
        Column("size", FLOAT, "m", "how long", at("inner.size")),
        Column("name", TEXT, "", "a | b", lambda row: row.name.upper(), always=False),
    ),
)


def thing(n, size, name="x"):
    return SimpleNamespace(n=n, inner=None if size is None else SimpleNamespace(size=size), name=name)


def test_values_are_looked_up_step_by_step():
    assert at("inner.size")(thing(1, 2.5)) == 2.5
    assert at("inner.size")(thing(1, None)) is None
    with pytest.raises(AttributeError):
        at("inner.weight")(thing(1, 2.5))


def test_cells_by_hand():
    """Shortest digits of a float; nothing for None and NaN; a text with a comma in quotes."""
    rows = [thing(1, 0.1), thing(2, None), thing(3, float("nan"), "a,b"), thing(4, 1e300)]
    assert TABLE.text(rows) == 'n,size,name\n1,0.1,X\n2,,X\n3,,"A,B"\n4,1e+300,X\n'
    assert TABLE.names == ("n", "size", "name")


def test_a_table_of_another_version_gets_these_columns():
    file = io.StringIO("n,mood\n1,good\n")
    TABLE.fit(file)
    assert file.getvalue() == "n,size,name\n1,,\n"
    TABLE.fit(file)
    assert file.getvalue() == "n,size,name\n1,,\n"


def test_description_by_hand():
    assert columns_as_markdown([TABLE], {}) == (
        "## `some.csv`\n\nA row per thing.\n\n| column | meaning (unit) |\n|---|---|\n"
        "| `n` | number |\n| `size` | how long (m) |\n| `name` | a \\| b (text) |\n"
    )


def test_a_column_of_many_tables_is_described_once():
    """Where it has its usual meaning."""
    text = columns_as_markdown([TABLE], {"n": "number", "size": "how wide"})
    assert text.startswith(
        "| column | meaning (unit) |\n|---|---|\n| `n` | number |\n| `size` | how wide |\n\n##"
    )
    assert "\n\nA row per thing. Also `n`.\n\n" in text
    assert text.splitlines()[-3:] == [
        "|---|---|",
        "| `size` | how long (m) |",
        "| `name` | a \\| b (text) |",
    ]


def test_a_unit_that_its_meaning_names_is_not_repeated():
    columns = [
        Column(name, INT, "jobs", text, lambda row: row)
        for name, text in (("a", "jobs at work"), ("b", "lost"), ("c", "of jobsharing"))
    ]
    assert columns_as_markdown([Table("t.csv", "", tuple(columns))], {}).splitlines()[6:] == [
        "| `a` | jobs at work |",
        "| `b` | lost (jobs) |",
        "| `c` | of jobsharing (jobs) |",
    ]


def test_a_family_of_columns_is_one_row():
    """A common beginning, a common end, the same; another unit, or nothing in common, is another row."""
    meanings = ("score: mean", "score: worst", "time", "p50: queue", "max: queue", "p50: run")
    columns = [Column(f"c{n}", FLOAT, "s", text, lambda row: row) for n, text in enumerate(meanings)]
    columns.append(Column("c6", FLOAT, "MiB", "max: run", lambda row: row))
    columns += [Column(f"c{n}", FLOAT, "s", "share", lambda row: row) for n in (7, 8)]
    assert columns_as_markdown([Table("t.csv", "", tuple(columns))], {}).splitlines()[6:] == [
        "| `c0`, `c1` | score: mean; worst (s) |",
        "| `c2` | time (s) |",
        "| `c3`, `c4` | p50; max: queue (s) |",
        "| `c5` | p50: run (s) |",
        "| `c6` | max: run (MiB) |",
        "| `c7`, `c8` | share (s) |",
    ]


def test_no_text_in_a_table_is_a_formula_or_moves_a_terminal():
    """Names of users and devices in partition.csv are shown by a spreadsheet or a terminal, no more."""
    table = Table("t.csv", "", (Column("name", TEXT, "", "", lambda row: row),))
    rows = list(csv.reader(io.StringIO(table.text(["=cmd|' /C calc'!A0", "a\x1b[2Jb", "Ana", "-1"]))))
    assert rows == [["name"], ["'=cmd|' /C calc'!A0"], ["a\\x1b[2Jb"], ["Ana"], ["'-1"]]
