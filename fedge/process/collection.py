"""Python's garbage collection."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def spared_imports() -> Iterator[None]:
    """Exclude modules imported in the body from garbage collection, during the import and afterwards.

    PyTorch and Flower create some hundred thousand permanent objects, and scanning them repeatedly takes a
    fifth of a short run's time. Other objects are collected as usual.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
