"""What a run folder may hold: files and folders, and nothing that leads elsewhere where it is written to.

A folder may come from anybody.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from fedge.config.option import ConfigError
from fedge.records.folder import short

_OTHERS = frozenset({"tensorboard", "wandb", "mlflow"})  # trackers link within what is theirs


class NoFileError(ConfigError):
    """A run folder holds something that is neither a file nor a folder. One line."""


def refuse_links(folder: Path) -> None:
    """Raise ConfigError for a link in the folder of a run that goes on: it would write where that leads."""
    for entry in _entries(folder):
        if entry.is_symlink():
            raise ConfigError(
                f"a run that goes on must hold no links, but {short(Path(entry.path))} is one to "
                f"{os.readlink(entry.path)}; put there what it leads to"
            )


def refuse_pipes(folder: Path) -> None:
    """Raise NoFileError for a pipe, a socket or a device in a run folder: who opens one may wait for ever."""
    for entry in _entries(folder):
        try:
            mode = entry.stat().st_mode
        except OSError:  # a link that leads nowhere, or what has just gone
            continue
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise NoFileError(
                f"a run folder must hold files and folders only, but {short(Path(entry.path))} is neither; "
                f"remove it"
            )


def _entries(folder: Path | str) -> Iterator["os.DirEntry[str]"]:
    """Return all that is in a folder and in its folders, trackers' own left out; links are not followed."""
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:  # who wants to read or write in there is told
        return
    for entry in entries:
        yield entry
        if entry.is_dir(follow_symlinks=False) and entry.name not in _OTHERS:
            yield from _entries(entry.path)
