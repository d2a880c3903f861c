"""Arrays of bytes from an untrusted pickle, read without running its code (contract C11).

A pickle is a program that may call any function of any package. CIFAR-10's pickles name three functions of
NumPy, and `_codecs.encode` if Python 3 has rewritten them. Stand-ins that only keep their arguments are
called instead; NumPy itself is not called, and any other name is refused.

Opcodes without names can do harm, too: a memo of 2^31 places takes 16 GB; a dictionary's key of tuples nested
60 deep takes years to hash; a text encoded a million times fills the memory. So only opcodes for arrays,
numbers, text, lists and dictionaries are allowed, keys are text or numbers, and encoded bytes have a bound.
The reader is Python's own pure-Python unpickler, whose memo is a dictionary.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np
from numpy.typing import NDArray

from hhar.errors import HharError
from hhar.regular import open_regular

MOST_BYTES = 64 << 20  # of one file; CIFAR-10's have 31 MB
_MOST_AXES = 32


class _StandIn:
    """Stand-in for an array or a dtype: its arguments, and its given state."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _StandIn,
    ("numpy._core.multiarray", "_reconstruct"): _StandIn,
    ("numpy", "ndarray"): _StandIn,
    ("numpy", "dtype"): _StandIn,
}
_OPCODES = (
    pickle.PROTO, pickle.FRAME, pickle.STOP, pickle.MARK, pickle.POP,
    pickle.POP_MARK, pickle.GLOBAL, pickle.STACK_GLOBAL, pickle.REDUCE, pickle.NONE,
    pickle.NEWTRUE, pickle.NEWFALSE, pickle.INT, pickle.BININT, pickle.BININT1,
    pickle.BININT2, pickle.LONG, pickle.LONG1, pickle.FLOAT, pickle.BINFLOAT,
    pickle.STRING, pickle.BINSTRING, pickle.SHORT_BINSTRING, pickle.UNICODE, pickle.BINUNICODE,
    pickle.SHORT_BINUNICODE, pickle.BINUNICODE8, pickle.BINBYTES, pickle.SHORT_BINBYTES, pickle.BINBYTES8,
    pickle.EMPTY_LIST, pickle.LIST, pickle.APPEND, pickle.APPENDS, pickle.EMPTY_DICT,
    pickle.EMPTY_TUPLE, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3,
    pickle.PUT, pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE, pickle.GET,
    pickle.BINGET, pickle.LONG_BINGET,
)  # fmt: skip


class _Opcodes(dict[int, Any]):
    """Methods by opcode; any other opcode is refused."""

    def __missing__(self, opcode: int) -> Any:
        raise pickle.UnpicklingError(f"it has the opcode {opcode:#04x}, which is never executed")


class _Reader(pickle._Unpickler):
    """Unpickles with stand-ins and allowed opcodes only, each executed by Python's own method."""

    stack: list[Any]  # of the parent, since the last mark
    dispatch: ClassVar[dict[int, Any]] = _Opcodes(
        {opcode[0]: pickle._Unpickler.dispatch[opcode[0]] for opcode in _OPCODES}
    )

    def __init__(self, stream: BinaryIO, most_encoded: int = 0, encoding: str = "ASCII") -> None:
        """Read a stream; its text may be encoded to `most_encoded` bytes in all."""
        super().__init__(stream, encoding=encoding)
        self._bytes_left = most_encoded

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return self._encode
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it names {module[:80]}.{name[:80]}, which is never loaded")
        return _STAND_INS[module, name]

    def _encode(self, text: Any, encoding: Any = "latin1") -> bytes:
        """Text of characters up to 255 as bytes: how Python 3 writes bytes in pickles for Python 2."""
        if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError("text of another encoding")
        self._bytes_left -= len(text)
        if self._bytes_left < 0:
            raise pickle.UnpicklingError("it makes more bytes of text than it has")
        return text.encode("latin1")

    def _build(self) -> None:
        """Carry out BUILD, for stand-ins only: other objects would take any attribute."""
        if len(self.stack) < 2 or not isinstance(self.stack[-2], _StandIn):
            raise pickle.UnpicklingError("it has a state for something other than an array")
        super().load_build()  # type: ignore[misc]

    def _refuse_keys(self, pairs: Sequence[Any]) -> None:
        """Raise for keys of a dictionary other than text or numbers; these may take years to hash."""
        if not all(isinstance(key, str | bytes | int | float) for key in pairs[::2]):
            raise pickle.UnpicklingError("it has a key that is not text")

    def _set_item(self) -> None:
        """Carry out SETITEM."""
        self._refuse_keys(self.stack[-2:])
        super().load_setitem()  # type: ignore[misc]

    def _set_items(self) -> None:
        """Carry out SETITEMS."""
        self._refuse_keys(self.stack)
        super().load_setitems()  # type: ignore[misc]

    def _dict(self) -> None:
        """Carry out DICT."""
        self._refuse_keys(self.stack)
        super().load_dict()  # type: ignore[misc]

    dispatch[pickle.BUILD[0]] = _build
    dispatch[pickle.SETITEM[0]] = _set_item
    dispatch[pickle.SETITEMS[0]] = _set_items
    dispatch[pickle.DICT[0]] = _dict


class _PlainReader(_Reader):
    """Unpickler for pickles without names."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module[:80]}.{name[:80]}, which is never loaded")


def read_plain(stream: BinaryIO) -> Any:
    """The numbers, texts, lists and dictionaries of a pickle without names; any error for others."""
    return _PlainReader(stream).load()


def read_pickled(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Entries of a pickled dictionary; arrays of bytes as uint8, other plain values as they are.

    Raises:
        HharError: another object than such a dictionary, a missing entry, or names of anything but arrays.
    """
    try:
        with open_regular(path) as stream:
            content = stream.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise pickle.UnpicklingError(f"it has more than {MOST_BYTES >> 20} MiB")
        dictionary = _Reader(io.BytesIO(content), 2 * len(content), "bytes").load()
    except (OSError, HharError):
        raise
    except Exception as error:  # a pickle can make its reader raise anything
        raise HharError(
            f"{path}: must be a pickle of arrays, cannot be read ({str(error)[:200]}); use the published file"
        ) from error
    if not isinstance(dictionary, dict):
        raise HharError(
            f"{path}: must be a pickled dictionary, is {type(dictionary).__name__}; use the published file"
        )
    entries = {}
    for name in names:
        value = dictionary.get(name.encode(), dictionary.get(name))
        if value is None:
            raise HharError(f"{path}: must have {' and '.join(names)}, lacks {name}; use the published file")
        entries[name] = _array(value, path) if isinstance(value, _StandIn) else value
    return entries


def _array(stand_in: _StandIn, path: Path) -> NDArray[np.uint8]:
    """The array described to a stand-in."""
    try:
        _, shape, dtype, is_fortran, content = stand_in.state
        kind = dtype.arguments[0]
        fits = isinstance(content, bytes) and len(shape) <= _MOST_AXES
        fits = fits and all(type(size) is int and 0 <= size <= len(content) for size in shape)
        if kind in ("u1", b"u1") and not is_fortran and fits and math.prod(shape) == len(content):
            return np.frombuffer(content, np.uint8).reshape(shape)
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError):
        pass  # this state is no array's
    raise HharError(f"{path}: arrays must be of bytes, row by row, one is not; use the published file")
