"""Reaper: a small process that outlives a run, ends its processes and removes its leftovers.

A run that is killed cannot clean up, and Ray's helpers take up to half a minute to notice that they are
alone. The reaper holds the reading end of a pipe, which closes with the run's process however that ends; the
processes to end are known by a mark in their environment, at any depth and under any parent.

This file is carried out by itself, as a program, and imports nothing of Fedge.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

import psutil

MARK = "FEDGE_RUN"
_BY_THEMSELVES_S = 5.0  # for marked processes to end, from the run's own end on
_AFTER_KILL_S = 10.0
_POLL_S = 0.2


class Reaper:
    """The reaper of this process."""

    def __init__(self) -> None:
        """Start it; this process's children from now on carry its mark."""
        # nobody's: of two runs' reapers, one in the other's processes, each ends its own
        unmarked = {name: value for name, value in os.environ.items() if name != MARK}
        mark = uuid.uuid4().hex
        words = [sys.executable, "-I", __file__, mark, str(_BY_THEMSELVES_S)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, env=unmarked,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.environ[MARK] = mark

    @property
    def pid(self) -> int:
        """Process id of the reaper."""
        return self._process.pid

    def remove_at_end(self, path: Path) -> None:
        """Let it remove a file or folder, with all that is in it, when this process has ended."""
        assert self._process.stdin is not None
        with suppress(OSError):  # somebody has killed it
            self._process.stdin.write(f"{path.absolute()}\n".encode())
            self._process.stdin.flush()


_reaper: Reaper | None = None
_starting = threading.Lock()


def start_reaper() -> bool:
    """Start the reaper of this process; tell whether it had none."""
    global _reaper
    with _starting:
        if _reaper is not None:
            return False
        _reaper = Reaper()
        return True


def has_reaper() -> bool:
    """Whether this process has a reaper."""
    return _reaper is not None


def remove_at_end(path: Path) -> None:
    """Let the reaper, if this process has one, remove a file or folder when this process has ended."""
    if _reaper is not None:
        _reaper.remove_at_end(path)


# --- the program --------------------------------------------------------------------------------------


def main(mark: str, wait_s: str) -> None:
    """Wait for the end of standard input, then end and remove leftovers after so many seconds."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # the end of a whole session is meant for the run
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    paths = [Path(line) for line in sys.stdin.read().splitlines() if line]
    _wait_for_end(mark, float(wait_s))
    for process in marked(mark):
        with suppress(psutil.Error):
            process.kill()
    _wait_for_end(mark, _AFTER_KILL_S)
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _wait_for_end(mark: str, seconds: float) -> None:
    """Wait until no process carries `mark`, at most `seconds` seconds."""
    deadline = time.monotonic() + seconds
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def marked(mark: str) -> list[psutil.Process]:
    """The living processes that were started with `mark`."""
    return [process for process in psutil.process_iter() if _mark_of(process) == mark]


def _mark_of(process: psutil.Process) -> str | None:
    """The mark of a process; None for others, and for those that have ended or are not ours."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None


if __name__ == "__main__":
    main(*sys.argv[1:])
