"""Rows of a table that may be damaged, as after a power cut: the same on every version of Python."""

import csv
from collections.abc import Iterable, Iterator


def rows_of(lines: Iterable[str]) -> Iterator[list[str]]:
    """Yield the cells of each row of CSV text; none of a row that cannot be read.

    Zero bytes, which a disk leaves where it had no time to write, are shown as U+FFFD; Python 3.10 refuses
    them, and every version refuses a cell longer than `csv.field_size_limit`.

    >>> list(rows_of(["round,loss", "1,0.5", "2,\\0"]))
    [['round', 'loss'], ['1', '0.5'], ['2', '\\ufffd']]
    """
    rows = csv.reader(line.replace("\0", "\ufffd") for line in lines)
    while (row := _next(rows)) is not None:
        yield row


def _next(rows: Iterator[list[str]]) -> list[str] | None:
    """The next row, empty if it cannot be read; None after the last."""
    try:
        return next(rows, None)
    except csv.Error:
        return []


def records_of(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield column → cell of each row below the first, which names the columns; missing cells are left out.

    >>> list(records_of(["round,loss", "1,0.5", "2"]))
    [{'round': '1', 'loss': '0.5'}, {'round': '2'}]
    """
    rows = rows_of(lines)
    header = next(rows, [])
    for row in rows:
        yield dict(zip(header, row, strict=False))
