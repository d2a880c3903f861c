"""Window file of the ten-by-ten protocol, from a file of images with a split of its own.

    python -m studies.protocols.prepare IMAGES.npz data/cifar10.npz

IMAGES.npz holds x (N, 3, H, W) uint8, y (N,), split (N,) "train" or "test", and classes. The split is kept:
the test images of the data set stay its test images.
"""

import argparse
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import fedge
from hhar.windows.window_file import Windows, save_windows


def windows_of(path: str | Path) -> Windows:
    """Images of a file as windows, in its own split; every image has one nominal user."""
    with np.load(path, allow_pickle=False) as file:
        x, y, split, classes = (file[name] for name in ("x", "y", "split", "classes"))
    windows = fedge.from_images(
        x, y.astype(np.int64), users=["all"] * len(y), classes=list(map(str, classes))
    )
    return replace(windows, part=split.astype(str))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the window file; 1 with one line on stderr if the images cannot be read."""
    parser = argparse.ArgumentParser(description="Window file of the ten-by-ten protocol.")
    parser.add_argument("images", type=Path, metavar="IMAGES.npz", help="x, y, split and classes")
    parser.add_argument("out", type=Path, help="the window file to write")
    options = parser.parse_args(arguments)
    try:
        save_windows(options.out, windows_of(options.images))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        print(
            f"{options.images} must hold x, y, split and classes, but: {error}; make it anew", file=sys.stderr
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
