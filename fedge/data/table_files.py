"""Tables of devices, or of moves of clients: CSV with a header, or Parquet.

The first bytes of the file tell which. Rows are read one at a time, because a file may be larger than memory.
Every cell is text: a number of a Parquet file in Python's notation, an empty cell as "". Spaces after commas,
empty lines and a byte order mark are ignored. Only plain files are read, since reading a pipe would block.
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fedge.config.registers.option import ConfigError, shown
from hhar.errors import HharError
from hhar.parquet import parquet_lines
from hhar.regular import open_regular

_PARQUET = b"PAR1"
T = TypeVar("T")
Row = Mapping[str | None, Any]  # name → cell; under None the cells beyond its columns
Table = tuple[tuple[str, ...], Iterator[tuple[str, Row]]]


def table_of(path: Path, option: str) -> Table:
    """The names of a file's columns, in order; and each row, with its position.

    Args:
        path: path of the file.
        option: the file's name in errors.

    Raises:
        ConfigError: the file is unreadable, or has a column twice; later, of a row: it cannot be read, or has
            more cells than there are columns.
    """
    rows = _parquet_rows(path) if _read(path, option, lambda: _is_parquet(path)) else _csv_rows(path)
    _, names = _read(path, option, lambda: next(rows, ("", [])))
    for name, count in Counter(names).items():
        if count > 1:
            raise ConfigError(
                f"{option} must have every column once, but {path} has {shown(name)} {count} times; remove "
                f"one"
            )
    return tuple(names), _rows(path, option, names, rows)


def _rows(
    path: Path, option: str, names: list[str], rows: Iterator[tuple[str, list[str]]]
) -> Iterator[tuple[str, Row]]:
    """Yield the rows by the names of their cells."""
    end: tuple[str, list[str]] = ("", [])
    while (row := _read(path, option, lambda: next(rows, end))) is not end:
        position, cells = row
        if len(cells) > len(names):
            raise ConfigError(
                f"{option} must have as many cells in a row as columns, but {position} has more; fix it, and "
                f"write numbers with points"
            )
        yield position, dict(zip(names, [*cells, *[None] * (len(names) - len(cells))], strict=True))


def _is_parquet(path: Path) -> bool:
    """Whether a file begins as Parquet files do."""
    with open_regular(path) as file:
        return file.read(len(_PARQUET)) == _PARQUET


def _csv_rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Names, then the rows of a CSV file, each with its position."""
    with io.TextIOWrapper(open_regular(path), encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, skipinitialspace=True)
        for cells in reader:
            if cells:
                yield f"{path}, line {reader.line_num}", cells


def _parquet_rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Names, then the rows of a Parquet file, each with its position."""
    for number, cells in enumerate(parquet_lines(path)):
        yield f"{path}, row {number}", cells


def _read(path: Path, option: str, step: Callable[[], T]) -> T:
    """Result of a step of reading; any error of a file is one line."""
    try:
        return step()
    except Exception as error:
        if isinstance(error, HharError):  # begins with the path
            raise ConfigError(f"{option}: {error}") from error
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0] or type(error).__name__
        raise ConfigError(
            f"{option} must be a readable CSV or Parquet file, but {path}: {reason}; check the path"
        ) from error
