"""Frames between leaf servers and cloud: a head of plain JSON, and model states by name.

A message is split into chunks of at most a megabyte, so models may have any size: first the head, then the
bytes of all arrays in sequence. A state under several names is sent once. No received content is executed:
the head is JSON, and arrays are raw bytes whose types and sizes are checked before memory is allocated.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from fedge.process.escape import printable
from fedge.states.averaging import State
from fedge.states.distinct import DistinctStates
from fedge.states.files import can_hold

CHUNK_BYTES = 2**20
_MOST_BYTES = 2**36  # limit for all arrays of a message
_MOST_HEAD_BYTES = 2**28
_LONGEST = 300  # characters of an error message
_HEAD, _DATA = b"H", b"D"
_DTYPES = {
    "<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "|i1", "<u8", "<u4", "<u2", "|u1", "|b1",
}  # fmt: skip


Keep = Callable[[State], State]
"""Decides where a state lies, as `fedge.states.state_files.SharedStates.keep` does."""


class LinkError(RuntimeError):
    """Unreadable content of a link. One printable line."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason[:_LONGEST])[:_LONGEST])


class TruncatedMessageError(LinkError):
    """Message cut off by the end of its stream."""


@dataclass(frozen=True)
class Packet:
    """A message between leaf server and cloud.

    Attributes:
        kind: kind of packet.
        facts: plain JSON.
        states: name → model state.
    """

    kind: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    states: Mapping[str, State] = field(default_factory=dict, repr=False)


def chunks_of(packet: Packet) -> Iterator[bytes]:
    """Chunks of a packet, in order."""
    distinct = DistinctStates(packet.states.values())
    numbers = {id(state): str(index) for index, state in enumerate(distinct)}
    head = {
        "kind": packet.kind,
        "facts": packet.facts,
        "states": {name: numbers[id(state)] for name, state in packet.states.items()},
        "arrays": {
            numbers[id(state)]: {entry: [a.dtype.str, list(a.shape)] for entry, a in state.items()}
            for state in distinct
        },
    }
    encoded = json.dumps(head).encode()
    for start in range(0, len(encoded), CHUNK_BYTES):
        yield _HEAD + encoded[start : start + CHUNK_BYTES]
    yield _HEAD
    for state in distinct:
        for array in state.values():
            flat = memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))  # type: ignore[arg-type]
            for start in range(0, len(flat), CHUNK_BYTES):
                yield _DATA + flat[start : start + CHUNK_BYTES]


def packet_of(
    chunks: Iterator[bytes],
    most_bytes: int = _MOST_BYTES,
    most_head_bytes: int = _MOST_HEAD_BYTES,
    keep: Keep = lambda state: state,
) -> Packet | None:
    """Next packet from a stream of chunks, with read-only arrays; None at the end of the stream.

    Args:
        chunks: chunks of this packet and of later ones.
        most_bytes: limit in bytes of all its arrays.
        most_head_bytes: limit in bytes of its head.
        keep: decides where each of its states is stored, as soon as it has arrived.

    Raises:
        LinkError: the chunks are not a valid packet.
        TruncatedMessageError: the packet is cut off.
    """
    first = next(chunks, None)
    if first is None:
        return None
    try:
        return _read_packet(chain([first], chunks), most_bytes, min(most_head_bytes, _MOST_HEAD_BYTES), keep)
    except StopIteration:
        raise TruncatedMessageError("a message is cut off") from None


def _read_packet(chunks: Iterator[bytes], most_bytes: int, most_head_bytes: int, keep: Keep) -> Packet:
    """The next packet; StopIteration if cut off."""
    encoded = bytearray()
    while True:
        chunk = next(chunks)
        if chunk[:1] != _HEAD:
            raise LinkError("a message does not begin with its head")
        if len(encoded) + len(chunk) > most_head_bytes:
            raise LinkError(f"the head of a message is longer than {most_head_bytes} bytes")
        if len(chunk) == 1:
            break
        encoded += chunk[1:]
    try:
        head = json.loads(encoded)
        states = {
            number: _keep_state(_read_state(entries, chunks), keep)
            for number, entries in _parse_arrays(head, most_bytes).items()
        }
        states_by_name = {str(name): states[number] for name, number in head["states"].items()}
        if not isinstance(head["kind"], str) or not isinstance(head["facts"], dict):
            raise TypeError("kind or facts")
        return Packet(head["kind"], head["facts"], states_by_name)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError) as error:
        raise LinkError(f"a message cannot be read: {type(error).__name__}: {error}") from error


_Entries = dict[str, tuple[np.dtype, tuple[int, ...]]]


def _parse_arrays(head: Any, most_bytes: int) -> dict[str, _Entries]:
    """State → entry → (dtype, shape), checked for type and total size."""
    parsed: dict[str, _Entries] = {}
    total = 0
    for number, entries in head["arrays"].items():
        parsed[number] = {}
        for entry, (code, shape) in entries.items():
            if code not in _DTYPES or not all(type(size) is int and size >= 0 for size in shape):
                raise ValueError(f"entry {entry!r} is not an array")
            dtype = np.dtype(code)
            total += math.prod(shape) * dtype.itemsize
            parsed[number][entry] = dtype, tuple(shape)
    if total > most_bytes:
        raise ValueError(f"its arrays have {total} bytes")
    return parsed


def _keep_state(state: State, keep: Keep) -> State:
    """A state stored where `keep` puts it, if files can hold its dtypes."""
    return keep(state) if all(can_hold(name, array) for name, array in state.items()) else state


def _read_state(entries: _Entries, chunks: Iterator[bytes]) -> State:
    """Arrays of one state, read from the stream."""
    state: dict[str, np.ndarray] = {}
    for entry, (dtype, shape) in entries.items():
        content = bytearray(math.prod(shape) * dtype.itemsize)
        offset = 0
        while offset < len(content):
            chunk = next(chunks)
            if chunk[:1] != _DATA or offset + len(chunk) - 1 > len(content) or len(chunk) == 1:
                raise ValueError(f"entry {entry!r} is incomplete")
            content[offset : offset + len(chunk) - 1] = memoryview(chunk)[1:]
            offset += len(chunk) - 1
        state[entry] = np.frombuffer(content or b"", dtype).reshape(shape)
        state[entry].flags.writeable = False
    return state
