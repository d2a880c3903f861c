"""Rows of a Parquet file, read in a separate process.

On damaged files Polars may kill the process, print the stacks of its threads, or take all the memory a page
claims. So a process with limited memory reads the file, and writes its names and cells, all text, to a
temporary file, one line of JSON per row; if that process fails, the caller gets a one-line error.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from hhar.regular import open_regular

MOST_MEMORY_BYTES = 4 << 30  # of the process, beside the file itself; a row group must fit in
ROWS_FROM = 1_000_000  # always allowed; beyond, a row for each byte of the file
LONGEST_CELL = 131_072  # characters, as in CSV
_LONGEST_S = 3600.0
_SLICE = 65_536  # rows
_STANDARD_INPUT = "/dev/fd/0"
_CODE = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from hhar.parquet import tell_parquet; tell_parquet(*sys.argv[2:])"
)


class ParquetError(ValueError):
    """A fault of a Parquet file: the finding."""


def parquet_lines(path: Path) -> Iterator[list[str]]:
    """The names of a file's columns, then the cells of each row; an empty cell is "".

    Raises:
        ParquetError: the file is damaged, claims too much, or has columns of other than numbers and text.
        OSError: no process can be started, or there is no room for its output.
    """
    with tempfile.TemporaryFile() as output:
        exit_code = _run_reader(path, output)
        output.seek(0)
        for line in output:
            if not line.endswith(b"\n"):
                break  # the process ended while it wrote
            value = json.loads(line)
            if isinstance(value, str):
                raise ParquetError(value)
            yield value
        if exit_code:
            name = signal.Signals(-exit_code).name if exit_code < 0 else f"exit code {exit_code}"
            raise ParquetError(f"its reader ended with {name}: damaged, or larger than memory")


def _run_reader(path: Path, output: IO[bytes]) -> int:
    """Exit code of the process reading `path` into `output`."""
    command = [sys.executable, "-I", "-c", _CODE, json.dumps(sys.path)]
    limits = [str(number) for number in (MOST_MEMORY_BYTES, ROWS_FROM, _SLICE)]
    environment = {**os.environ, "POLARS_MAX_THREADS": "2", "RUST_BACKTRACE": "0"}
    try:
        with open_regular(path) as file:  # by its descriptor: Polars takes some names for patterns
            return subprocess.run(
                [*command, *limits], stdin=file, stdout=output, stderr=subprocess.DEVNULL, env=environment,
                timeout=_LONGEST_S, check=False,
            ).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ParquetError(f"it must be read within {_LONGEST_S:g} s") from None


# --- in the separate process --------------------------------------------------------------------------


def tell_parquet(most_memory: str, rows_from: str, rows_at_once: str) -> None:
    """Print the Parquet file at standard input: lines of JSON with names, cells of a row, or a fault."""
    _limit_memory(int(most_memory))
    try:
        for line in _read_lines(int(rows_from), int(rows_at_once)):
            sys.stdout.write(json.dumps(line) + "\n")
    except BaseException as error:  # a panic of Polars is no Exception
        message = str(error).strip().split("\n")[0][:300]
        sys.stdout.write(json.dumps(message or type(error).__name__) + "\n")
    sys.stdout.flush()
    os._exit(0)  # panicked threads of Polars may never end


def _limit_memory(most_memory: int) -> None:
    """Bound this process's memory, where the system can; the mapped file itself does not count."""
    try:
        import resource
    except ImportError:
        return
    for kind, limit in ((resource.RLIMIT_DATA, most_memory), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        if hard == resource.RLIM_INFINITY or hard > limit:
            resource.setrlimit(kind, (limit, limit))


def _read_lines(rows_from: int, rows_at_once: int, path: str = _STANDARD_INPUT) -> Iterator[list[str]]:
    """Names, then cells; raises any error of Polars, and ParquetError for refused content."""
    import polars as pl

    frame = pl.scan_parquet(path, glob=False, hive_partitioning=False, low_memory=True)
    schema = frame.collect_schema()
    for name, kind in schema.items():
        if not (kind.is_numeric() or kind in (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Null)):
            raise ParquetError(f"column {name!r} must be of numbers or text, is {str(kind)[:100]}")
    max_rows, claimed = rows_from + os.stat(path).st_size, frame.select(pl.len()).collect().item()
    if claimed > max_rows:
        raise ParquetError(f"it must have at most {max_rows:,} rows, for its size, claims {claimed:,}")
    yield list(schema)
    row_count = 0
    while len(rows := frame.slice(row_count, rows_at_once).collect()):
        for row in rows.iter_rows():
            yield [_cell(cell) for cell in row]
        row_count += len(rows)
    if row_count != claimed:
        raise ParquetError(f"it must have the {claimed:,} rows that it claims, has {row_count:,}")


def _cell(cell: Any) -> str:
    """A cell as text, numbers in Python's notation."""
    text = "" if cell is None else str(cell)
    if len(text) > LONGEST_CELL:
        raise ParquetError(f"a cell must have at most {LONGEST_CELL:,} characters, has {len(text):,}")
    return text
