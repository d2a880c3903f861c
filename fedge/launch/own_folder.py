"""A server's folder, used by one process at a time: another would replace or remove the first one's files."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedge.config.registers.option import ConfigError

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger(__name__)

LOCK = ".lock"


@contextmanager
def exclusive_folder(folder: Path, server: str) -> Iterator[None]:
    """Context in which no other server uses a folder.

    The lock ends with the process, however it ends.

    Args:
        folder: an existing folder.
        server: kind of server, in words.

    Raises:
        ConfigError: the folder is in use by another process, or not writable.
    """
    try:
        lock = (folder / LOCK).open("a")
    except OSError as error:
        raise ConfigError(
            f"--folder must be writable, but {error.filename}: {error.strerror or error}; choose another"
        ) from error
    with lock:
        try:
            if sys.platform != "win32":
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"--folder must not be in use, but another {server} uses {folder}; stop that, or choose "
                f"another"
            ) from error
        except OSError as error:
            logger.warning("%s has no locks (%s): no other process may use it", folder, error.strerror)
        yield
