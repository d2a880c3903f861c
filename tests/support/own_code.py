"""Code that a test wrote and imported, forgotten after it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedge.config.registers import register


@contextmanager
def forgotten(folder: Path) -> Iterator[None]:
    """Afterwards Python's path is as before, and modules of this folder that were imported are gone."""
    path, folders, modules = list(sys.path), register.search_folders(), set(sys.modules)
    yield
    sys.path[:], register._looked_in[:] = path, folders
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder.resolve())):
            del sys.modules[name]
