"""Arrays in memory shared by a client and its processes, without a file name.

The memory is a nameless file (Linux: `memfd_create`), inherited as an open descriptor. The system frees it
when the last process holding it ends, however it ends.
"""

import math
import mmap
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Layout = list[tuple[str, str, tuple[int, ...], int]]
"""Name, dtype (as NumPy writes it), shape and offset in bytes of each array."""

_ALIGNED = 64  # bytes: one cache line


def nameless_file(purpose: str) -> int:
    """Descriptor of an empty file without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"fedge-{purpose}", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Block:
    """Shared memory behind a descriptor, mapped by each process; it grows, and never shrinks."""

    def __init__(self, descriptor: int) -> None:
        """Use a descriptor of `nameless_file`, which its opener closes."""
        self._descriptor = descriptor
        self._map: mmap.mmap | None = None

    def put(self, arrays: Mapping[str, np.ndarray]) -> Layout:
        """Replace the content by copies of arrays of any shapes and dtypes; returns their layout."""
        layout: Layout = []
        offset = 0
        for name, array in arrays.items():
            layout.append((name, array.dtype.str, array.shape, offset))
            offset += -(-array.nbytes // _ALIGNED) * _ALIGNED
        if os.fstat(self._descriptor).st_size < offset:
            os.ftruncate(self._descriptor, offset)
        for name, view in self.views(layout).items():
            view[...] = arrays[name]
        return layout

    def views(self, layout: Sequence[Sequence[Any]]) -> dict[str, np.ndarray]:
        """Arrays of the layout's shapes and dtypes in the memory, valid until the next `put`."""
        views = {}
        for name, dtype, shape, offset in layout:
            kind, sizes = np.dtype(dtype), tuple(shape)
            count = math.prod(sizes)
            flat = np.frombuffer(self._current_map(), kind, count, offset) if count else np.empty(0, kind)
            views[name] = flat.reshape(sizes)
        return views

    def _current_map(self) -> mmap.mmap:
        """A mapping of the whole file, renewed if the file has grown."""
        size = os.fstat(self._descriptor).st_size
        if self._map is None or len(self._map) != size:
            self._map = mmap.mmap(self._descriptor, size)  # an older mapping ends with its last array
        return self._map
