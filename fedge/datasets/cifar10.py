"""CIFAR-10 (Krizhevsky 2009): 60,000 colour pictures of 32 × 32, ten classes.

It is published in two forms. *Binary* (`data_batch_1.bin`) has a byte of label and 3,072 of colour per
picture; `download` fetches this one. *Python* (`cifar-10-batches-py/data_batch_1`), which torchvision
downloads, consists of pickles, read by `pickled` without running their code.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedge.datasets.cards import DataCard, RemoteFile
from fedge.datasets.images import from_images
from fedge.datasets.pickled import MOST_BYTES, read_pickled
from hhar.errors import HharError
from hhar.progress import ProgressCallback, no_progress
from hhar.windows.window_file import Windows

SHAPE = (3, 32, 32)
_PIXELS = 3 * 32 * 32
_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
PARTS = {"train": _TRAIN, "test": ("test_batch",), "all": (*_TRAIN, "test_batch")}

CARD = DataCard(
    name="cifar10",
    title="CIFAR-10",
    users=0,
    classes=(
        "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
    ),
    rate_hz=None,
    units="brightness 0..255 of red, green and blue",
    licence="none stated; its author asks to be cited",
    citation="Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009",
    source="https://www.cs.toronto.edu/~kriz/cifar.html",
    files=(
        RemoteFile(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "cifar-10-binary.tar.gz",
            170,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
    options=("users", "per_user", "part"),
)  # fmt: skip


def read(
    folder: Path,
    report: ProgressCallback = no_progress,
    users: int = 10,
    per_user: int | None = None,
    part: str = "train",
) -> Windows:
    """The pictures as images (N, 3, 32, 32), in the order of the files, dealt to users in blocks.

    Raises:
        HharError: a batch is missing or not as published.
    """
    x, y = [], []
    for name in PARTS[part]:
        pixels, labels = _read_batch(folder, name)
        x.append(pixels)
        y.append(labels)
        report("reading batches", len(x), len(PARTS[part]), "batches")
    return from_images(
        np.concatenate(x), np.concatenate(y), users=users, per_user=per_user, classes=CARD.classes
    )


def _read_batch(folder: Path, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pictures (N, 3, 32, 32) and labels (N) of one batch."""
    candidates = [
        path
        for ending in (".bin", "")
        for path in sorted(folder.rglob(name + ending))
        if path.is_file() and "__MACOSX" not in path.parts
    ]
    if not candidates:
        raise HharError(
            f"{folder}: must hold {name}.bin or {name}, holds neither; fetch it with `fedge datasets "
            "download cifar10`"
        )
    path = candidates[0]
    if path.stat().st_size > MOST_BYTES:
        raise HharError(f"{path}: must be at most {MOST_BYTES >> 20} MiB, is larger; use the published file")
    pixels, labels = _read_binary(path) if path.suffix == ".bin" else _read_pickle(path)
    if not len(labels) or labels.min() < 0 or labels.max() > 9:
        raise HharError(f"{path}: must hold pictures with labels 0..9, does not; use the published file")
    return pixels.reshape(-1, *SHAPE), labels


def _read_binary(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    content = np.frombuffer(path.read_bytes(), np.uint8)
    if len(content) % (1 + _PIXELS):
        raise HharError(
            f"{path}: must hold {1 + _PIXELS} bytes a picture, has {len(content)}; download it again"
        )
    rows = content.reshape(-1, 1 + _PIXELS)
    return rows[:, 1:], rows[:, 0].astype(np.int64)


def _read_pickle(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    entries = read_pickled(path, ("data", "labels"))
    pixels, labels = entries["data"], entries["labels"]
    are_labels = isinstance(labels, list) and all(type(label) is int and 0 <= label <= 9 for label in labels)
    if not isinstance(pixels, np.ndarray) or not are_labels or pixels.shape != (len(labels), _PIXELS):
        raise HharError(
            f"{path}: data must be (N, {_PIXELS}) bytes and labels N of 0..9, are not; use the published file"
        )
    return pixels, np.array(labels, dtype=np.int64)
