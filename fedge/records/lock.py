"""Lock on a run folder, held by the process carrying out the run until the run's end."""

import sys
from pathlib import Path

from fedge.config.registers.option import ConfigError

if sys.platform != "win32":
    import fcntl

_NAME = ".lock"


class RunLock:
    """Lock on a run folder until closed or the process ends; the empty lock file remains."""

    def __init__(self, folder: Path, rule: str = "a run must have ended before it is resumed") -> None:
        """Lock `folder`; `rule` is the rule stated in the error for a locked folder.

        Raises:
            ConfigError: a live process holds the lock, the folder cannot be written to, or its disk has no
                locks.
        """
        try:
            self._file = (folder / _NAME).open("a")
        except OSError as error:
            raise ConfigError(
                f"a run folder must be writable, but {folder}: "
                f"{error.strerror or error}; change that, or use a copy"
            ) from error
        try:
            if sys.platform != "win32":
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise ConfigError(
                f"{rule}, but {folder} is still in progress; wait for it, or stop it"
            ) from error
        except OSError as error:  # some network and cluster file systems
            self._file.close()
            raise ConfigError(
                f"a run folder must be on a disk with file locks, but {folder}: "
                f"{error.strerror or error}; choose another disk, or ask for the mount option flock"
            ) from error

    def close(self) -> None:
        """Release the lock."""
        self._file.close()


def was_locked(folder: Path) -> bool:
    """Whether a run began in `folder`: its lock is the first file."""
    return (folder / _NAME).is_file()


def is_locked(folder: Path) -> bool:
    """Whether a live process carries out the run in `folder`; False if its lock cannot be examined."""
    if sys.platform == "win32":
        return False
    try:
        with (folder / _NAME).open("rb") as file:  # shared: two simultaneous checks do not see each other
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no run, or a folder others may not lock
        return False
    return False
