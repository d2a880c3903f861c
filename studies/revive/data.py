"""Images of half the height and width, as window files: a quarter of the work for two cores."""

from pathlib import Path

import numpy as np

from fedge.datasets.images import from_images

_COUNT = 12_000


def write(mnist: Path, cifar10: Path, folder: Path) -> list[Path]:
    """Files of the first 12,000 images of either, whose paths are given back; there is no user but one.

    Args:
        mnist, cifar10: npz with x (N, 28, 28) or (N, 3, 32, 32) uint8 and y (N,).
        folder: for mnist-14.npz and cifar10-16.npz.
    """
    paths = []
    for source, name in ((mnist, "mnist-14.npz"), (cifar10, "cifar10-16.npz")):
        with np.load(source, allow_pickle=False) as file:
            images, labels = halved(file["x"][:_COUNT]), file["y"][:_COUNT]
        windows = from_images(images, labels, users=1)
        folder.mkdir(parents=True, exist_ok=True)
        windows.save(folder / name)
        paths.append(folder / name)
    return paths


def halved(images: np.ndarray) -> np.ndarray:
    """Means of 2 × 2 pixels, (…, H/2, W/2) uint8, of images (…, H, W) uint8 of even height and width.

    >>> halved(np.array([[0, 2, 8, 8], [4, 6, 8, 8]], np.uint8))
    array([[3, 8]], dtype=uint8)
    """
    *leading, height, width = images.shape
    cells = images.reshape(*leading, height // 2, 2, width // 2, 2)
    means: np.ndarray = np.round(cells.mean(axis=(-3, -1))).astype(np.uint8)
    return means
