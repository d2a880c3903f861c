"""MNIST's IDX files, tiny and broken; and the real ones."""

import gzip

import numpy as np
import pytest
from published import write_mnist

from fedge.datasets.catalog import prepare
from fedge.datasets.mnist import read_idx
from hhar.errors import HharError

IMAGES = np.arange(12 * 28 * 28).reshape(12, 28, 28) % 251
LABELS = np.arange(12) % 10


@pytest.mark.parametrize("packed", [True, False])
def test_images_in_the_order_of_the_file_dealt_in_blocks(tmp_path, packed):
    """As published, and as torchvision lays them: MNIST/raw."""
    write_mnist(tmp_path / "MNIST" / "raw", IMAGES, LABELS, packed=packed)
    windows = prepare("mnist", tmp_path, users=3)
    assert windows.x.dtype == np.uint8
    assert np.array_equal(windows.x[:, 0], IMAGES)
    assert np.array_equal(windows.y, LABELS)
    assert windows.user.tolist() == ["user-0"] * 4 + ["user-1"] * 4 + ["user-2"] * 4
    assert windows.about["licence"] == "CC BY-SA 3.0"


def test_parts_and_pictures_per_user(tmp_path):
    write_mnist(tmp_path, IMAGES, LABELS)
    write_mnist(tmp_path, IMAGES[:2] + 1, LABELS[:2], part="t10k")
    assert len(prepare("mnist", tmp_path, users=2, part="test")) == 2
    assert len(prepare("mnist", tmp_path, users=2, part="all")) == 14
    few = prepare("mnist", tmp_path, users=3, per_user=2)
    assert np.array_equal(few.x[:, 0], IMAGES[:6])
    with pytest.raises(HharError, match="need 3 × 5"):
        prepare("mnist", tmp_path, users=3, per_user=5)


def test_broken_files_are_named(tmp_path):
    with pytest.raises(HharError, match="must hold train-images-idx3-ubyte, packed"):
        prepare("mnist", tmp_path)
    write_mnist(tmp_path, IMAGES, LABELS[:5])
    with pytest.raises(HharError, match="images and labels of train must go together"):
        prepare("mnist", tmp_path)
    write_mnist(tmp_path, IMAGES, LABELS + 7)
    with pytest.raises(HharError, match="to 16"):
        prepare("mnist", tmp_path)
    path = tmp_path / "x"
    for content, message in (
        (b"", "begins with nothing"),
        (b"\x1f\x8b cut", "must be a whole gzip file"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 9]) + bytes(9))[:-9], "must be a whole gzip file"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 9]) + bytes(8), "must hold 9 values .*, holds 8"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 9]) + bytes(10), "holds more"),
        (bytes([0, 0, 13, 1, 0, 0, 0, 9]) + bytes(36), "begins with 00000d01"),
        (bytes([0, 0, 8, 1, 255, 255, 255, 255]), "do not trust it"),
        (bytes([0, 0, 8, 1, 127, 255, 255, 255]), "must hold at most 256 MiB"),
        (gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 9]) + bytes(10**6)), "holds more"),
    ):
        path.write_bytes(content)
        with pytest.raises(HharError, match=message):
            read_idx(path, 1)


@pytest.mark.whole_runs
def test_the_real_digits(shared_data, tmp_path):
    """The whole training part, written as IDX again: 6,742 ones, as its page says."""
    with np.load(shared_data / "mnist" / "mnist-70000.npz") as real:
        train = real["split"] == "train"
        images, labels = real["x"][train], real["y"][train]
    write_mnist(tmp_path, images, labels, packed=False)
    windows = prepare("mnist", tmp_path, users=40, per_user=500)
    assert windows.x.shape == (20_000, 1, 28, 28)
    assert np.bincount(prepare("mnist", tmp_path).y)[1] == 6742
