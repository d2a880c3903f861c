"""Files that are on disk when the call returns: whole, and also after a power failure.

A name may only be given to content that is on disk, and a folder must be told to keep the name: write under
another name, sync, rename, sync the folder.
"""

import os
from contextlib import suppress
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's names, are on disk, as far as the system can tell."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, so that a power failure does not take them.

    Raises:
        OSError: one cannot be made.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


def commit(temporary: Path, path: Path) -> None:
    """Give a written file its name; it replaces an older one.

    Raises:
        OSError: the disk is full or gone; `path` is as before.
    """
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def write_new(path: Path, content: bytes) -> None:
    """Write a file that is to be moved; an older one goes, and nothing is written through a link.

    Raises:
        OSError: the disk is full or gone.
    """
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(content)


def write_bytes(path: Path, content: bytes, durably: bool = True) -> None:
    """Write a small file as a whole: readers see the old or the new one.

    Args:
        path: of the file.
        content: its bytes.
        durably: wait for the disk; without it, a power failure may leave an empty file.

    Raises:
        OSError: the disk is full or gone; `path` is as before.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        write_new(temporary, content)
        if durably:
            commit(temporary, path)
        else:
            temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
