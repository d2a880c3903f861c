"""Columns and tables of a run folder: name, type, unit, meaning, and the source of their values.

`fedge.records.tables.catalog` has all tables. The recorder writes them, the reader takes its types from them,
and docs/tables.md is printed from them (`fedge tables`).
"""

import csv
import io
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TextIO

from fedge.process.escape import cell

INT: Literal["int"] = "int"
FLOAT: Literal["float"] = "float"
TEXT: Literal["text"] = "text"
Kind = Literal["int", "float", "text"]
USUAL = {
    "global_round": "from 1",
    "leaf": "number of the leaf, from 0",
    "client": "partition id, from 0",
    "unseen_client": "1: holds users out of training; 0: trains",
    "worker": "number of the worker, from 0",
    "machine": "address on a cluster; in a deployment, its first client to reply, as `client 3`; empty: the "
    "server's",
    "job": "number of the job in the run",
    "device": "partition id of the device's client",
    "attempt": "number of the device's job, from 1",
    "partial": "updates cut short (`devices.partial-work`)",
}
"""Column of several tables → its meaning there."""
ROUND = USUAL["global_round"]
_SAME = 2  # a family whose columns have the same meaning


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
        value: row object of its table → value; None if nothing was measured.
        always: whether every version of Fedge writes it; its absence is reported as a problem.
        less_is_better: whether smaller values are better.
        is_total: whether a row has the total of the run so far, and not the number of its round.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    value: Callable[[Any], Any]
    always: bool = True
    less_is_better: bool = False
    is_total: bool = False


def later_column(name: str, kind: Kind, unit: str, meaning: str, value: Callable[[Any], Any]) -> Column:
    """A column missing from tables of earlier versions."""
    return Column(name, kind, unit, meaning, value, always=False)


@dataclass(frozen=True)
class Table:
    """One CSV file of a run folder.

    Attributes:
        path: path below the run folder; ``*`` stands for a number.
        about: meaning of a row.
        columns: columns, in the order of the file.
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
        _write_rows(file, [self.names])

    def write(self, file: TextIO, rows: Iterable[Any]) -> None:
        """Append row objects to the table."""
        _write_rows(file, ([_cell(value) for value in self.row(row)] for row in rows))

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


def _write_rows(file: TextIO, rows: Iterable[Sequence[Any]]) -> None:
    """Append rows of cells."""
    csv.writer(file, lineterminator="\n").writerows(rows)


def _cell(value: Any) -> Any:
    """A value as a table cell: empty if not measured, and never a formula.

    Numbers have the fewest digits needed to restore the same float.
    """
    if value is None or (isinstance(value, float) and value != value):
        return ""
    if isinstance(value, str):
        return cell(value)
    return repr(float(value)) if isinstance(value, float) else value


def columns_as_markdown(tables: Sequence[Table], usual: Mapping[str, str]) -> str:
    """All columns as Markdown: a section per table, and a row per column or family of columns.

    The columns of a family are adjacent, and their meanings are the same, or have a common beginning or end,
    such as "accuracy: mean" and "accuracy: smallest".

    Args:
        tables: tables, in order.
        usual: name → meaning of columns described once for all tables, before the first.
    """
    rows = [f"| `{name}` | {meaning} |" for name, meaning in usual.items()]
    shared_section = ["\n".join([*_HEADER, *rows])] if usual else []
    return "\n\n".join([*shared_section, *(_table_section(table, usual) for table in tables)]) + "\n"


_HEADER = ("| column | meaning (unit) |", "|---|---|")


def _table_section(table: Table, usual: Mapping[str, str]) -> str:
    """Section of a table; columns with their usual meaning are only named."""
    usual_columns = [f"`{c.name}`" for c in table.columns if usual.get(c.name) == c.meaning]
    about = f"{table.about} Also {', '.join(usual_columns)}." if usual_columns else table.about
    lines = [f"## `{table.path}`", "", about, "", *_HEADER]
    for family in _families([c for c in table.columns if usual.get(c.name) != c.meaning]):
        names = ", ".join(f"`{column.name}`" for column in family)
        meaning = _combine_meanings([column.meaning for column in family]).replace("|", chr(92) + "|")
        lines.append(f"| {names} | {meaning}{_unit_suffix(family[0], meaning)} |")
    return "\n".join(lines)


def _unit_suffix(column: Column, meaning: str) -> str:
    """Unit in brackets, unless the meaning mentions it; "text" for text."""
    unit = TEXT if column.kind == TEXT else column.unit
    return f" ({unit})" if unit and not re.search(rf"(?<![\w'])({unit})\b", meaning) else ""


def _families(columns: Sequence[Column]) -> list[list[Column]]:
    """Columns in order; adjacent columns with a common type, unit and part of their meaning form a family."""
    families: list[list[Column]] = []
    for column in columns:
        family = families[-1] if families else []
        are_alike = [(other.kind, other.unit) == (column.kind, column.unit) for other in family]
        if (
            family
            and all(are_alike)
            and _common_part(member.meaning for member in [*family, column]) is not None
        ):
            family.append(column)
        else:
            families.append([column])
    return families


def _common_part(meanings: Iterable[str]) -> int | None:
    """Index of the part, 0 or 1, common to all meanings "A: B"; None if they have neither.

    2 if several columns have the same meaning.
    """
    meanings = list(meanings)
    if len(meanings) > 1 and len(set(meanings)) == 1:
        return _SAME
    parts = [meaning.split(": ", 1) for meaning in meanings]
    if any(len(part) < 2 for part in parts):
        return None
    return next((part for part in (0, 1) if len({split[part] for split in parts}) == 1), None)


def _combine_meanings(meanings: Sequence[str]) -> str:
    """One meaning for all columns of a family."""
    common = _common_part(meanings)
    if len(meanings) == 1 or common is None or common == _SAME:
        return meanings[0]
    parts = [meaning.split(": ", 1) for meaning in meanings]
    varying = "; ".join(part[1 - common] for part in parts)
    return f"{parts[0][0]}: {varying}" if common == 0 else f"{varying}: {parts[0][1]}"
