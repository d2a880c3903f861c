"""Reaper: a small process outliving a run, to end its processes and remove its leftovers.

A killed run cannot clean up, and Ray's helper processes take up to half a minute to notice. The reaper holds
the reading end of a pipe, which closes when the run's process ends, however it ends. Processes to end are
identified by a mark in their environment, at any depth and under any parent.

This file runs as a separate program, and imports nothing from Fedge.
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
_BY_THEMSELVES_S = 5.0  # time for marked processes to end by themselves after the run
_AFTER_KILL_S = 10.0
_POLL_S = 0.2


class Reaper:
    """The reaper of this process."""

    def __init__(self) -> None:
        """Start the reaper; this process's children from now on carry its mark."""
        # unmarked, so a nested run's reaper is not killed by the outer one
        unmarked = {name: value for name, value in os.environ.items() if name != MARK}
        mark = uuid.uuid4().hex
        command = [sys.executable, "-I", __file__, mark, str(_BY_THEMSELVES_S)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, env=unmarked,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.environ[MARK] = mark

    @property
    def pid(self) -> int:
        """Process id of the reaper."""
        return self._process.pid

    def remove_at_end(self, path: Path) -> None:
        """Register a file or folder, with its contents, for removal when this process has ended."""
        assert self._process.stdin is not None
        with suppress(OSError):  # the reaper was killed
            self._process.stdin.write(f"{path.absolute()}\n".encode())
            self._process.stdin.flush()


_reaper: Reaper | None = None
_starting = threading.Lock()


def start_reaper() -> bool:
    """Start the reaper of this process; returns whether there was none before."""
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
    """Register a file or folder for removal when this process has ended, if there is a reaper."""
    if _reaper is not None:
        _reaper.remove_at_end(path)


# --- the program --------------------------------------------------------------------------------------


def main(mark: str, wait_s: str) -> None:
    """Wait for the end of standard input; after `wait_s` seconds, kill processes and remove files."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # signals to the whole session are meant for the run
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    paths = [Path(line) for line in sys.stdin.read().splitlines() if line]
    _wait_for_end(mark, float(wait_s))
    for process in _marked_processes(mark):
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
    while _marked_processes(mark) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _marked_processes(mark: str) -> list[psutil.Process]:
    """Living processes with `mark` in their environment."""
    return [process for process in psutil.process_iter() if _mark_of(process) == mark]


def _mark_of(process: psutil.Process) -> str | None:
    """Mark of a process; None without one, or if the process has ended or belongs to another account."""
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None


if __name__ == "__main__":
    main(*sys.argv[1:])
