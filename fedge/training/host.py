"""PyTorch's use of the CPU and of memory: number of threads, and freed memory kept for reuse."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Iterator

import torch

LARGEST_KEPT = 32 * 2**20  # bytes of the largest kept block, the maximum of glibc


@contextlib.contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Run the body with this many torch threads on the CPU, then restore the number."""
    previous = torch.get_num_threads()
    if threads == previous:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(previous)


@functools.cache
def keep_freed_memory() -> None:
    """Have glibc keep freed memory for reuse instead of returning it to the system. No-op elsewhere.

    Every layer's output is a block of about 1 MiB with the lifetime of one step. By default glibc maps and
    unmaps such blocks each time, and the page faults take as long as the arithmetic. Threads have heaps of 64
    MiB of their own, which glibc returns once free, regardless of the threshold, unless configured to keep as
    much. Holds for the whole process, from its first training on; up to 512 MiB of freed memory stay with the
    process, and all heaps of its threads; results do not change.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        m_trim_threshold, m_top_pad, m_mmap_threshold = -1, -2, -3  # <malloc.h>
        mallopt(m_mmap_threshold, LARGEST_KEPT)  # larger blocks are still mapped one by one
        mallopt(m_trim_threshold, 512 * 2**20)
        mallopt(m_top_pad, 64 * 2**20)  # HEAP_MAX_SIZE of glibc's malloc/arena.c
