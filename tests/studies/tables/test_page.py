"""The page of tables: sections between their marks, a list counted by hand, names that are refused."""

from pathlib import Path

import pytest

from studies.tables.page import BEGIN, END, HERE, folders, main, overview, put

ROOT = Path(__file__).parents[3]
PAGE = """
## One
*table-one-cut*, `make table-one`: 3 of 6 runs.
| where | x | 1 | 2 | [0, 3] | 3 | 0.1 | inside |
| where | y | 9 | 2 | [0, 3] | 3 | 0.1 | outside |
| where | z | 9 | 2 | [0, 3] | 3 | 0.1 | outside |
*table-one-as-published*: not run. `make table-one SETTINGS=as-published`: 6 runs.
## Two
| inside |
*question-two*, `make question-two`: 2 of 2 runs.
"""


def test_the_list_counts_what_the_page_says():
    rows = overview(PAGE).splitlines()[2:]
    assert rows == [
        "| One | `table-one-cut` | 3 of 6 | 1 | 2 |",
    ]


def test_a_part_stands_between_its_marks():
    text = f"a {BEGIN.format('x')} old {END.format('x')} z"
    assert put(text, "x", "new") == f"a {BEGIN.format('x')}\n\nnew\n{END.format('x')} z"
    assert put(text, "y", "new") == text


def test_one_table_leaves_the_others(tmp_path, capsys):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "reported.toml").write_text(f'title = "{name}"\nsource = "s"\nmeasures = []\n')
    page = tmp_path / "page.md"
    marks = "".join(f"{BEGIN.format(name)}\nold\n{END.format(name)}\n" for name in ("list", "one", "two"))
    page.write_text(marks)
    assert main(["one", "--tables", str(tmp_path), "--page", str(page)]) == 0
    text = page.read_text()
    assert "## one" in text
    assert text.count("old") == 1
    assert main(["three", "--tables", str(tmp_path), "--page", str(page)]) == 2
    assert capsys.readouterr().err == "studies.tables: a table must be one of one, two, but is 'three'\n"


@pytest.mark.parametrize("name", [*folders(HERE), "list"])
def test_every_table_has_its_place_on_the_page(name):
    text = (ROOT / "docs/tables-of-papers.md").read_text(encoding="utf-8")
    assert text.count(BEGIN.format(name)) == text.count(END.format(name)) == 1
