"""Images with a split of their own, as windows."""

import numpy as np

from studies.protocols.prepare import windows_of


def test_the_split_of_the_file_stays(tmp_path):
    """Every image once, in its place, under one nominal user; labels of any width become int64."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (12, 3, 8, 8)).astype(np.uint8)
    y, split = np.arange(12).astype(np.uint8) % 3, np.array(["train", "train", "test"] * 4)
    np.savez(tmp_path / "images.npz", x=x, y=y, split=split, classes=np.array(["a", "b", "c"]))
    windows = windows_of(tmp_path / "images.npz")
    np.testing.assert_array_equal(windows.x, x)
    np.testing.assert_array_equal(windows.y, y)
    assert windows.part.tolist() == split.tolist()
    assert windows.classes == ("a", "b", "c")
    assert len(set(windows.user)) == 1
    windows.save(tmp_path / "windows.npz")
