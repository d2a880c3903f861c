"""State of a callback as JSON, read back unchanged, including tuples and tables keyed by numbers.

JSON has only tables keyed by text, and no tuples. Others are written as a table with one reserved name:

    {3: 0.5}  →  {"\\u0000table": [[3, 0.5]]}        (1, "a")  →  {"\\u0000tuple": [1, "a"]}
"""

import hashlib
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_TABLE, _TUPLE = "\0table", "\0tuple"
_BASES = (dict, list, tuple, str, int, float)
_MOST_COMPARED = 2**24  # bytes of an attribute: a callback may hold a data set


def encode_value(value: Any, exact: bool = True) -> Any:
    """A value as JSON, from which `decode_value` makes the value again.

    Args:
        value: made of numbers, texts, None, lists, tuples and tables.
        exact: refuse derived classes, such as `collections.Counter`, which would come back as their base
            class; else they are written as their base.

    Raises:
        TypeError: it is made of something else.

    >>> decode_value(encode_value({3: (1, 0.5)})), encode_value({"a": [None, True]})
    ({3: (1, 0.5)}, {'a': [None, True]})
    """
    if isinstance(value, np.bool_ | np.integer | np.float64):
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    kind = type(value) if exact else next((base for base in _BASES if isinstance(value, base)), None)
    if kind is dict:
        return _table_to_json(value, exact)
    if kind in (list, tuple):
        items = [encode_value(item, exact) for item in value]
        return items if kind is list else {_TUPLE: items}
    if kind in (int, float, str):
        return kind(value)
    raise TypeError(f"a {type(value).__name__} is neither number, text, None, list nor table")


def decode_value(value: Any) -> Any:
    """The value from JSON of `encode_value`."""
    if isinstance(value, list):
        return [decode_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_TUPLE}:
        return tuple(map(decode_value, value[_TUPLE]))
    if value.keys() == {_TABLE}:
        return {decode_value(key): decode_value(item) for key, item in value[_TABLE]}
    return {key: decode_value(item) for key, item in value.items()}


def kept_attributes(callback: Any) -> dict[str, Any]:
    """Attributes of a callback restored after a stop, as JSON."""
    return {
        name: content
        for name, value in _instance_attributes(callback)
        for content in _try_call(encode_value, value)
    }


def unrestored_digests(callback: Any) -> dict[str, bytes]:
    """Digests of the attributes not restored, to detect changes.

    Attributes of 16 MiB and more, or impossible to pickle, are left out.
    """
    kept = kept_attributes(callback)
    unsaved = [(name, value) for name, value in _instance_attributes(callback) if name not in kept]
    return {name: digest for name, value in unsaved for digest in _try_call(_digest, value)}


class _Hashed:
    """File for pickle with only a digest of its content, and a limit on the amount written."""

    def __init__(self) -> None:
        self.digest, self._remaining_bytes = hashlib.sha256(), _MOST_COMPARED

    def write(self, data: Any) -> int:
        """Add bytes, or a buffer of them, to the digest; ValueError for too many."""
        size = memoryview(data).nbytes
        self._remaining_bytes -= size
        if self._remaining_bytes < 0:
            raise ValueError("too large to be compared")
        self.digest.update(data)
        return size


def _digest(value: Any) -> bytes:
    """Digest of a value's content."""
    file = _Hashed()
    pickle.Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.digest.digest()


def _instance_attributes(callback: Any) -> list[tuple[str, Any]]:
    return list(getattr(callback, "__dict__", {}).items())


def _try_call(function: Callable[[Any], Any], value: Any) -> list[Any]:
    """List with the result of `function` on a value; empty if it fails, as pickling an open file does."""
    try:
        return [function(value)]
    except Exception:  # a user's class may raise anything while it is pickled
        return []


def _table_to_json(value: Mapping[Any, Any], exact: bool) -> dict[str, Any]:
    if all(type(key) is str for key in value) and not value.keys() & {_TABLE, _TUPLE}:
        return {key: encode_value(item, exact) for key, item in value.items()}
    return {_TABLE: [[encode_value(key, exact), encode_value(item, exact)] for key, item in value.items()]}
