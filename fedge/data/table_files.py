"""Rows of a file on devices, or moves of clients: CSV with a header, or Parquet.

The two are told apart by how the file begins. Read a row, or a slice of rows, at a time, because a file may
be larger than memory. Every cell is text, a number of a Parquet file in Python's notation; an empty one is
"". Spaces after commas, empty lines and a byte order mark do not count.
"""

import csv
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fedge.config.registers.option import ConfigError

_PARQUET = b"PAR1"
_SLICE = 65_536  # rows
T = TypeVar("T")
Row = Mapping[str | None, Any]  # name → cell; under None the cells beyond its columns


def header_of(path: Path, option: str) -> tuple[str, ...]:
    """The names of a file's columns, in order; errors: `rows_of`."""

    def read() -> tuple[str, ...]:
        if _is_parquet(path):
            import polars as pl

            return tuple(pl.read_parquet_schema(path))
        with path.open(newline="", encoding="utf-8-sig") as file:
            return tuple(csv.DictReader(file, skipinitialspace=True).fieldnames or ())

    return _read(path, option, read)


def rows_of(path: Path, option: str) -> Iterator[tuple[str, Row]]:
    """Each row, and where it stands.

    Args:
        path: of the file.
        option: the file's name in errors.

    Raises:
        ConfigError: the file is unreadable.
    """
    rows = _read(path, option, lambda: _of_parquet(path) if _is_parquet(path) else _of_csv(path))
    end: tuple[str, Row] = ("", {})
    while (found := _read(path, option, lambda: next(rows, end))) is not end:
        yield found


def _is_parquet(path: Path) -> bool:
    """Whether a file begins as Parquet files do."""
    with path.open("rb") as file:
        return file.read(len(_PARQUET)) == _PARQUET


def _of_csv(path: Path) -> Iterator[tuple[str, Row]]:
    """The rows of a CSV file."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, skipinitialspace=True)
        for row in reader:
            yield f"{path}, line {reader.line_num}", row


def _of_parquet(path: Path) -> Iterator[tuple[str, Row]]:
    """The rows of a Parquet file, some at a time."""
    import polars as pl

    frame, first = pl.scan_parquet(path), 0
    while len(rows := frame.slice(first, _SLICE).collect()):
        for number, row in enumerate(rows.iter_rows(named=True), first + 1):
            yield f"{path}, row {number}", {n: "" if cell is None else str(cell) for n, cell in row.items()}
        first += len(rows)


def _read(path: Path, option: str, act: Callable[[], T]) -> T:
    """Result of a step of reading; any error of a file is one line."""
    try:
        return act()
    except Exception as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
        raise ConfigError(
            f"{option} must be a readable CSV or Parquet file, but {path}: {reason}; check the path"
        ) from error
