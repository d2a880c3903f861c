"""Allowed contents of a run folder: files and folders, and no link where something is written.

A folder may come from anybody.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fedge.config.option import ConfigError
from fedge.records.folder import short

_LARGEST_JSON = 256 * 2**20  # bytes; it is read whole
_OTHERS = frozenset({"tensorboard", "wandb", "mlflow"})  # trackers link within their own folders


class OddFileError(ConfigError):
    """A run folder holds an unreadable entry: no file and no folder, or JSON without an end. One line."""


def refuse_links(folder: Path) -> None:
    """Raise ConfigError for a link in the folder of a run that goes on: it would write where that leads."""
    for entry in _entries(folder):
        if entry.is_symlink():
            raise ConfigError(
                f"a run that goes on must hold no links, but {short(Path(entry.path))} is one to "
                f"{os.readlink(entry.path)}; put there what it leads to"
            )


def refuse_odd_files(folder: Path) -> None:
    """Raise OddFileError for entries that a run folder cannot hold, before any of it is read.

    That is a pipe, a socket or a device, whose opening may wait for ever; and JSON of more than
    256 MiB, which would be read whole.
    """
    for entry in _entries(folder):
        try:
            found = entry.stat()
        except OSError:  # a dangling link, or a file just removed
            continue
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise OddFileError(
                f"a run folder must hold files and folders only, but {short(Path(entry.path))} is neither; "
                f"remove it"
            )
        if entry.name.endswith(".json") and found.st_size > _LARGEST_JSON:
            raise OddFileError(
                f"JSON in a run folder must have at most {_LARGEST_JSON} bytes, but "
                f"{short(Path(entry.path))} has {found.st_size}; remove it"
            )


def _entries(folder: Path | str) -> Iterator["os.DirEntry[str]"]:
    """All that is in a folder and in its folders, trackers' own left out; links are not followed."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:  # readers and writers get the error
        return
    for entry in entries:
        yield entry
        if entry.is_dir(follow_symlinks=False) and entry.name not in _OTHERS:
            yield from _entries(entry.path)
