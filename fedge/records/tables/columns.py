"""Columns and tables of a run folder: name, type, unit, meaning, and the source of their values.

`fedge.records.tables.catalog` has all tables. The recorder writes them, the reader takes its types from them,
and docs/tables.md is printed from them (`fedge tables`).
"""

import csv
import io
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TextIO

from fedge.process.escape import cell

INT: Literal["int"] = "int"
FLOAT: Literal["float"] = "float"
TEXT: Literal["text"] = "text"
Kind = Literal["int", "float", "text"]
ROUND = "from 1"


def at(path: str) -> Callable[[Any], Any]:
    """Reader of an attribute path, e.g. "leaf.gate.blend"; None if any step of it is None."""
    names = path.split(".")
    if len(names) == 1:
        return operator.attrgetter(path)

    def look_up(row: Any) -> Any:
        for name in names:
            row = None if row is None else getattr(row, name)
        return row

    return look_up


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        name: name in the header.
        kind: type of its values.
        unit: unit of its values; empty for dimensionless ones.
        meaning: description for readers of the table.
        value: row object of its table → value; None where nothing was measured.
        always: whether every version of Fedge writes it; its absence is reported as a problem.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    value: Callable[[Any], Any]
    always: bool = True


def later_column(name: str, kind: Kind, unit: str, meaning: str, value: Callable[[Any], Any]) -> Column:
    """A column that earlier versions did not write."""
    return Column(name, kind, unit, meaning, value, always=False)


@dataclass(frozen=True)
class Table:
    """One CSV file of a run folder.

    Attributes:
        path: path below the run folder; ``*`` stands for a number.
        about: meaning of a row.
        columns: in the order of the file.
        always: whether every version of Fedge writes it.
        optional: whether a run can resume without it, because it has no results.
    """

    path: str
    about: str
    columns: tuple[Column, ...]
    always: bool = True
    optional: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The header."""
        return tuple(column.name for column in self.columns)

    def row(self, row: Any) -> list[Any]:
        """Values of a row object, in the order of the columns."""
        return [column.value(row) for column in self.columns]

    def write_header(self, file: TextIO) -> None:
        """Write the header."""
        _write(file, [self.names])

    def write(self, file: TextIO, rows: Iterable[Any]) -> None:
        """Append row objects to the table."""
        _write(file, ([_cell(value) for value in self.row(row)] for row in rows))

    def fit(self, file: TextIO) -> None:
        """Convert a table of another version to the columns of this one; missing cells are left empty."""
        file.seek(0)
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) == self.names:
            return
        rows = list(reader)
        file.seek(0)
        file.truncate()
        table = csv.DictWriter(file, self.names, restval="", extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)

    def text(self, rows: Iterable[Any]) -> str:
        """The whole table as text."""
        file = io.StringIO()
        self.write_header(file)
        self.write(file, rows)
        return file.getvalue()


def _write(file: TextIO, rows: Iterable[Sequence[Any]]) -> None:
    """Append rows of cells."""
    csv.writer(file, lineterminator="\n").writerows(rows)


def _cell(value: Any) -> Any:
    """A value as a table cell: empty if not measured, and never a formula.

    Numbers have the fewest digits that restore the same float.
    """
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, str):
        return cell(value)
    return repr(float(value)) if isinstance(value, float) else value


def columns_as_markdown(tables: Sequence[Table]) -> str:
    """All columns as Markdown: a section per table, a row per column."""
    return "\n\n".join(map(_described, tables)) + "\n"


def _described(table: Table) -> str:
    lines = [
        f"## `{table.path}`",
        "",
        table.about,
        "",
        "| column | type | unit | meaning |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{c.name}` | {c.kind} | {c.unit} | {c.meaning.replace('|', chr(92) + '|')} |"
        for c in table.columns
    ]
    return "\n".join(lines)
