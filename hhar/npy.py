"""Headers of `.npy` arrays, read without Python's parser.

`numpy.load` parses the header with `ast.literal_eval`, which fails now and then ("AST constructor recursion
depth mismatch") when threads parse at the same time under Python 3.11 before 3.11.9 and 3.12 before 3.12.3:
CPython issue 106905. Headers as NumPy writes them are read here by a pattern, all others by NumPy.
"""

from __future__ import annotations

import io
import math
import re
import struct
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_MAX_HEADER_BYTES = 10_000
_LENGTHS = {(1, 0): "<H", (2, 0): "<I"}
_ORDINARY = re.compile(
    r"\{'descr': '([<>|=]?[a-zA-Z]\d+)', 'fortran_order': (True|False), "
    r"'shape': \(((?:\d+, )*\d*,?)\), \}\s*"
)


class Header(NamedTuple):
    """Shape, memory order and dtype from the header of an array; the array's bytes follow the header."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]


def read_header(stream: IO[bytes]) -> Header:
    """Read the header of an array of npy version 1.0 or 2.0, up to the array's first byte.

    Raises:
        ValueError: no header, or a header of another version, of more than 10,000 bytes, or of another form.
    """
    version = np.lib.format.read_magic(stream)
    if version not in _LENGTHS:
        raise ValueError(f"must be of npy version 1.0 or 2.0, but is {version[0]}.{version[1]}")
    length_bytes = stream.read(struct.calcsize(_LENGTHS[version]))
    if len(length_bytes) < struct.calcsize(_LENGTHS[version]):
        raise ValueError("the header must be whole, is cut")
    (length,) = struct.unpack(_LENGTHS[version], length_bytes)
    if length > _MAX_HEADER_BYTES:
        raise ValueError(f"the header must have at most {_MAX_HEADER_BYTES} bytes, but has {length}")
    header = stream.read(length)
    if len(header) < length:
        raise ValueError("the header must be whole, is cut")
    match = _ORDINARY.fullmatch(header.decode("latin1"))
    return _parse_with_numpy(version, length_bytes + header) if match is None else _parse_plain(match)


def _parse_plain(match: re.Match[str]) -> Header:
    """Header of a plain dtype, as NumPy writes it."""
    shape = tuple(int(length) for length in match[3].replace(" ", "").split(",") if length)
    return Header(shape, match[2] == "True", np.dtype(match[1]))


def _parse_with_numpy(version: tuple[int, int], header_bytes: bytes) -> Header:
    """Header of any other form: structured dtypes, or a header written by Python 2."""
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        return Header(*reader(io.BytesIO(header_bytes), max_header_size=_MAX_HEADER_BYTES))
    except ValueError:
        raise
    except Exception as error:  # of Python's tokenizer and parser, for a damaged one
        raise ValueError(f"the header must be one of an array, is none ({type(error).__name__})") from error


def read_array(stream: IO[bytes], header: Header) -> NDArray[Any]:
    """Read the array of a header's shape and dtype into new memory.

    Raises:
        ValueError: the stream ends before the array does.
    """
    flat = np.empty(math.prod(header.shape), dtype=header.dtype)
    unread: Any = flat.view(np.uint8) if flat.nbytes else b""
    remaining = memoryview(unread)
    while len(remaining):
        part = stream.read(min(len(remaining), 1 << 20))
        if not part:
            raise ValueError(f"must hold {flat.nbytes} bytes, but ends {len(remaining)} bytes early")
        remaining[: len(part)] = part
        remaining = remaining[len(part) :]
    return flat.reshape(header.shape[::-1]).T if header.fortran_order else flat.reshape(header.shape)


def map_array(path: Path) -> NDArray[Any]:
    """Array of a file, with its shape and dtype, mapped read-only; plain, since np.memmap is slow to slice.

    Raises:
        OSError: the file does not exist.
        ValueError: the file is not an array, or is shorter than its header states.
    """
    with path.open("rb") as stream:
        header = read_header(stream)
        offset = stream.tell()
    shape = header.shape[::-1] if header.fortran_order else header.shape
    mapped = np.memmap(path, mode="r", dtype=header.dtype, shape=shape, offset=offset).view(np.ndarray)
    plain: NDArray[Any] = mapped.T if header.fortran_order else mapped
    return plain
