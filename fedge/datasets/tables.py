"""Columns of numbers from text files; errors name missing and broken records by line."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hhar.errors import HharError
from hhar.regular import open_regular
from hhar.windows.window_file import MOST

LARGEST = MOST  # of a number in a file; int64 holds it, too


def read_columns(path: Path, names: Sequence[str]) -> NDArray[np.float64]:
    """Columns of a comma-separated file with a header, float64 (rows, columns); all must be finite.

    Raises:
        HharError: a column is not there, or a row is not whole.
    """
    import polars as pl

    with open_regular(path) as stream:
        header = stream.readline(1 << 16).decode("utf-8-sig", "replace").rstrip("\r\n").split(",")
    missing = [name for name in names if name not in [word.strip().strip('"') for word in header]]
    if missing:
        raise HharError(
            f"{path}, line 1: columns must include {', '.join(names)}, lack {', '.join(missing[:3])}; use "
            "the published files"
        )
    indices = [[word.strip().strip('"') for word in header].index(name) for name in names]
    schema = {f"column_{place}": pl.Float64 for place in range(len(header))}
    try:
        frame = pl.read_csv(
            path, has_header=False, skip_rows=1, schema=schema, columns=sorted(set(indices)),
            ignore_errors=True, truncate_ragged_lines=True, quote_char=None,
        )  # fmt: skip
    except pl.exceptions.NoDataError as error:
        raise HharError(f"{path}: must hold rows of numbers, holds none; unpack it again") from error
    table = frame.select([f"column_{place}" for place in indices]).to_numpy()
    refuse_broken_rows(table, path, first_line=2)
    return np.asarray(table, dtype=np.float64)


def refuse_broken_rows(table: NDArray[np.float64], path: Path, first_line: int) -> None:
    """Raise for the first row of (rows, columns) cut short, without numbers, or with far too large ones."""
    if not len(table):
        raise HharError(f"{path}: must hold rows of numbers, holds none; unpack it again")
    broken = np.flatnonzero(~(np.abs(table) <= LARGEST).all(axis=1))
    if len(broken):
        raise HharError(
            f"{path}, line {first_line + broken[0]}: must be a whole row of numbers, is not ({len(broken)} "
            f"of {len(table)} rows); unpack it again, or take the row out"
        )


def read_whole(path: Path, columns: int) -> NDArray[np.int64]:
    """A file of whole numbers between spaces, int64 (rows, `columns`); errors as in `read_matrix`."""
    table = read_matrix(path, columns)
    broken = np.flatnonzero((table != np.rint(table)).any(axis=1))
    if len(broken):
        raise HharError(
            f"{path}, line {1 + broken[0]}: must be whole numbers, is not ({len(broken)} of {len(table)} "
            "rows); unpack it again"
        )
    return table.astype(np.int64)


def read_matrix(path: Path, columns: int) -> NDArray[np.float64]:
    """A file of numbers between spaces, float64 (rows, `columns`), all finite.

    Raises:
        HharError: a missing file, or an incomplete row.
    """
    if not path.is_file():
        raise HharError(f"{path}: must exist; unpack the archive again")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of an empty file, which is refused below
            table = np.loadtxt(path, ndmin=2)
    except ValueError as error:
        reason = str(error)[:200]
        raise HharError(f"{path}: must hold {columns} numbers a row ({reason}); unpack it again") from error
    if table.shape[1:] != (columns,) or not len(table):
        raise HharError(
            f"{path}: must hold {columns} numbers a row, is of shape {table.shape}; unpack it again"
        )
    refuse_broken_rows(table, path, first_line=1)
    return table
