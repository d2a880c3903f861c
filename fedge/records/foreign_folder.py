"""Check of a run folder of unknown origin: it may hold only files and folders, and no links."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fedge.config.registers.option import ConfigError
from fedge.records.folder import short

_LARGEST_JSON = 256 * 2**20  # bytes; JSON is read as a whole
_TRACKER_FOLDERS = frozenset({"tensorboard", "wandb", "mlflow"})  # trackers link within their own folders


class UnusableFileError(ConfigError):
    """Unusable entry of a run folder: neither file nor folder, or oversized JSON. One line."""


def refuse_links(folder: Path) -> None:
    """Raise ConfigError for a link in the folder of a run to resume, as writes would follow it."""
    for entry in _entries(folder):
        if entry.is_symlink():
            raise ConfigError(
                f"a run to resume must have no links in its folder, but {short(Path(entry.path))} leads to "
                f"{os.readlink(entry.path)}; replace it by a copy"
            )


def refuse_foreign_files(folder: Path) -> None:
    """Raise UnusableFileError for entries a run folder cannot have, before any of it is read.

    These are pipes, sockets and devices, whose opening may block forever, and JSON of more than 256 MiB,
    which would be read as a whole.
    """
    for entry in _entries(folder):
        try:
            status = entry.stat()
        except OSError:  # a dangling link, or a file just removed
            continue
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise UnusableFileError(
                f"a run folder must have only files and folders, but {short(Path(entry.path))} is neither; "
                f"remove it"
            )
        if entry.name.endswith(".json") and status.st_size > _LARGEST_JSON:
            raise UnusableFileError(
                f"JSON in a run folder must have at most {_LARGEST_JSON} bytes, but "
                f"{short(Path(entry.path))} has {status.st_size}; remove it"
            )


def refuse_inaccessible(folder: Path) -> None:
    """Raise UnusableFileError for a file or folder of a run if this user cannot read or change it.

    Such a file is not damaged, but without it a run would repeat rounds or lose the file's contents.
    """
    for path in (folder, *(Path(entry.path) for entry in _entries(folder))):
        mode = os.R_OK | os.W_OK | os.X_OK if path.is_dir() else os.R_OK
        if os.path.exists(path) and not os.access(path, mode):
            rights = "readable and writable" if path.is_dir() else "readable"
            raise UnusableFileError(
                f"a run must be {rights} for this user to continue, but {short(path)} is not; change its "
                f"permissions (chmod, chown), or continue as its owner"
            )


def _entries(folder: Path | str) -> Iterator["os.DirEntry[str]"]:
    """All entries of a folder and its subfolders, except trackers' own; links are not followed."""
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError:  # readers and writers get the error
        return
    for entry in entries:
        yield entry
        if entry.is_dir(follow_symlinks=False) and entry.name not in _TRACKER_FOLDERS:
            yield from _entries(entry.path)
