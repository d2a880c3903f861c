"""MNIST (LeCun, Cortes, Burges): 70,000 handwritten digits of 28 × 28, in four files of the IDX form.

They may be packed by gzip, as published, or not, as torchvision stores them in `MNIST/raw`. An IDX file has
two zero bytes, a type (8: uint8), the number of axes, their lengths as big-endian int32, and the values.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedge.datasets.cards import DataCard, RemoteFile
from fedge.datasets.images import from_images
from hhar.errors import HharError
from hhar.npz import MAX_RATIO, SMALL_BYTES
from hhar.progress import ProgressCallback, no_progress
from hhar.windows.window_file import Windows

PARTS = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}
_MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_UINT8 = 8
_MOST_BYTES = 1 << 30  # of one file, unpacked; the largest is 47 MB

CARD = DataCard(
    name="mnist",
    title="MNIST",
    users=0,
    classes=tuple("0123456789"),
    rate_hz=None,
    units="brightness 0..255",
    licence="CC BY-SA 3.0",
    citation="LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, "
    "Proceedings of the IEEE 1998",
    source="https://yann.lecun.com/exdb/mnist/",
    files=tuple(
        RemoteFile(_MIRROR + name, name, megabytes, sha256)
        for name, megabytes, sha256 in (
            (
                "train-images-idx3-ubyte.gz",
                9.9,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            (
                "train-labels-idx1-ubyte.gz",
                0.03,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            (
                "t10k-images-idx3-ubyte.gz",
                1.6,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            (
                "t10k-labels-idx1-ubyte.gz",
                0.005,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        )
    ),
    options=("users", "per_user", "part"),
)


def read(
    folder: Path,
    report: ProgressCallback = no_progress,
    users: int = 10,
    per_user: int | None = None,
    part: str = "train",
) -> Windows:
    """The digits as images (N, 1, 28, 28), in the order of the files, dealt to users in blocks.

    Raises:
        HharError: a file is missing or not as published.
    """
    x, y = [], []
    for name in PARTS[part]:
        images = read_idx(find(folder, f"{name}-images-idx3-ubyte"), 3)
        labels = read_idx(find(folder, f"{name}-labels-idx1-ubyte"), 1)
        if len(images) != len(labels) or labels.max(initial=0) > 9:
            raise HharError(
                f"{folder}: images and labels of {name} must go together, labels 0..9, are {len(images)} and "
                f"{len(labels)}, to {labels.max(initial=0)}; use the published files"
            )
        x.append(images)
        y.append(labels)
        report("reading files", len(x), len(PARTS[part]), "parts")
    return from_images(
        np.concatenate(x), np.concatenate(y), users=users, per_user=per_user, classes=CARD.classes
    )


def find(folder: Path, name: str) -> Path:
    """A file by its name, unpacked or packed by gzip, at any depth."""
    stem, ending = name.rsplit("-", 2)[0], name.split("-")[-2]
    accepted = (name, f"{stem}.{ending}-ubyte")  # as unpacking by some programs names them
    for path in sorted(folder.rglob(f"{stem}*")):
        if path.name.removesuffix(".gz") in accepted and path.is_file() and "__MACOSX" not in path.parts:
            return path
    raise HharError(
        f"{folder}: must hold {name}, packed (.gz) or not, holds none; fetch it with `fedge "
        "datasets download mnist`"
    )


def read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """The values of an IDX file, uint8 of as many axes as asked for.

    Raises:
        HharError: wrong compression or length, another type or number of axes.
    """
    header_bytes = 4 + 4 * axes
    try:
        with path.open("rb") as raw:
            is_packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if is_packed else path.open("rb") as stream:
            header = stream.read(header_bytes)
            if len(header) < header_bytes or header[:4] != bytes([0, 0, _UINT8, axes]):
                raise HharError(
                    f"{path}: must be an IDX file of bytes with {axes} axes, begins with "
                    f"{header[:4].hex() or 'nothing'}; use the published file"
                )
            shape = tuple(int(length) for length in np.frombuffer(header[4:], ">i4"))
            size = math.prod(shape)
            limit = min(_MOST_BYTES, SMALL_BYTES + MAX_RATIO * path.stat().st_size)
            if min(shape) < 0 or size > limit:
                raise HharError(f"{path}: must hold at most {limit >> 20} MiB, says {shape}; do not trust it")
            content = stream.read(size + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise HharError(f"{path}: must be a whole gzip file ({error}); download it again") from error
    if len(content) != size:
        amount = "more" if len(content) > size else len(content)
        raise HharError(f"{path}: must hold {size} values {shape}, holds {amount}; download it again")
    return np.frombuffer(content, np.uint8).reshape(shape)
