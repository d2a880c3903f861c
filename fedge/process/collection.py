"""Python's search for objects that nobody refers to any more."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def spared_imports() -> Iterator[None]:
    """Keep the search away from modules that the body imports, meanwhile and for good.

    PyTorch and Flower bring some hundred thousand objects that stay. Searching them again and again takes a
    fifth of a short run's time. Nothing else changes: other objects are searched as ever.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
