"""Unpack an untrusted zip archive without letting it write outside its folder or fill the disk.

Nested zips are unpacked in place, doubled folders (`a/a/file`) become one, `__MACOSX` and `.DS_Store` are
skipped. Refused: paths leaving the folder, links, encrypted members, and members expanding beyond a limit
(archive bombs).
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from hhar.errors import HharError
from hhar.overlap import overlapping
from hhar.progress import ProgressCallback, no_progress

MAX_TOTAL_BYTES = 8 << 30  # HHAR's four files are 3.3 GB
MAX_RATIO = 100  # sensor CSV compresses 4 to 10 times
RATIO_FROM_BYTES = 4 << 20  # smaller members may have any ratio
TOTAL_FROM_BYTES = 64 << 20  # the same for the total of all members
MAX_MEMBERS = 10_000
MAX_DEPTH = 3
BLOCK_BYTES = 1 << 20
_NO_PLACE = (
    errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.EINVAL,
    errno.EILSEQ,
)  # fmt: skip


@dataclass
class _Budget:
    """Remaining budget for unpacking an archive and its nested archives."""

    archive: Path
    folder: Path
    bytes_left: int
    members_left: int
    written: list[Path]
    report: ProgressCallback


def unpack(
    archive: str | Path,
    folder: str | Path,
    *,
    max_total_bytes: int = MAX_TOTAL_BYTES,
    report: ProgressCallback = no_progress,
) -> list[Path]:
    """Unpack `archive` into `folder`; returns the files written.

    Args:
        archive: a zip file.
        folder: created if absent; files of the same names are replaced.
        max_total_bytes: limit on the unpacked size of all members together, nested ones included.
        report: called with the bytes written.

    Raises:
        HharError: not a zip, damaged, or a member breaks a rule; names the member. Nothing is written for a
            member whose path is refused, and a bomb stops at the limit.
    """
    source = Path(archive)
    if not source.is_file():
        raise HharError(f"{source}: archive must exist; fetch it with `hhar download`")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    # one limit at all depths: a zip of zips must not multiply it
    most = min(max_total_bytes, max(source.stat().st_size * MAX_RATIO, TOTAL_FROM_BYTES))
    budget = _Budget(source, target.resolve(), most, MAX_MEMBERS, [], report)
    with source.open("rb") as stream:
        _unpack_stream(stream, source.name, PurePosixPath(), budget, depth=1)
    return budget.written


def member_path(name: str, archive: str) -> PurePosixPath | None:
    """Path of a member relative to the folder; None if it is skipped.

    Raises:
        HharError: the name is absolute, has a drive or a backslash, or contains `..`.
    """
    path = PurePosixPath(name)
    has_drive = len(name) > 1 and name[1] == ":"
    if path.is_absolute() or has_drive or "\\" in name or ".." in path.parts or "\0" in name:
        raise HharError(
            f"{archive}: member paths must stay inside the folder, but {name[:200]!r} does not; do not trust "
            "this archive"
        )
    parts = [part for part in path.parts if part != "."]
    if not parts or "__MACOSX" in parts or parts[-1] == ".DS_Store" or parts[-1].startswith("._"):
        return None
    return _drop_repeated_folders(PurePosixPath(*parts))


def _drop_repeated_folders(path: PurePosixPath) -> PurePosixPath:
    parts: list[str] = []
    for part in path.parts[:-1]:
        if not parts or parts[-1] != part:
            parts.append(part)
    return PurePosixPath(*parts, path.name)


def _unpack_stream(stream: IO[bytes], name: str, prefix: PurePosixPath, budget: _Budget, depth: int) -> None:
    try:
        with zipfile.ZipFile(stream) as opened:
            members = opened.infolist()
            shared = overlapping(members)
            if shared is not None:
                raise HharError(
                    f"{name}: members must not overlap, but {shared[:200]!r} does, a bomb; do not trust "
                    "this archive"
                )
            planned = [(member, _planned_path(member, name, prefix, budget)) for member in members]
            for member, path in planned:
                if path is not None:
                    _unpack_member(opened, member, path, budget, depth)
    except HharError:
        raise
    except Exception as error:  # damaged bytes: zipfile, zlib, bz2 and lzma raise a dozen kinds
        if isinstance(error, OSError) and error.errno is not None:  # an error of the disk, not of the archive
            raise
        raise HharError(
            f"{budget.archive}: {name} must be an intact zip archive ({str(error)[:200]}); download it again"
        ) from error


def _planned_path(
    member: zipfile.ZipInfo, name: str, prefix: PurePosixPath, budget: _Budget
) -> PurePosixPath | None:
    """Check one member by its entry in the archive; None for folders and skipped members."""
    budget.members_left -= 1
    if budget.members_left < 0:
        raise HharError(
            f"{name}: must hold at most {MAX_MEMBERS} members, but holds more; do not trust this archive"
        )
    path = member_path(member.filename, name)
    mode = member.external_attr >> 16
    if stat.S_ISLNK(mode) or (mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR)):
        raise HharError(
            f"{name}: members must be plain files, but {member.filename[:200]!r} is a link or device; do not "
            "trust this archive"
        )
    if member.flag_bits & 0x1:
        raise HharError(
            f"{name}: members must not be encrypted, but {member.filename[:200]!r} is; unpack it by hand"
        )
    if member.file_size > budget.bytes_left:
        raise HharError(
            f"{name}: must unpack to at most {budget.bytes_left} more bytes, but {member.filename[:200]!r} "
            f"alone states {member.file_size}"
        )
    if path is None or member.is_dir():
        return None
    return _drop_repeated_folders(prefix / path)


def _unpack_member(
    opened: zipfile.ZipFile, member: zipfile.ZipInfo, path: PurePosixPath, budget: _Budget, depth: int
) -> None:
    if path.suffix.lower() == ".zip":
        if depth >= MAX_DEPTH:
            raise HharError(
                f"{budget.archive}: zips must nest at most {MAX_DEPTH} deep, but {str(path)[:200]!r} is "
                "deeper; unpack it by hand"
            )
        with tempfile.TemporaryFile(dir=budget.folder) as inner:
            _copy_member(opened, member, inner, budget)
            inner.seek(0)
            _unpack_stream(inner, str(path), path.parent, budget, depth + 1)
        return
    target = budget.folder / path
    with possible_path(budget.archive, path):
        _write_member(opened, member, target, path, budget)
    budget.written.append(target)


@contextmanager
def possible_path(archive: Path, path: PurePosixPath) -> Iterator[None]:
    """Raise HharError if a member's path is taken by another member or is not valid on this disk."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_PLACE:
            raise
        raise HharError(
            f"{archive}: {str(path)[:200]!r} must be a valid path that no other member takes, "
            f"but: {error.strerror or error}; unpack it by hand"
        ) from error


def _write_member(
    opened: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, path: PurePosixPath, budget: _Budget
) -> None:
    """Write one plain file, completely or not at all."""
    if not target.parent.resolve().is_relative_to(budget.folder):
        raise HharError(
            f"{budget.archive}: {str(path)[:200]!r} leaves {budget.folder} through a link; choose an "
            "empty folder"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.part")
    try:
        partial.unlink(missing_ok=True)  # possibly a link: do not write through it
        with partial.open("xb") as stream:
            _copy_member(opened, member, stream, budget)
        os.replace(partial, target)
    finally:
        with suppress(OSError):  # a full disk raises above
            partial.unlink(missing_ok=True)


def _copy_member(
    opened: zipfile.ZipFile, member: zipfile.ZipInfo, stream: IO[bytes], budget: _Budget
) -> None:
    """Copy one member, counting the bytes actually read rather than those stated by the archive."""
    limit = max(member.compress_size * MAX_RATIO, RATIO_FROM_BYTES)
    size = 0
    with opened.open(member) as reader:
        while block := reader.read(BLOCK_BYTES):
            size += len(block)
            budget.bytes_left -= len(block)
            if size > limit or budget.bytes_left < 0:
                raise HharError(
                    f"{budget.archive}: {member.filename[:200]!r} unpacks to more than {min(limit, size)} "
                    f"bytes from {member.compress_size}: an archive bomb; do not trust this archive"
                )
            stream.write(block)
            budget.report(f"unpacking {PurePosixPath(member.filename).name}", size, member.file_size)
