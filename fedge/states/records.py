"""States in Flower records without copies: an Array holding a NumPy array, not its serialised bytes.

Flower's own Array consists of bytes from `numpy.save`, parsed again on reading. Between threads of one
process neither is needed, and Ray itself passes NumPy arrays between processes through shared memory. Bytes
are made only when they are accessed, for example by a SuperLink.
"""

import io
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedge.states.averaging import State
from fedge.states.files import FileState, can_hold
from fedge.states.lazy_state import LazyState

Record = TypeVar("Record", ArrayRecord, ConfigRecord, MetricRecord, RecordDict)


@cache
def _name(dtype: np.dtype) -> str:
    """A dtype's name; NumPy takes ten microseconds to spell it."""
    return str(dtype)


class HeldArray(Array):
    """A Flower Array on a read-only view of a NumPy array; equal to ``Array(array)`` for readers."""

    def __init__(self, array: np.ndarray) -> None:
        """Hold `array`; its owner must not write to it any more."""
        view = np.asarray(array).view()
        view.flags.writeable = False
        # Array checks and copies in __init__ and __setattr__; its fields are plain instance attributes
        self.__dict__.update(dtype=_name(view.dtype), shape=view.shape, stype="numpy.ndarray", _held=view)

    @property
    def data(self) -> bytes:  # type: ignore[override]
        """The bytes of Flower's own Array, as from `numpy.save` but in one copy instead of two."""
        array, head = self.numpy(), io.BytesIO()
        if not array.flags.c_contiguous:
            np.save(head, array, allow_pickle=False)
            return head.getvalue()
        np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(array))
        return b"".join((head.getvalue(), array.reshape(-1).view(np.uint8).data))

    def numpy(self) -> np.ndarray:
        """The array itself, read-only, in its shape and dtype."""
        array: np.ndarray = self.__dict__["_held"]
        return array

    def deflate(self) -> bytes:
        """The bytes for a SuperLink, under the name of Flower's own Array: it knows no other."""
        _, divider, rest = super().deflate().partition(b" ")
        return Array.__qualname__.encode() + divider + rest

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Pickle as the NumPy array, which Ray puts into shared memory."""
        return HeldArray, (self.numpy(),)


class LentArray(HeldArray):
    """A HeldArray whose every access gives a writable copy."""

    def __init__(self, array: Array) -> None:
        """Hold the array of another Array."""
        kind = {"dtype": array.dtype, "shape": tuple(array.shape), "stype": "numpy.ndarray"}
        self.__dict__.update(kind, _lent=array)

    def numpy(self) -> np.ndarray:
        """A copy of the array, in its shape and dtype."""
        array: Array = self.__dict__["_lent"]
        return array.numpy().copy()


def copied_array(array: Array) -> Array:
    """An Array on a copy of another's array."""
    return HeldArray(array.numpy().copy())


class FileArray(HeldArray):
    """A HeldArray on an entry of a mapped file, looked up on every read, so it takes no memory."""

    def __init__(self, state: FileState, name: str) -> None:
        """Refer to an entry of `state`."""
        entry = state[name]
        kind = {"dtype": _name(entry.dtype), "shape": entry.shape, "stype": "numpy.ndarray"}
        self.__dict__.update(kind, _state=state, _name=name)

    def numpy(self) -> np.ndarray:
        """A view of the mapped file, read-only, in the entry's shape and dtype."""
        state: FileState = self.__dict__["_state"]
        return state[self.__dict__["_name"]]


class LazyArray(HeldArray):
    """A HeldArray computed on every access and not kept."""

    def __init__(self, like: np.ndarray, make: Callable[[], np.ndarray]) -> None:
        """Refer to `make()`, of the shape and dtype of `like`."""
        kind = {"dtype": _name(like.dtype), "shape": like.shape, "stype": "numpy.ndarray"}
        self.__dict__.update(kind, _make=make)

    def numpy(self) -> np.ndarray:
        """The array, computed in its shape and dtype."""
        make: Callable[[], np.ndarray] = self.__dict__["_make"]
        return make()


def to_record(state: Mapping[str, np.ndarray], names: Iterable[str] | None = None) -> ArrayRecord:
    """A state, or its entries of some names, as a Flower record on the same memory.

    Shapes and dtypes are kept. The arrays must not be changed afterwards.
    """
    chosen = state if names is None else names
    if isinstance(state, FileState):
        return record_of(ArrayRecord, {name: FileArray(state, name) for name in chosen})
    return record_of(ArrayRecord, {name: HeldArray(state[name]) for name in chosen})


def record_of(kind: type[Record], values: Mapping[str, Any]) -> Record:
    """A new record of values of the right types.

    Flower's constructors take ten microseconds to check an entry, and turn arrays into bytes: half of a
    round's time with small models and thousands of clients.
    """
    record = kind.__new__(kind)
    record.__dict__.update(_empty(kind), _data=dict(values))
    return record


@cache
def _empty(kind: type[ArrayRecord | ConfigRecord | MetricRecord | RecordDict]) -> dict[str, Any]:
    """Attributes of an empty record of a kind, shared by all records of the kind but for `_data`."""
    return vars(kind())


_Twin = TypeVar("_Twin")


def copy_with(original: _Twin, **changed: Any) -> _Twin:
    """A second object with the entries of one of Flower's, some of them `changed`.

    Flower's constructors of messages and their metadata check every argument, too.
    """
    copy = object.__new__(type(original))
    copy.__dict__.update(original.__dict__, **changed)
    return copy


def entries(record: ArrayRecord | ConfigRecord | MetricRecord | RecordDict) -> dict[str, Any]:
    """The entries of a record without checks, which take a microsecond each; not to be changed."""
    data: dict[str, Any] = record.__dict__["_data"]
    return data


def from_record(record: ArrayRecord) -> State:
    """A Flower record as a state (name → array); the arrays are read-only.

    If the whole record comes from one mapped file, the result is that file's state.
    """
    file = _file_of(record)
    return {name: array.numpy() for name, array in entries(record).items()} if file is None else file


def _file_of(record: ArrayRecord) -> FileState | None:
    """The mapped file to which a whole record belongs; None for any other record."""
    arrays = entries(record)
    first = next(iter(arrays.values()), None)
    if not isinstance(first, FileArray):
        return None
    state: FileState = first.__dict__["_state"]
    is_whole_file = all(
        isinstance(array, FileArray) and array.__dict__["_state"] is state and array.__dict__["_name"] == name
        for name, array in arrays.items()
    )
    return state if is_whole_file and list(arrays) == list(state) else None


def store_record_arrays(record: ArrayRecord, keep: Callable[[State], State]) -> ArrayRecord:
    """A record whose arrays are in a file, if `keep` puts them into one; else the record itself.

    Arrays are processed one by one. An array stays in memory if it does not match the record, or no file can
    hold it.

    Args:
        record: record from any sender.
        keep: as `fedge.states.state_files.SharedStates.keep`.
    """
    arrays = entries(record)
    try:
        kinds = {str(name): (np.dtype(array.dtype), tuple(array.shape)) for name, array in arrays.items()}
        if not all(can_hold(name, np.empty(0, dtype)) for name, (dtype, _) in kinds.items()):
            return record
        stored = keep(LazyState(kinds, lambda name: _check_array(arrays[name].numpy(), *kinds[name])))
    except Exception:  # decoding foreign bytes may raise anything; the record's reader reports the fault
        return record
    return to_record(stored) if isinstance(stored, FileState) else record


def _check_array(array: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """An array; ValueError unless it has the dtype and shape of its record."""
    if array.dtype != dtype or array.shape != shape:
        raise ValueError("an array differs from its record")
    return array


def arrays_in(content: RecordDict) -> list[Array]:
    """All arrays of a message's content."""
    records = entries(content).values()
    return [array for r in records if isinstance(r, ArrayRecord) for array in entries(r).values()]


def forget_sent(array: Array) -> None:
    """Drop the bytes Flower keeps with a sent array; they are made again if needed."""
    array.__dict__.pop("_chunks", None)


def record_bytes(record: ArrayRecord) -> int:
    """The bytes of all arrays of a record, without headers."""
    return sum(math.prod(array.shape) * np.dtype(array.dtype).itemsize for array in record.values())
