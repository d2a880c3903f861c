"""Bytecode of what tests import: in a fresh environment one test process compiles it, the others wait."""

import os
import sys
from pathlib import Path


class Compiling:
    """A first collection of tests, which one process does alone.

    All processes collect the same tests at the same time: each would compile PyTorch, the tests and what
    else they import, 14 s of CPU, and keep what the others keep. Nothing waits where bytecode is not kept,
    or has no folder of its own (`make test` gives it one).
    """

    def __init__(self) -> None:
        """Wait until another process has collected, where none has before."""
        self._lock = None
        # the process that deals tests out collects none
        is_one_of_many = "PYTEST_XDIST_WORKER" in os.environ
        prefix = sys.pycache_prefix if is_one_of_many and not sys.dont_write_bytecode else None
        self._done = Path(prefix) / "tests-collected" if prefix else None
        if self._done is None or self._done.exists() or sys.platform == "win32":
            return
        import fcntl

        self._done.parent.mkdir(parents=True, exist_ok=True)
        self._lock = self._done.with_suffix(".lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        if self._done.exists():
            self.end()

    def end(self) -> None:
        """Let the others collect."""
        if self._lock is not None:
            self._done.touch()
            self._lock.close()  # frees it
            self._lock = None
