"""Python's search for objects that nobody refers to any more."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Put the search off while the body imports packages: a tenth of the time that PyTorch and Flower take.

    What an import makes stays, and is many objects; they would be searched again and again in vain.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
