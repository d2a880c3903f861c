"""The server's files of large states: where they lie, which states are kept in them, when they go.

A leaf's model goes to its clients once per machine, as a file that all of them map into memory, and their
trained models come back the same way; messages carry tickets (`fedge.state_file`). The folder is in
`/dev/shm` if there is room, else in the run folder, and holds what is in flight only. It goes when the run
ends; a run that was killed leaves it behind, and the next run removes it. Called by `fedge.run` and
`fedge.strategy`.
"""

import logging
import math
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import TextIO

import psutil

from fedge.aggregation import State
from fedge.state_file import REPLY, FileState, StateFileError, state_bytes, write_state

if sys.platform != "win32":  # there, neither is a mapped file removable nor a lock gone with its owner
    import fcntl

logger = logging.getLogger(__name__)

MEMORY = Path("/dev/shm")  # a file system in memory, on Linux
_PREFIX = "fedge-states-"
_OWNER = "owner"  # locked as long as the run lives; holds the path of its run folder


class SharedStates:
    """Keeps large states in files of one folder."""

    def __init__(self, run_folder: Path | None, memory: Path = MEMORY) -> None:
        """Make the folder and remove those that killed runs left.

        Args:
            run_folder: of the run; None where clients see the server's memory anyway: no state is shared.
            memory: folder in memory that is taken if it is there.
        """
        self._run_folder = run_folder
        self._memory = memory
        self._folder: Path | None = None
        self._lock: TextIO | None = None
        self._above_bytes = math.inf
        self._numbers = count(1)
        if run_folder is not None and sys.platform != "win32":
            remove_abandoned([memory, *run_folder.parent.glob("*")])
            _ = self._claim(memory) or self._claim(run_folder)

    def _claim(self, parent: Path) -> bool:
        """Make and lock a folder of our own; tell whether that was possible."""
        try:
            made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}{os.getpid()}-", dir=parent))
            lock = (made / _OWNER).open("w", encoding="utf-8")
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.write(f"{self._run_folder}\n")
            lock.flush()
            self._folder = made.rename(made.with_name(made.name[1:]))  # found by others once it is locked
            self._lock = lock
        except OSError as error:
            logger.info("no state files in %s: %s", parent, error)
            return False
        return True

    @property
    def probe(self) -> str:
        """Path of a file that a client on this machine sees and no other; empty when nothing is shared."""
        return "" if self._folder is None else str(self._folder / _OWNER)

    def prepare(self, above_bytes: float, model_bytes: int, round_bytes: int) -> None:
        """Decide what is shared from now on.

        Args:
            above_bytes: states larger than this are kept in files.
            model_bytes: size of the model; when it is not above, nothing is shared.
            round_bytes: what the files of a round take.
        """
        self._above_bytes = above_bytes
        if self._folder is None or model_bytes <= above_bytes:
            self.close()
            return
        assert self._run_folder is not None
        if self._folder.parent == self._memory:
            if _room(self._folder, in_memory=True) >= round_bytes:
                return
            self.close()
            self._claim(self._run_folder)
        if self._folder is None or _room(self._folder, in_memory=False) < round_bytes:
            self._give_up(f"a round needs {round_bytes / 1e6:.0f} MB for files of its models")

    def keep(self, state: State) -> State:
        """Return a state that is large as a file, any other as it is; the file goes with the last reference."""
        if self._folder is None or isinstance(state, FileState) or state_bytes(state) <= self._above_bytes:
            return state
        try:
            ticket = write_state(self._folder / f"server-{next(self._numbers)}", state)
            kept = FileState(ticket)
        except StateFileError as error:
            self._give_up(str(error))
            return state
        weakref.finalize(kept, Path(ticket.path).unlink, missing_ok=True)
        return kept

    def _give_up(self, reason: str) -> None:
        """Send models in the messages for the rest of the run."""
        logger.warning("%s; models go in the messages instead, which is slower", reason)
        self._above_bytes = math.inf

    def sweep(self) -> None:
        """Remove what clients have written, read or not; what has been opened stays valid."""
        if self._folder is not None:
            for path in self._folder.glob(f"{REPLY}*"):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the folder with all that is in it."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _room(folder: Path, in_memory: bool) -> float:
    """Return the bytes that may be written into a folder."""
    free = shutil.disk_usage(folder).free
    return min(free, psutil.virtual_memory().available) if in_memory else free


def remove_abandoned(parents: Iterable[Path]) -> None:
    """Remove the state folders in `parents` that no living run has locked."""
    for parent in parents:
        for folder in parent.glob(f"{_PREFIX}*"):
            if _is_abandoned(folder):
                logger.info("removing %s, left by a run that was killed", folder)
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    """Tell whether a state folder of this user has no living owner."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        with (folder / _OWNER).open("r+") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except FileNotFoundError:  # half removed
        return True
    except OSError:  # locked, or not ours to judge
        return False
