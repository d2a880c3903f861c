"""Unpacking of zip and tar archives from untrusted sources (contract C11).

Zips are unpacked by `hhar.raw.unpack`. The same rules apply here to tar: no path outside the folder, plain
files only, and a bound on the total unpacked size.
"""

from __future__ import annotations

import os
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from hhar.errors import HharError
from hhar.progress import ProgressCallback, no_progress
from hhar.raw.unpack import (
    BLOCK_BYTES,
    MAX_MEMBERS,
    MAX_RATIO,
    MAX_TOTAL_BYTES,
    TOTAL_FROM_BYTES,
    member_path,
    possible_path,
)
from hhar.raw.unpack import unpack as unzip

_LONGEST_HEADER_BYTES = 1 << 20
ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz")


def is_archive(path: Path) -> bool:
    """Whether a file has the name of a supported archive."""
    return path.name.lower().endswith(ENDINGS)


@contextmanager
def as_folder(source: Path, near: Path, report: ProgressCallback = no_progress) -> Iterator[Path]:
    """A folder unchanged, or an archive unpacked into a folder removed at the end of the context.

    Args:
        source: folder or archive.
        near: file beside which an archive is unpacked: gigabytes are possible, often too much for /tmp.
        report: told the bytes written.

    Raises:
        HharError: the source is neither, or cannot be unpacked.
    """
    if source.is_dir():
        yield source
        return
    if not source.is_file():
        raise HharError(f"{source}: must be a folder or an archive, is not there; name where the files lie")
    if not is_archive(source):
        raise HharError(
            f"{source}: must be a folder or an archive ({', '.join(ENDINGS)}), is another file; give the "
            "folder that it lies in"
        )
    near.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=near.parent, prefix=".unpacked-") as folder:
        unpack(source, Path(folder), report)
        yield Path(folder)


def unpack(archive: Path, folder: Path, report: ProgressCallback = no_progress) -> list[Path]:
    """Unpack an archive into a folder; returns the files written.

    Raises:
        HharError: the archive is damaged, breaks a rule, or is empty.
    """
    written = unzip(archive, folder, report=report) if _is_zip(archive) else _untar(archive, folder, report)
    if not written:
        raise HharError(f"{archive}: must hold files, holds none; download it again")
    return written


def _is_zip(archive: Path) -> bool:
    return archive.name.lower().endswith(".zip") or zipfile.is_zipfile(archive)


class _Member(tarfile.TarInfo):
    """A member with a short name and short further headers, because both are read into memory whole."""

    def _proc_member(self, opened: tarfile.TarFile) -> tarfile.TarInfo:  # where tarfile says to step in
        if self.type not in (*tarfile.REGULAR_TYPES, tarfile.DIRTYPE) and self.size > _LONGEST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        member: tarfile.TarInfo = super()._proc_member(opened)  # type: ignore[misc]
        return member


def _untar(archive: Path, folder: Path, report: ProgressCallback) -> list[Path]:
    """Unpack a tar, compressed or not."""
    folder.mkdir(parents=True, exist_ok=True)
    bytes_left = min(MAX_TOTAL_BYTES, max(archive.stat().st_size * MAX_RATIO, TOTAL_FROM_BYTES))
    written: list[Path] = []
    try:
        with tarfile.open(archive, "r|*", tarinfo=_Member) as tar:
            for number, member in enumerate(tar):
                if number >= MAX_MEMBERS:
                    raise HharError(
                        f"{archive}: must hold at most {MAX_MEMBERS} members, holds more; do not trust it"
                    )
                path = _target_path(member, archive.name)
                if member.size > bytes_left:
                    raise HharError(
                        f"{archive}: must unpack to at most {bytes_left >> 20} MiB more, "
                        f"{member.name[:200]!r} alone says {member.size >> 20} MiB, an archive bomb; do not "
                        "trust it"
                    )
                bytes_left -= member.size
                if path is not None:
                    with possible_path(archive, path):
                        written.append(_write(tar, member, folder.resolve(), path, report))
    except HharError:
        raise
    except (tarfile.TarError, EOFError, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the disk's, not the archive's
            raise
        raise HharError(
            f"{archive}: must be a whole tar archive ({str(error)[:200]}); download it again"
        ) from error
    return written


def _target_path(member: tarfile.TarInfo, name: str) -> PurePosixPath | None:
    """Place of a member, None for folders and members left out."""
    path = member_path(member.name, name)
    if member.isdir():
        return None
    if not member.isreg() or member.issparse():
        raise HharError(
            f"{name}: members must be plain files, {member.name[:200]!r} is a link or device; do not trust "
            "this archive"
        )
    return path


def _write(
    tar: tarfile.TarFile,
    member: tarfile.TarInfo,
    folder: Path,
    path: PurePosixPath,
    report: ProgressCallback,
) -> Path:
    """Write one plain file, whole or not at all."""
    target = folder / path
    if not target.parent.resolve().is_relative_to(folder):
        raise HharError(f"{str(path)[:200]!r} leads through a link out of {folder}; choose an empty folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.part")
    partial.unlink(missing_ok=True)  # possibly a link: do not write through it
    reader = tar.extractfile(member)
    assert reader is not None
    try:
        with partial.open("xb") as stream:
            while block := reader.read(BLOCK_BYTES):
                stream.write(block)
                report(f"unpacking {path.name}", stream.tell(), member.size)
        os.replace(partial, target)
    finally:
        with suppress(OSError):  # a full disk raises above
            partial.unlink(missing_ok=True)
    return target
