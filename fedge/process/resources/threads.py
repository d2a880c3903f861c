"""Work on several cores of this process, for NumPy calls releasing the interpreter lock."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_threads(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> list[_Result]:
    """Results of `function` for all items, in order; raises the first exception. Calls must not be nested."""
    return list(_pool().map(function, items))


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(available_cores(), thread_name_prefix="fedge")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has no threads of the pool


def available_cores() -> int:
    """Number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
