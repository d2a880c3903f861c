"""CIFAR-10 in both forms, tiny."""

import numpy as np
import pytest
from published import python_2_batch, write_cifar10

from fedge.datasets.catalog import prepare
from hhar.errors import HharError

IMAGES = np.arange(4 * 3072).reshape(4, 3, 32, 32) % 251
LABELS = [3, 0, 9, 5]


def test_the_binary_form(tmp_path):
    for number in range(1, 6):
        write_cifar10(tmp_path, IMAGES + number, LABELS, f"data_batch_{number}")
    write_cifar10(tmp_path, IMAGES, LABELS[::-1], "test_batch")
    windows = prepare("cifar10", tmp_path, users=5)
    assert windows.x.shape == (20, 3, 32, 32)
    assert np.array_equal(windows.x[4:8], (IMAGES + 2).astype(np.uint8))
    assert windows.y.tolist() == LABELS * 5
    assert windows.channels == ("red", "green", "blue")
    assert prepare("cifar10", tmp_path, users=2, part="test").y.tolist() == LABELS[::-1]


def test_the_python_form_gives_the_same(tmp_path):
    place = tmp_path / "cifar-10-batches-py"
    place.mkdir()
    (place / "test_batch").write_bytes(python_2_batch(IMAGES, LABELS))
    write_cifar10(tmp_path / "other", IMAGES, LABELS, "test_batch")
    found = [prepare("cifar10", folder, users=2, part="test") for folder in (tmp_path, tmp_path / "other")]
    assert np.array_equal(found[0].x, found[1].x)
    assert found[0].y.tolist() == found[1].y.tolist() == LABELS


def test_what_is_missing_or_broken_is_named(tmp_path):
    with pytest.raises(HharError, match=r"must hold data_batch_1\.bin or data_batch_1"):
        prepare("cifar10", tmp_path)
    write_cifar10(tmp_path, IMAGES, [1, 2, 3, 10], "test_batch")
    with pytest.raises(HharError, match=r"labels 0\.\.9, does not"):
        prepare("cifar10", tmp_path, part="test")
    path = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(HharError, match="must hold 3073 bytes a picture"):
        prepare("cifar10", tmp_path, part="test")
    path.write_bytes(b"")
    with pytest.raises(HharError, match=r"must hold pictures with labels 0\.\.9"):
        prepare("cifar10", tmp_path, part="test")
    path.unlink()
    for content, message in (
        (python_2_batch(IMAGES, [1, 2, 3, 400]), "labels N of 0"),
        (python_2_batch(IMAGES, [1, 2, 3, 4]).replace(b"labels", b"lobels"), "lacks labels"),
        (python_2_batch(IMAGES[:, :1], [1, 2, 3, 4]), r"data must be \(N, 3072\) bytes"),
    ):
        (tmp_path / "test_batch").write_bytes(content)
        with pytest.raises(HharError, match=message):
            prepare("cifar10", tmp_path, part="test")
