"""Files completely on disk when the call returns, even after a power failure.

A file must be on disk before it is renamed to its final name, and then the folder's entry must be, too: write
under another name, sync, rename, sync the folder.
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
    """Create a folder, and any missing folders above it; they survive a power failure.

    Raises:
        OSError: a folder cannot be created.
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
        durably: whether to wait for the disk; otherwise, a power failure may leave an empty file.

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
    """Write a file named by the user: atomically, or directly into a device or a pipe.

    Raises:
        OSError: the file cannot be written; an existing one is unchanged.
    """
    with output_file(path) as temporary:
        write_new(temporary, content)


@contextmanager
def output_file(path: Path) -> Iterator[Path]:
    """Context with the path under which to write a file named by the user; it is renamed at the end.

    If the context fails, an existing file is unchanged; otherwise the new file gets its permissions. For a
    device, a pipe or an open file, the content is copied: /dev/null and /dev/stdout must not be replaced.

    Raises:
        OSError: the file cannot be written.
    """
    if _is_open_elsewhere(path):
        with tempfile.TemporaryDirectory(prefix="fedge-output-") as folder:
            temporary = Path(folder) / path.name
            yield temporary
            with temporary.open("rb") as source, path.open("wb") as device:
                shutil.copyfileobj(source, device)
        return
    # several processes, on several machines, may write it at the same time
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
        with suppress(OSError):  # a full disk has already been reported
            temporary.unlink(missing_ok=True)


def _is_open_elsewhere(path: Path) -> bool:
    """Whether a path is a device, a pipe, or a name of an open file, such as /dev/stdout and /dev/fd/1."""
    if path.exists() and not path.is_file():
        return True
    link = str(path.readlink()) if path.is_symlink() else ""
    return link.startswith("/proc/") or path.parent.resolve().is_relative_to("/proc")


@contextmanager
def removed_on_failure(folder: Path) -> Iterator[None]:
    """Context for writing into a new folder, which is removed with all its files on failure."""
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
