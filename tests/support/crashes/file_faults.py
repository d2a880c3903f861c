"""The library of file_faults.c: compiled, loaded before all else, armed in a process of its own."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("file_faults.c")
LIBRARY = "FILE_FAULTS"  # environment: where the compiled library lies

# Nothing at all; before the n-th operation: counting; SIGKILL; half of it and SIGKILL; no room from then on;
# an error, once; an interruption, once; SIGTERM; a disk that is read-only from then on
OFF, COUNT, KILL, TORN, FULL, IO_ERROR, INTERRUPT, TERMINATE, READ_ONLY = range(9)
KINDS = {
    "kill": KILL, "torn": TORN, "full": FULL, "eio": IO_ERROR, "eintr": INTERRUPT, "term": TERMINATE,
    "read-only": READ_ONLY,
}  # fmt: skip


def compiler():
    """A C compiler, or None."""
    return next(filter(None, map(shutil.which, ("gcc", "cc", "clang"))), None)


def environment(folder):
    """Compile into `folder`; returns the environment of a process that has the library."""
    library = Path(folder) / "file_faults.so"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror"]
    subprocess.run([compiler(), *flags, "-o", library, SOURCE, "-ldl", "-lpthread"], check=True)
    return {**os.environ, "LD_PRELOAD": str(library), LIBRARY: str(library), "OMP_NUM_THREADS": "1"}


class Faults:
    """The library in this process."""

    def __init__(self):
        self._library = ctypes.CDLL(os.environ[LIBRARY])
        self._library.faults_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_char_p]
        self._library.faults_interrupt.argtypes = [ctypes.POINTER(ctypes.c_long), ctypes.c_long]
        self._library.faults_count.restype = self._library.faults_left.restype = ctypes.c_long

    def arm(self, folder, kind, at=0, log=""):
        """Count operations below `folder` from now on, and let the one numbered `at` fail; log them all."""
        self._library.faults_arm(str(folder).encode(), at, kind, str(log).encode())

    def disarm(self):
        """Count nothing and let nothing fail from now on."""
        self._library.faults_arm(b"", 0, OFF, b"")

    def interrupt(self, folder, numbers):
        """Count operations below `folder` from now on, and interrupt each of these, once."""
        self.arm(folder, COUNT)
        self._library.faults_interrupt((ctypes.c_long * len(numbers))(*numbers), len(numbers))

    @property
    def left(self):
        """Operations that were to be interrupted and did not come."""
        return self._library.faults_left()

    @property
    def count(self):
        """Operations since then."""
        return self._library.faults_count()
