"""The server's files of large states: their folder, the choice of states kept there, and their removal.

A leaf's model is sent to its clients once per machine, as a file mapped by all of them, and trained models
return in the same way; messages carry tickets (`fedge.states.files`). The folder is in `/dev/shm` if there is
room, else in the run folder, and holds only states in transit. It is removed when the run ends; if a run is
killed, the next run removes its folder.

With server and clients in one process, or if no client sees the server's files, the only gain is memory:
replies wait for each other, and every client has a control variate as large as two models. So the folder is
then always in the run folder, from which the system maps the parts in use, and releases them when memory is
needed.
"""

import logging
import math
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TextIO

from fedge.process.endings.reaper import remove_at_end
from fedge.process.resources.machine import this_machine
from fedge.states.averaging import State
from fedge.states.challenge import challenge_of_process, write_challenge
from fedge.states.files import REPLY, FileState, StateFileError, state_bytes, write_state

if sys.platform != "win32":  # there, neither is a mapped file removable nor a lock gone with its owner
    import fcntl

logger = logging.getLogger(__name__)

MEMORY = Path("/dev/shm")  # a file system in memory, on Linux
_IN_MESSAGES = "from now on models go in messages, which takes longer"
_IN_MEMORY = "from now on models stay in memory"
_PREFIX = "fedge-states-"
_OWNER = "owner"  # locked as long as the run lives; holds the path of its run folder


class SharedStates:
    """Keeps large states in files of one folder."""

    def __init__(
        self,
        run_folder: Path,
        enabled: bool = True,
        memory: Path | None = None,
        in_one_process: bool = False,
    ) -> None:
        """Make the folder and remove those of killed runs.

        Args:
            run_folder: folder of the run.
            enabled: if False, no folder is made and no state kept.
            memory: folder in memory, used if present; `MEMORY` by default.
            in_one_process: whether only this process uses the files, because clients share its memory: then
                the run folder is used, once there is a large model.
        """
        self.in_one_process = in_one_process
        self._is_enabled = enabled and sys.platform != "win32"
        self._run_folder = run_folder
        self._memory = memory or MEMORY
        self._folder: Path | None = None
        self._lock: TextIO | None = None
        self._above_bytes = math.inf
        self._numbers = count(1)
        self._challenge = ""
        if sys.platform != "win32":
            remove_abandoned([self._memory, *run_folder.parent.glob("*")])
        if self._is_enabled and not in_one_process:
            _ = self._claim(self._memory) or self._claim(run_folder)
        self._write_challenge()

    def _claim(self, parent: Path) -> bool:
        """Make and lock a folder for this run; returns whether this was possible."""
        try:
            folder = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}{os.getpid()}-", dir=parent))
        except OSError as error:
            logger.info("no state files in %s: %s", parent, error)
            return False
        self._folder = folder
        remove_at_end(folder)
        remove_at_end(folder.with_name(folder.name[1:]))
        try:
            self._lock = (folder / _OWNER).open("w", encoding="utf-8")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._lock.write(f"{self._run_folder}\n")
            self._lock.flush()
            # others look at it once it is locked
            self._folder = folder.rename(folder.with_name(folder.name[1:]))
        except OSError as error:
            logger.info("no state files in %s: %s", parent, error)
            self.close()
        return self._folder is not None

    @property
    def folder(self) -> Path | None:
        """Where state files of this run lie; None when nothing is shared."""
        return self._folder

    @property
    def challenge(self) -> str:
        """Challenge answerable by clients on this machine only (`states.challenge`), until `prepare`.

        Empty if nothing is shared. In one process no file is used, because the folder may not exist yet.
        """
        return self._challenge

    def _write_challenge(self) -> None:
        """Write the challenge into the folder, for clients sharing it."""
        if self._is_enabled and self.in_one_process:
            self._challenge = challenge_of_process()
        elif self._folder is not None:
            try:
                self._challenge = write_challenge(self._folder)
            except OSError as error:
                logger.info("no challenge in %s: %s", self._folder, error)

    def _remove_challenge(self) -> None:
        """Remove the challenge, since all clients able to read it have answered."""
        if self._challenge and not self.in_one_process:
            with suppress(OSError):
                Path(self._challenge).unlink()
        self._challenge = ""

    def disable_sharing(self) -> None:
        """Keep states for this process alone, because clients cannot see its files."""
        self.close()
        self.in_one_process = True

    def prepare(self, above_bytes: float, model_bytes: int, round_bytes: int) -> None:
        """Decide which states are shared from now on.

        Args:
            above_bytes: states of more bytes are kept in files.
            model_bytes: size of the model in bytes; when it is not above, nothing is shared.
            round_bytes: bytes of a round's files.
        """
        self._above_bytes = above_bytes
        self._remove_challenge()
        if model_bytes <= above_bytes or not self._is_enabled:
            self.close()
            return
        if self.in_one_process:
            self._claim(self._run_folder)
        elif self._folder is None:
            return
        if (
            self._folder is not None
            and self._folder.parent == self._memory
            and _room(self._memory, in_memory=True) < round_bytes
        ):
            self.close()
            self._claim(self._run_folder)
        if self._folder is None or _room(self._folder, in_memory=False) < round_bytes:
            self.close()
            logger.warning(
                "a round's models need %.0f MB, and %s for them; %s",
                round_bytes / 1e6, self._room_problem(), self._fallback_note(),
            )  # fmt: skip
        else:
            logger.info("models go through files in %s", self._folder)

    def keep(self, state: State) -> State:
        """A large state as a file, removed with the last reference, and any other unchanged."""
        if isinstance(state, FileState):
            state.give_back()  # its work is done
            return state
        if self._folder is None or state_bytes(state) <= self._above_bytes:
            return state
        try:
            ticket = write_state(self._folder / f"server-{next(self._numbers)}", state)
            file_state = FileState(ticket)
        except StateFileError as error:
            logger.warning("%s; %s", error, self._fallback_note())
            self._above_bytes = math.inf
            return state
        weakref.finalize(file_state, Path(ticket.path).unlink, missing_ok=True)
        return file_state

    def _room_problem(self) -> str:
        """Say where there is no room."""
        if self.in_one_process:
            return f"{self._run_folder} has no room"
        return f"neither {self._memory} nor {self._run_folder} has room"

    def _fallback_note(self) -> str:
        """Warn of models without a file."""
        return _IN_MEMORY if self.in_one_process else _IN_MESSAGES

    def sweep(self) -> None:
        """Remove clients' files, read or not; opened ones stay valid."""
        if self._folder is not None:
            for path in self._folder.glob(f"{REPLY}*"):
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the folder with its contents."""
        self._remove_challenge()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _room(folder: Path, in_memory: bool) -> float:
    """The writable bytes of a folder."""
    free = shutil.disk_usage(folder).free
    return min(free, this_machine().available_mib * 2**20) if in_memory else free


def remove_abandoned(parents: Iterable[Path]) -> None:
    """Remove the state folders in `parents` without a living run's lock."""
    for parent in parents:
        for folder in parent.glob(f"{_PREFIX}*"):
            if _is_abandoned(folder):
                logger.info("removing %s, left by a run that was killed", folder)
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    """Whether a state folder of this user has no living owner."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        with (folder / _OWNER).open("r+") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except FileNotFoundError:  # half removed
        return True
    except OSError:  # locked, or not ours to evaluate
        return False
