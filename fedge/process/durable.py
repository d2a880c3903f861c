"""Files that are on disk, complete, when the call returns, also after a power failure.

A file must be on disk before it gets its name, and so must the folder's entry: write under another name,
sync, rename, sync the folder.
"""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def sync(path: Path) -> None:
    """Wait until a file's content, or a folder's entries, are on disk, as far as the system reports it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_durable_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, so that a power failure does not take them.

    Raises:
        OSError: one cannot be made.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        sync(folder.parent)


def commit(temporary: Path, path: Path) -> None:
    """Rename a written file to its final name, replacing an older file.

    Raises:
        OSError: the disk is full or gone; `path` is unchanged.
    """
    sync(temporary)
    temporary.replace(path)
    sync(path.parent)


def write_new(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, replacing an older one; links are not followed.

    Raises:
        OSError: the disk is full or gone.
    """
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(content)


def write_bytes(path: Path, content: bytes, durably: bool = True) -> None:
    """Write a small file atomically: readers see the old or the new content.

    Args:
        path: path of the file.
        content: its bytes.
        durably: wait for the disk; otherwise, a power failure may leave an empty file.

    Raises:
        OSError: the disk is full or gone; `path` is unchanged.
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


def write_output(path: Path, content: bytes) -> None:
    """Write a file that the user has named: atomically, but into a device or a pipe as it is.

    Raises:
        OSError: it cannot be written; a file that was there is unchanged.
    """
    with output_file(path) as temporary:
        write_new(temporary, content)


@contextmanager
def output_file(path: Path) -> Iterator[Path]:
    """Context with the path under which to write a file that the user has named; at its end it is renamed.

    A file that was there stays if the context fails; the new one has its permissions. Into a device, a pipe
    or an open file the content is copied: /dev/null and /dev/stdout must not be replaced.

    Raises:
        OSError: it cannot be written.
    """
    if _is_open_elsewhere(path):
        with tempfile.TemporaryDirectory(prefix="fedge-output-") as folder:
            temporary = Path(folder) / path.name
            yield temporary
            with temporary.open("rb") as written, path.open("wb") as device:
                shutil.copyfileobj(written, device)
        return
    # several processes may write it at a time, on several machines
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        yield temporary
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    except OSError as error:
        if error.filename == str(temporary):
            error.filename = str(path)  # the name that the user knows
        raise
    finally:
        with suppress(OSError):  # a full disk has raised before
            temporary.unlink(missing_ok=True)


def _is_open_elsewhere(path: Path) -> bool:
    """Whether a path is a device, a pipe, or a name of an open file, as /dev/stdout and /dev/fd/1 are."""
    if path.exists() and not path.is_file():
        return True
    link = str(path.readlink()) if path.is_symlink() else ""
    return link.startswith("/proc/") or path.parent.resolve().is_relative_to("/proc")


@contextmanager
def removed_on_failure(folder: Path) -> Iterator[None]:
    """Context that writes into a folder made for it: if that fails, the folder goes with all its files."""
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
