"""A window file described: who, what, how much."""

import numpy as np
import pytest

from hhar.windows.info import describe_file
from hhar.windows.window_file import WindowFileError, Windows, save_windows


def lines_of(path, device=None, session=None):
    """The description of three windows of two users."""
    x, y, user = np.zeros((3, 2, 5), np.float32), np.array([0, 1, 1]), np.array(["a", "a", "b"])
    save_windows(path, Windows(x, y, user, device, session, ("walk", "sit"), ("acc_x", "acc_y")))
    return describe_file(path).splitlines()


def test_counts_by_user_and_class(tmp_path):
    lines = lines_of(tmp_path / "w.npz")
    assert "shape        3 windows × 2 channels × 5 samples" in lines
    assert "users        2" in lines
    assert "devices      not recorded" in lines
    assert "sessions     not recorded" in lines
    assert [line.split() for line in lines[-3:]] == [
        ["windows", "walk", "sit", "all"], ["a", "1", "1", "2"], ["b", "0", "1", "1"],
    ]  # fmt: skip


def test_devices_and_sessions(tmp_path):
    rest = np.array(["phone", "watch", "phone"]), np.array(["s1", "s1", "s2"])
    lines = lines_of(tmp_path / "w.npz", *rest)
    assert "devices      phone (2), watch (1)" in lines
    assert "sessions     2" in lines


def test_no_file(tmp_path):
    with pytest.raises(WindowFileError, match=r"none\.npz"):
        describe_file(tmp_path / "none.npz")
