"""Python's garbage collection."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def spared_imports() -> Iterator[None]:
    """Exclude modules imported in the body from garbage collection, during the import and afterwards.

    PyTorch and Flower create some hundred thousand permanent objects, and scanning them repeatedly takes a
    fifth of a short run's time. Other objects are collected as usual. If nothing was imported, so are all: a
    process that carries out one run after another must not keep what the last one has left.
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
