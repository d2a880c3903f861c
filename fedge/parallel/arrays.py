"""Arrays in memory that a client and its processes share, without a name in any folder.

The memory is a file without a name (Linux: `memfd_create`), inherited as an open descriptor: it goes with the
last process that has it, however that ends.
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

_ALIGNED = 64  # bytes: a line of the processor's cache


def nameless_file(purpose: str) -> int:
    """The descriptor of an empty file that is in no folder."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"fedge-{purpose}", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Block:
    """Shared memory behind a descriptor, mapped by each process for itself; grows, never shrinks."""

    def __init__(self, descriptor: int) -> None:
        """Take a descriptor of `nameless_file`, which is closed by its opener."""
        self._descriptor = descriptor
        self._map: mmap.mmap | None = None

    def put(self, arrays: Mapping[str, np.ndarray]) -> Layout:
        """Copy arrays of any shapes and dtypes into it, in place of the former ones; says where they lie."""
        layout: Layout = []
        at = 0
        for name, array in arrays.items():
            layout.append((name, array.dtype.str, array.shape, at))
            at += -(-array.nbytes // _ALIGNED) * _ALIGNED
        if os.fstat(self._descriptor).st_size < at:
            os.ftruncate(self._descriptor, at)
        for name, view in self.views(layout).items():
            view[...] = arrays[name]
        return layout

    def views(self, layout: Sequence[Sequence[Any]]) -> dict[str, np.ndarray]:
        """Arrays of the layout's shapes and dtypes, in the memory: valid until others are put."""
        found = {}
        for name, dtype, shape, offset in layout:
            kind, sizes = np.dtype(dtype), tuple(shape)
            count = math.prod(sizes)
            flat = np.frombuffer(self._mapped(), kind, count, offset) if count else np.empty(0, kind)
            found[name] = flat.reshape(sizes)
        return found

    def _mapped(self) -> mmap.mmap:
        """The whole file mapped, anew if it has grown."""
        size = os.fstat(self._descriptor).st_size
        if self._map is None or len(self._map) != size:
            self._map = mmap.mmap(self._descriptor, size)  # an older one goes with its last array
        return self._map
