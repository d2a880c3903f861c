"""Images of FedRevive's study: half as high and wide, the first 12,000."""

import numpy as np

from studies.revive.data import halved, write


def test_pixels_are_means_of_four():
    """(1 + 2 + 3 + 6) / 4 = 3; colours and images apart."""
    images = np.array([[[[1, 2], [3, 6]], [[0, 0], [0, 255]]]], np.uint8)
    assert halved(images).tolist() == [[[[3]], [[64]]]]
    assert halved(np.full((2, 28, 28), 7, np.uint8)).shape == (2, 14, 14)


def test_files_have_the_first_images_and_their_labels(tmp_path):
    rng = np.random.default_rng(1)
    for name, shape in (("mnist", (12_003, 28, 28)), ("cifar10", (12_000, 3, 32, 32))):
        np.savez(
            tmp_path / f"{name}.npz", x=rng.integers(0, 256, shape, np.uint8), y=np.arange(shape[0]) % 10
        )
    made = write(tmp_path / "mnist.npz", tmp_path / "cifar10.npz", tmp_path / "out")
    shapes = []
    for path in made:
        with np.load(path) as found:
            shapes.append(found["x"].shape)
            assert found["y"].tolist() == [n % 10 for n in range(12_000)]
    assert shapes == [(12_000, 1, 14, 14), (12_000, 3, 16, 16)]
