"""Arrays of bytes out of a pickle from elsewhere, without carrying out its orders (contract C11).

A pickle is a programme with possible calls of any function of any package. CIFAR-10's name three things of
NumPy, and `_codecs.encode` where Python 3 has written them anew. For these stand-ins are called, which keep
their arguments and do nothing else; NumPy itself is not reached, and any other name is refused.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hhar.errors import HharError


class _Kept:
    """Stand-in for an array or a dtype: its arguments, and its given state."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """Text of characters up to 255 as bytes: how Python 3 writes bytes in pickles for Python 2."""
    if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError("text of another encoding")
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Kept,
    ("numpy._core.multiarray", "_reconstruct"): _Kept,
    ("numpy", "ndarray"): _Kept,
    ("numpy", "dtype"): _Kept,
    ("_codecs", "encode"): _encode,
}


class _Reader(pickle.Unpickler):
    """Unpickles with stand-ins only."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it names {module[:80]}.{name[:80]}, which is never loaded")
        return _STAND_INS[module, name]


def read_pickled(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Entries of a pickled dictionary; arrays of bytes as uint8, other plain values as they are.

    Raises:
        HharError: another object than such a dictionary, a missing entry, or names of anything but arrays.
    """
    try:
        with path.open("rb") as stream:
            found = _Reader(stream, encoding="bytes").load()
    except OSError:
        raise
    except Exception as error:  # a pickle can make its reader raise anything
        raise HharError(
            f"{path}: must be a pickle of arrays, cannot be read ({str(error)[:200]}); use the published file"
        ) from error
    if not isinstance(found, dict):
        raise HharError(
            f"{path}: must be a pickled dictionary, is {type(found).__name__}; use the published file"
        )
    entries = {}
    for name in names:
        value = found.get(name.encode(), found.get(name))
        if value is None:
            raise HharError(f"{path}: must have {' and '.join(names)}, lacks {name}; use the published file")
        entries[name] = _array(value, path) if isinstance(value, _Kept) else value
    return entries


def _array(kept: _Kept, path: Path) -> NDArray[np.uint8]:
    """The array described to a stand-in."""
    try:
        _, shape, dtype, is_fortran, content = kept.state
        kind = dtype.arguments[0]
        fits = isinstance(content, bytes) and all(type(size) is int and size >= 0 for size in shape)
        if kind in ("u1", b"u1") and not is_fortran and fits and math.prod(shape) == len(content):
            return np.frombuffer(content, np.uint8).reshape(shape)
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError):
        pass  # this state is no array's
    raise HharError(f"{path}: arrays must be of bytes, row by row, one is not; use the published file")
