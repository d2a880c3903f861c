"""Read arrays from an untrusted `.npz`: no pickles, and no more memory than its members really fill.

`numpy.load` trusts an array's header and allocates the stated size first; here each header is compared with
the size of its member, and the total of all members with the machine's memory and the size of the file,
before anything is read.
"""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Sequence
from typing import IO, Any

from numpy.typing import NDArray

from hhar.npy import Header, read_array, read_header
from hhar.overlap import overlapping

_AS_NUMPY_WRITES = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
SMALL_BYTES = 256 << 20  # always allowed: up to here, arrays of zeros do no harm
MAX_RATIO = 50  # beyond SMALL_BYTES; sensor noise and images compress 1 to 10 times, a column of names more


class NpzError(ValueError):
    """A fault of the archive: the rule and the finding."""


def read_npz(stream: IO[bytes], required: Sequence[str], optional: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Arrays by name, with the shapes and dtypes of the archive; optional arrays may be absent.

    Raises:
        NpzError: an array is missing, holds pickled objects, or has another size than its header states.
        Exception: of many kinds (zipfile's, zlib's, numpy's) when the archive is damaged.
    """
    with zipfile.ZipFile(stream) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        missing = [name for name in required if name not in members]
        if missing:
            raise NpzError(f"must hold the arrays {', '.join(required)}, but lacks {', '.join(missing)}")
        selected = {name: members[name] for name in (*required, *optional) if name in members}
        shared = overlapping(archive.infolist())
        if shared is not None:
            raise NpzError(f"members must not overlap, but {shared[:200]!r} does; do not trust this archive")
        _refuse_too_large(sum(member.file_size for member in selected.values()), _size(stream))
        return {name: _read_member(archive, member, name) for name, member in selected.items()}


def _size(stream: IO[bytes]) -> int:
    """Number of bytes of a seekable stream."""
    return stream.seek(0, os.SEEK_END)


def _refuse_too_large(num_bytes: int, file_bytes: int) -> None:
    """Refuse arrays exceeding the machine's memory, or a size implausible for so small a file."""
    limit = SMALL_BYTES + MAX_RATIO * file_bytes
    if num_bytes > limit:
        raise NpzError(
            f"must unpack to at most {limit >> 20} MiB, {SMALL_BYTES >> 20} and {MAX_RATIO} times its size, "
            f"but states {num_bytes >> 20} MiB: an archive bomb; do not trust it, or save it uncompressed"
        )
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if num_bytes > memory:
        raise NpzError(
            f"must fit into memory, but unpacks to {num_bytes / 1e9:.1f} GB and this machine has "
            f"{memory / 1e9:.1f} GB"
        )


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> NDArray[Any]:
    """One array."""
    if member.compress_type not in _AS_NUMPY_WRITES:
        raise NpzError(f"{name} must be stored or deflated, as numpy writes it, but is compressed otherwise")
    with archive.open(member) as stream:
        header = _checked_header(stream, member.file_size, name)
        return read_array(stream, header)


def _checked_header(stream: IO[bytes], member_bytes: int, name: str) -> Header:
    """Header of an array that is neither pickled nor larger or smaller than its member."""
    header = read_header(stream)
    shape, _, dtype = header
    if dtype.hasobject:
        raise NpzError(f"{name} must be a plain array, but holds pickled objects, which are never loaded")
    stated, actual = math.prod(shape) * dtype.itemsize, member_bytes - stream.tell()
    if min(shape, default=0) < 0 or stated != actual or dtype.itemsize == 0 < math.prod(shape):
        raise NpzError(
            f"{name} must be as large as its header states, {stated} bytes {shape}, but holds {actual}"
        )
    return header
