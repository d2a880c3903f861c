"""Read HHAR's raw CSV files, as published or as found in copies, into recordings.

A file is read in blocks of whole lines, so memory does not grow with the text; each row kept takes 29 bytes.
Copies differ: with or without the header line, separated by commas or tabs, `Creation_Time` in full or as a
rounded number in exponent form, blank lines at the end. Any other deviation is refused with its line number.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import numpy as np
import polars as pl

from hhar.errors import HharError
from hhar.facts import ACTIVITIES, NULL_LABEL, RAW_COLUMNS
from hhar.progress import ProgressCallback, no_progress
from hhar.windows.recordings import Recording

BLOCK_BYTES = 32 << 20
LABELS = (*ACTIVITIES, NULL_LABEL)
KEPT_COLUMNS = ("Arrival_Time", "Creation_Time", "x", "y", "z", "User", "Device", "gt")
_LABEL_TYPE = pl.Enum(LABELS)
_BLANK_LINES = re.compile(rb"\n(?:[ \t\r]*\n)+")

Pieces = dict[tuple[str, str], list[pl.DataFrame]]


@dataclass
class _Layout:
    """Format of one file; `exponent` becomes true once a Creation_Time is not a whole number."""

    path: Path
    separator: str
    has_header: bool
    exponent: bool = False

    def column_types(self) -> dict[str, type[pl.DataType]]:
        time = pl.Float64 if self.exponent else pl.Int64
        return {
            "Index": pl.String, "Arrival_Time": pl.Int64, "Creation_Time": time,
            "x": pl.Float32, "y": pl.Float32, "z": pl.Float32,
            "User": pl.String, "Model": pl.String, "Device": pl.String, "gt": pl.String,
        }  # fmt: skip


def read_raw(
    path: str | Path, report: ProgressCallback = no_progress, block_bytes: int = BLOCK_BYTES
) -> Pieces:
    """Read one raw file: (user, device) → its rows in file order, in pieces.

    Args:
        path: one of the four CSV files.
        report: called with the bytes read.
        block_bytes: size of a block of text in bytes.

    Raises:
        HharError: the file is missing, empty or malformed; names the file, the line and the reason.
    """
    source = Path(path)
    pieces: Pieces = defaultdict(list)
    total = _file_size(source)
    with source.open("rb") as stream:
        layout = _detect_layout(source, stream)
        line, bytes_read = 1 + layout.has_header, 0
        for block in _line_blocks(stream, block_bytes):
            frame = _parse_block(block, layout, line)
            for key, part in frame.partition_by(
                ["User", "Device"], as_dict=True, maintain_order=True
            ).items():
                pieces[str(key[0]), str(key[1])].append(part.drop("User", "Device"))
            line += block.count(b"\n")
            bytes_read += len(block)
            report(source.name, bytes_read, total)
    report(source.name, total, total)
    if not pieces:
        raise HharError(f"{source}: must hold rows of measurements, but holds none; unpack the archive again")
    return dict(pieces)


def recordings_of(user: str, device: str, sensor: str, pieces: Sequence[pl.DataFrame]) -> list[Recording]:
    """Rows of one sensor of one (user, device) → one recording per run of equal labels except `null`."""
    frame = pl.concat(pieces, rechunk=True)
    labels = frame["gt"].to_physical().to_numpy()
    arrival_ms = frame["Arrival_Time"].to_numpy()
    creation_ns = frame["Creation_Time"].to_numpy()
    values = np.ascontiguousarray(frame.select("x", "y", "z").to_numpy(), dtype=np.float32)
    cuts = np.flatnonzero(labels[1:] != labels[:-1]) + 1
    bounds = [0, *cuts.tolist(), len(labels)]
    recordings = []
    for start, end in pairwise(bounds):
        label = LABELS[labels[start]]
        if label != NULL_LABEL:
            rows = slice(start, end)
            recordings.append(
                Recording(user, device, sensor, label, arrival_ms[rows], creation_ns[rows], values[rows])
            )
    return recordings


def _file_size(source: Path) -> int:
    if not source.is_file():
        raise HharError(f"{source}: raw file must exist; fetch it with `hhar download`")
    return source.stat().st_size


def _detect_layout(source: Path, stream: BinaryIO) -> _Layout:
    """Detect the format from the first line; leaves the stream at the first row."""
    first = stream.readline(1 << 16)
    start = 3 if first.startswith(b"\xef\xbb\xbf") else 0
    text = first[start:].decode("utf-8", "replace").rstrip("\r\n")
    separator = "\t" if "\t" in text else ","
    fields = text.split(separator)
    has_header = fields[0].strip().lower() == "index"
    if has_header and tuple(name.strip() for name in fields) != RAW_COLUMNS:
        raise HharError(
            f"{source}, line 1: columns must be {','.join(RAW_COLUMNS)}, but are {text[:200]}; use the "
            "published files"
        )
    if not has_header:
        stream.seek(start)
    return _Layout(source, separator, has_header)


def _line_blocks(stream: BinaryIO, block_bytes: int) -> Iterator[bytes]:
    """The rest of the stream in blocks of whole lines; the last block may lack its line end."""
    pending = b""
    while data := stream.read(block_bytes):
        end = data.rfind(b"\n") + 1
        if end == 0:
            pending += data
            if len(pending) > 4 * block_bytes + (1 << 20):
                break  # no line is this long: the parser reports it
            continue
        yield pending + data[:end]
        pending = data[end:]
    if pending:
        yield pending


def _parse_block(block: bytes, layout: _Layout, line: int) -> pl.DataFrame:
    """Parse whole lines, beginning at number `line` of the file."""
    if not block.strip():
        return pl.DataFrame(schema=dict.fromkeys(KEPT_COLUMNS, pl.String))
    text = _BLANK_LINES.sub(b"\n", block).strip(b"\r\n") if b"\n\n" in block or b"\n\r\n" in block else block
    try:
        frame = _read_block(text, layout)
    except pl.exceptions.PolarsError:
        if layout.exponent:
            raise _first_defect(block, layout, line) from None
        layout.exponent = True
        try:
            frame = _read_block(text, layout)
        except pl.exceptions.PolarsError:
            raise _first_defect(block, layout, line) from None
    if sum(frame.null_count().row(0)) or not _in_range(frame):
        raise _first_defect(block, layout, line)
    return frame.with_columns(pl.col("gt").cast(_LABEL_TYPE), pl.col("Creation_Time").cast(pl.Int64))


def _read_block(text: bytes, layout: _Layout) -> pl.DataFrame:
    frame = pl.read_csv(
        text, has_header=False, schema=layout.column_types(), separator=layout.separator, quote_char=None
    )
    return frame.select(KEPT_COLUMNS)


def _in_range(frame: pl.DataFrame) -> bool:
    checks = frame.select(
        pl.all_horizontal(pl.col("x", "y", "z").is_finite()).all().alias("finite"),
        pl.col("gt").is_in(LABELS).all().alias("label"),
        pl.col("Creation_Time").cast(pl.Float64).abs().lt(9.2e18).all().alias("creation"),
        (pl.col("Arrival_Time") > 0).all().alias("arrival"),
    )
    return all(checks.row(0))


def _first_defect(block: bytes, layout: _Layout, line: int) -> HharError:
    """The error for the first malformed line."""
    for offset, raw in enumerate(block.split(b"\n")):
        text = raw.decode("utf-8", "replace").rstrip("\r")
        reason = _defect(text.split(layout.separator)) if text.strip() else None
        if reason:
            return HharError(
                f"{layout.path}, line {line + offset}: {reason}; correct the line or use the published files"
            )
    return HharError(
        f"{layout.path}, lines from {line}: cannot be read as HHAR's CSV; use the published files"
    )


def _defect(fields: Sequence[str]) -> str | None:
    if len(fields) != len(RAW_COLUMNS):
        return f"a row must have {len(RAW_COLUMNS)} fields, but has {len(fields)}"
    row = dict(zip(RAW_COLUMNS, fields, strict=True))
    for name, kinds in (
        ("Arrival_Time", "whole"),
        ("Creation_Time", "number"),
        ("x", "real"),
        ("y", "real"),
        ("z", "real"),
    ):
        if not _is_number(row[name], kinds):
            expected = "positive whole" if kinds == "whole" else "finite"
            return f"{name} must be a {expected} number, but is {row[name][:40]!r}"
    for name in ("User", "Device"):
        if not row[name]:
            return f"{name} must not be empty"
    if row["gt"] not in LABELS:
        return f"gt must be one of {', '.join(LABELS)}, but is {row['gt'][:40]!r}"
    return None


def _is_number(text: str, kind: str) -> bool:
    try:
        if kind == "whole":
            return 0 < int(text) < 2**63 and "_" not in text
        value = float(text)
        return math.isfinite(value) and "_" not in text and (kind == "real" or abs(value) < 9.2e18)
    except ValueError:
        return False
