"""Opening of plain files only: opening a pipe could block, and reading a device might never end."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from hhar.errors import HharError

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A plain file, or a link to one, opened for reading bytes; the caller must close it.

    Raises:
        HharError: the path is a folder, pipe, socket or device.
        OSError: the path does not exist, or cannot be read.
    """
    _refuse_unless_regular(path, os.stat(path))  # a device may act on being opened
    # without O_NONBLOCK, opening a pipe put there meanwhile would block until it is written to
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        _refuse_unless_regular(path, os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def refuse_irregular(path: Path) -> None:
    """Raise HharError for a folder, pipe, socket or device, for libraries opening files themselves."""
    _refuse_unless_regular(path, os.stat(path))


def _refuse_unless_regular(path: str | os.PathLike[str], status: os.stat_result) -> None:
    """Raise HharError unless `status` describes a plain file."""
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise HharError(f"{os.fspath(path)}: must be a plain file, is {kind}; name the file itself")
