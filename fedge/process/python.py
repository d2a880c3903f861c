"""Python processes importing nothing from the working directory.

``python -m`` and ``python -c`` search the working directory first, where a project's own types.py or
random.py would replace the standard library's. `fedge` itself, a script, does not.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_SAFE_PATH = "PYTHONSAFEPATH"
_OURS = "fedge"  # any value sets it; this one is not a user's


def python_words(*words: str) -> list[str]:
    """Command of a Python process with these words, e.g. -m and a module; as usual in Python 3.10."""
    return [sys.executable, *(["-P"] if sys.version_info >= (3, 11) else []), *words]


@contextmanager
def safe_path() -> Iterator[None]:
    """Context in which other libraries, e.g. multiprocessing, start such processes.

    They call `leave_safe_path` before any of the user's code: it may start Python for its own files.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = before or _OURS
    try:
        yield
    finally:
        os.environ.pop(_SAFE_PATH)
        if before is not None:
            os.environ[_SAFE_PATH] = before


def leave_safe_path() -> None:
    """Remove the setting of `safe_path` from this process's environment, but not a user's own."""
    if os.environ.get(_SAFE_PATH) == _OURS:
        del os.environ[_SAFE_PATH]
