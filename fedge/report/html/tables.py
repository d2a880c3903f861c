"""Numbers as text, and tables of them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from hhar.quantity import quantity

NOTHING = "–"  # a value not measured
_LARGE = 1e15  # from here on, the digits would fill a line


@dataclass(frozen=True)
class NumberTable:
    """A table for a page.

    Attributes:
        headers: one per column.
        rows: cells as text.
        numeric: right-aligned columns.
        best: (row, column) of cells marked as the best.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    numeric: frozenset[int]
    best: frozenset[tuple[int, int]] = frozenset()


def table(
    headers: Sequence[str], rows: Iterable[Sequence[Any]], best: Iterable[tuple[int, int]] = ()
) -> NumberTable:
    """A table of `rows` with some cells marked as `best`; a column of numbers only is numeric."""
    cells = [list(row) for row in rows]
    numeric = {
        column
        for column in range(len(headers))
        if all(not isinstance(row[column], str) or row[column] == NOTHING for row in cells)
        and any(not isinstance(row[column], str) for row in cells)
    }
    texts = [[text_of(cell) for cell in row] for row in cells]
    return NumberTable(headers, texts, frozenset(numeric), frozenset(best))


def frame_table(frame: pl.DataFrame, **headers: str) -> NumberTable:
    """A table of the columns named in `headers`: column=header."""
    return table(list(headers.values()), frame.select(list(headers)).iter_rows())


def text_of(value: Any) -> str:
    """A value as text: four decimals below 10, fewer above; as 1.0e+20 if a diverged model's."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NOTHING
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        size = abs(value)
        if size >= _LARGE:
            return f"{'−' * (value < 0)}{size:.1e}".replace("inf", "∞")
        text = f"{size:.4f}" if size < 10 else f"{size:.1f}" if size < 1000 else f"{size:,.0f}"
        return f"−{text}" if value < 0 and float(text.replace(",", "")) else text
    return str(value)


def total(frame: pl.DataFrame, *columns: str) -> float:
    """Sum of all numbers in the columns."""
    return float(frame.select(pl.sum_horizontal(pl.col(columns).sum())).item() or 0.0)


def last(frame: pl.DataFrame, column: str) -> float | None:
    """Number in the last row; None if the column is missing, as in older runs."""
    return frame[column][-1] if column in frame.columns else None


def percent(part: float, whole: float) -> str:
    """A share as text."""
    return f"{100 * part / whole:.1f} %" if whole else NOTHING


def bytes_text(size: float) -> str:
    """A number of bytes with its decimal unit, e.g. 12.3 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def seconds_text(seconds: float) -> str:
    """A duration in seconds as text: 3.2 s, 4 min 05 s or 2 h 03 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """A noun with ascending whole numbers: "round 2", "rounds 2–10, 12"."""
    _, _, nouns = quantity(len(numbers), noun).partition(" ")
    return f"{nouns} {ranges(numbers)}"


def minus(text: str) -> str:
    """A number as text with a real minus sign, as `text_of` writes it."""
    return text.replace("-", "−")


def ranges(numbers: Sequence[int]) -> str:
    """Ascending whole numbers as text such as "1–3, 5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts)
