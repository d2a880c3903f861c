"""Rows of a possibly damaged table, e.g. after a power failure; read alike by all Python versions."""

import csv
from collections.abc import Iterable, Iterator


def csv_rows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Cells of each row of CSV text; an unreadable row has no cells.

    Zero bytes, which a disk may leave after a power failure, become U+FFFD, because Python 3.10 refuses them.
    Every version refuses a cell longer than `csv.field_size_limit`.

    >>> list(csv_rows(["round,loss", "1,0.5", "2,\\0"]))
    [['round', 'loss'], ['1', '0.5'], ['2', '\\ufffd']]
    """
    rows = csv.reader(line.replace("\0", "\ufffd") for line in lines)
    while (row := _next_row(rows)) is not None:
        yield row


def _next_row(rows: Iterator[list[str]]) -> list[str] | None:
    """The next row, empty if unreadable; None after the last."""
    try:
        return next(rows, None)
    except csv.Error:
        return []


def records_of(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Column → cell of each row after the header; missing cells are left out.

    >>> list(records_of(["round,loss", "1,0.5", "2"]))
    [{'round': '1', 'loss': '0.5'}, {'round': '2'}]
    """
    rows = csv_rows(lines)
    header = next(rows, [])
    for row in rows:
        yield dict(zip(header, row, strict=False))
