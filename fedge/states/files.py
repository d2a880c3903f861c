"""Model states as files: written once, mapped read-only by every process that needs them.

The format is safetensors (8 bytes for the length of the header, the header as JSON, raw arrays), so nothing
is unpickled. Writing and mapping are done here because the library's NumPy functions copy every array into
bytes. The header lists the entries in the state's order, which is part of a state; the arrays are stored
largest item size first, so each is aligned.
"""

import hashlib
import json
import math
import mmap
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedge.process.durable import commit
from fedge.states.lazy_state import kinds_of

REPLY = "reply-"  # start of the name of a client's file
_BLOCK_BYTES = 2**20  # copied, summed and written at a time: stays in the processor's cache
_ROW_WORDS = 512  # of 8 bytes; a block is 256 such rows
_GIVE_BACK_BYTES = 2**24
_DTYPES = {
    "<f8": "F64", "<f4": "F32", "<f2": "F16", "<i8": "I64", "<i4": "I32", "<i2": "I16", "|i1": "I8",
    "<u8": "U64", "<u4": "U32", "<u2": "U16", "|u1": "U8", "|b1": "BOOL",
}  # fmt: skip
_NUMPY_DTYPES = {name: np.dtype(code) for code, name in _DTYPES.items()}


class StateFileError(RuntimeError):
    """A state cannot be written, or its file has changed; the message is one line."""


@dataclass(frozen=True)
class Ticket:
    """Reference to a state's file, sent in a message in place of the state.

    Attributes:
        path: the state's file.
        checksum: of the whole file; see `_add_block`.
        array_bytes: bytes of all arrays, without the header.
    """

    path: str
    checksum: str
    array_bytes: int


class FileState(Mapping[str, np.ndarray]):
    """A state of read-only views of a mapped file; valid after the file's removal.

    `metadata` has the texts of the header.

    Pages of earlier entries are released to the system now and then (and mapped again on access), so going
    through a state entry by entry keeps only a few entries in memory.
    """

    def __init__(self, ticket: Ticket, follow_links: bool = False) -> None:
        """Map the file without checking its checksum.

        Args:
            ticket: ticket of the file.
            follow_links: whether the file may be a link to another.

        Raises:
            StateFileError: no such file, or not a state.
        """
        self.ticket = ticket
        try:
            self._map = _map_file(ticket.path, follow_links)
            self._entries, self.metadata = _entries_of(self._map)
        except OSError as error:
            raise StateFileError(f"cannot read state {ticket.path}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise StateFileError(f"{ticket.path} is damaged: it has no safetensors header") from error
        if ticket.array_bytes and ticket.array_bytes != sum(
            self._entry_bytes(name) for name in self._entries
        ):
            raise StateFileError(f"{ticket.path} is damaged: its size is not that of its message")
        self._bytes_in_use = 0

    def __getitem__(self, name: str) -> np.ndarray:
        dtype, shape, offset = self._entries[name]
        size = math.prod(shape)
        self._bytes_in_use += size * dtype.itemsize
        if self._bytes_in_use > _GIVE_BACK_BYTES:
            self.give_back()
            self._bytes_in_use = 0
        return (
            np.frombuffer(self._map, dtype, size, offset).reshape(shape) if size else np.empty(shape, dtype)
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _entry_bytes(self, name: str) -> int:
        """The bytes of an entry."""
        dtype, shape, _ = self._entries[name]
        return math.prod(shape) * dtype.itemsize

    @property
    def content(self) -> mmap.mmap:
        """The mapped file, which lives as long as a view of one of its entries."""
        return self._map

    def check(self) -> None:
        """Raise StateFileError when the file does not have its checksum."""
        digest = hashlib.sha256()
        content = np.frombuffer(self._map, np.uint8)
        for start in range(0, len(content), _BLOCK_BYTES):
            _add_block(digest, content[start : start + _BLOCK_BYTES])
            if start % _GIVE_BACK_BYTES == 0:
                self.give_back()
        self.give_back()
        if digest.hexdigest() != self.ticket.checksum:
            raise StateFileError(f"{self.ticket.path} is damaged: its checksum is not that of its message")

    def give_back(self) -> None:
        """Tell the system that the file's pages are unused for now."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)


def _map_file(path: str, follow_links: bool) -> mmap.mmap:
    """Map a regular file: opening a FIFO would block, and a link may lead anywhere.

    Raises:
        OSError: the file cannot be opened, or is a link or not a regular file. ValueError: the file is empty.
    """
    flags = getattr(os, "O_NONBLOCK", 0) | (0 if follow_links else getattr(os, "O_NOFOLLOW", 0))
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("it is no regular file")
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)


_Entries = dict[str, tuple[np.dtype, tuple[int, ...], int]]
_METADATA = "__metadata__"  # safetensors' own word


def _entries_of(content: mmap.mmap) -> tuple[_Entries, dict[str, str]]:
    """Entry → (dtype, shape, offset of its bytes), checked to be inside the file, and the header's texts."""
    length = int.from_bytes(content[:8], "little")
    entries: _Entries = {}
    header = json.loads(content[8 : 8 + length])
    metadata = {str(key): str(text) for key, text in header.pop(_METADATA, {}).items()}
    for name, entry in header.items():
        dtype, shape, (begin, end) = (
            _NUMPY_DTYPES[entry["dtype"]],
            tuple(entry["shape"]),
            entry["data_offsets"],
        )
        are_counts = all(type(number) is int and number >= 0 for number in (*shape, begin, end))
        if (
            not are_counts
            or end - begin != math.prod(shape) * dtype.itemsize
            or 8 + length + end > len(content)
        ):
            raise ValueError(f"entry {name!r} does not lie in the file")
        entries[name] = dtype, shape, 8 + length + begin
    return entries, metadata


class JoinedStates(Mapping[str, np.ndarray]):
    """Several states as one, entries named ``<state>/<entry>``, in order; looked up only when asked for."""

    def __init__(self, states: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """Join `states`."""
        self._entries = {
            f"{prefix}/{name}": (state, name) for prefix, state in states.items() for name in state
        }

    def __getitem__(self, name: str) -> np.ndarray:
        state, inner = self._entries[name]
        return state[inner]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def map_state(path: Path) -> FileState:
    """Map a state whose file has no ticket, or is protected in another way.

    Raises:
        StateFileError: no such file, or not a state.
    """
    return FileState(Ticket(str(path), "", 0), follow_links=True)


def open_state(ticket: Ticket) -> FileState:
    """Map a state; the checksum is compared at this process's first use of the ticket.

    Raises:
        StateFileError: no such file, or one different from the ticket.
    """
    _check_once(ticket)
    return FileState(ticket)


@lru_cache(maxsize=64)
def _check_once(ticket: Ticket) -> None:
    """Compare a checksum; failures are not remembered."""
    FileState(ticket).check()


def write_state(
    path: Path,
    state: Mapping[str, np.ndarray],
    durably: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> Ticket:
    """Write a state under a temporary name, then move it to `path`.

    Args:
        path: path to write to.
        state: name → array.
        durably: wait for the disk, before and after the move.
        metadata: texts by name, for the header.

    Raises:
        StateFileError: the folder is full or gone.
        ValueError: safetensors does not support an entry's dtype.
    """
    temporary = path.with_name(path.name + ".part")
    digest = hashlib.sha256()
    try:
        with temporary.open("wb", buffering=0) as file:
            for block in _blocks(_contents(state, metadata)):
                _add_block(digest, block)
                remaining = memoryview(block)  # type: ignore[arg-type]
                while remaining:
                    remaining = remaining[file.write(remaining) :]
        if durably:
            commit(temporary, path)
        else:
            temporary.replace(path)
    except OSError as error:
        raise StateFileError(f"cannot write state {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # a full disk raises above
            temporary.unlink(missing_ok=True)
    return Ticket(str(path), digest.hexdigest(), state_bytes(state))


def can_hold(name: str, array: np.ndarray) -> bool:
    """Whether a file can hold an entry of this name and dtype."""
    return name != _METADATA and array.dtype.str in _DTYPES


def state_bytes(state: Mapping[str, np.ndarray]) -> int:
    """The bytes of all arrays of a state (name → array), of any shapes and dtypes."""
    if isinstance(state, FileState):
        return state.ticket.array_bytes
    return sum(dtype.itemsize * math.prod(shape) for dtype, shape in kinds_of(state).values())


def _contents(
    state: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None
) -> Iterator[np.ndarray]:
    """A safetensors file piece by piece, as bytes: header, then the entries, largest item first."""
    entries = kinds_of(state)
    order = sorted(entries, key=lambda name: -entries[name][0].itemsize)
    offsets, offset = {}, 0
    for name in order:
        dtype, shape = entries[name]
        if dtype.str not in _DTYPES:
            raise ValueError(f"entry {name!r} has dtype {dtype}, which a safetensors file cannot hold")
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        offsets[name] = [offset, offset + size]
        offset += size
    texts = {_METADATA: dict(metadata)} if metadata else {}
    header = json.dumps(
        texts
        | {
            name: {"dtype": _DTYPES[dtype.str], "shape": list(shape), "data_offsets": offsets[name]}
            for name, (dtype, shape) in entries.items()
        }
    ).encode()
    header += b" " * (-len(header) % 8)
    yield np.frombuffer(len(header).to_bytes(8, "little") + header, np.uint8)
    for name in order:
        yield np.ascontiguousarray(state[name]).reshape(-1).view(np.uint8)


def _blocks(pieces: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Pieces of bytes as blocks of `_BLOCK_BYTES` (the last may be smaller), in one reused buffer."""
    buffer, used = np.empty(_BLOCK_BYTES, np.uint8), 0
    for piece in pieces:
        start = 0
        while start < len(piece):
            count = min(len(piece) - start, _BLOCK_BYTES - used)
            buffer[used : used + count] = piece[start : start + count]
            start, used = start + count, used + count
            if used == _BLOCK_BYTES:
                yield buffer
                used = 0
    if used:
        yield buffer[:used]


def _add_block(digest: "hashlib._Hash", block: np.ndarray) -> None:
    """Add a block's checksum to `digest`: the sums of its rows and of its columns, as 64-bit words.

    One changed word, two exchanged words or another order of blocks change the sums. This detects accidental
    errors of files, at the speed of memory: over all bytes, SHA-256 would take longer than the exchange.
    """
    aligned = len(block) // (8 * _ROW_WORDS) * (8 * _ROW_WORDS)
    words = block[:aligned].view(np.uint64).reshape(-1, _ROW_WORDS)
    digest.update(words.sum(axis=0))
    digest.update(words.sum(axis=1))
    digest.update(block[aligned:].tobytes())
