"""Less work for Python's garbage collector."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PER_CLIENT = 25  # per client: a round creates some hundred objects for each


@contextmanager
def uncollected_imports() -> Iterator[None]:
    """Exclude modules imported in the body from garbage collection, during the import and afterwards.

    PyTorch and Flower create some hundred thousand permanent objects; scanning them again and again takes a
    fifth of a short run's time. Other objects are collected as usual. If nothing was imported, all objects
    are collected, so a process with several runs does not keep objects of the previous one.
    """
    was_on, modules = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules:
            gc.freeze()
        if was_on:
            gc.enable()


@contextmanager
def rare_garbage_collection(clients: int) -> Iterator[None]:
    """Context with less frequent garbage collection; the more clients a run has, the less frequent.

    Messages and replies of thousands of clients live until the end of an exchange. Scanning all of them every
    700 objects (2,000 from Python 3.13), which is Python's default, takes a fifth of the round. With few
    clients, nothing changes.
    """
    previous = gc.get_threshold()
    gc.set_threshold(max(previous[0], _PER_CLIENT * clients) if previous[0] else 0, *previous[1:])
    try:
        yield
    finally:
        gc.set_threshold(*previous)
