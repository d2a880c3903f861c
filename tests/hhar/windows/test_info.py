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


@pytest.mark.parametrize(
    ("x", "size"),
    [
        (np.zeros((3, 2, 5), np.uint8), "2 channels × 5 samples"),
        (np.zeros((3, 2, 5, 6), np.uint8), "2 channels × 5 × 6 pixels"),
        (np.zeros((3, 2), np.float32), "2 channels"),
        (np.zeros((3, 2, 4, 4, 4), np.float32), "2 channels × 4 × 4 × 4"),
        (np.zeros((3, 7), np.int64), "7 tokens"),
    ],
)
def test_windows_of_every_form(tmp_path, x, size):
    """Sizes in words; windows without a class each are counted by user alone; sessions are a user's own."""
    user, part = np.array(["a", "a", "b"]), np.array(["train", "test", "train"])
    channels = () if x.dtype == np.int64 else ("acc_x", "acc_y")
    for y, said in (
        (np.zeros((3, 2), np.float32), "2 float32"),
        (np.eye(3, 2).astype(np.int64), "2 int64"),
        (np.zeros(3, np.float32), "1 float32"),
        (np.array([0, 1, 1]), ""),
    ):
        session = np.array(["1", "2", "1"])
        save_windows(tmp_path / "w.npz", Windows(x, y, user, None, session, ("s", "w"), channels, part=part))
        lines = describe_file(tmp_path / "w.npz").splitlines()
        assert f"shape        3 windows × {size}" in lines
        assert "part         test (1), train (2)" in lines
        assert "sessions     3" in lines
        assert [line for line in lines if line.startswith("y ")] == (
            [f"y            {said} for each window"] if said else []
        )
        columns = ["s", "w", "all"] if not said else ["all"]
        assert lines[-3].split() == ["windows", *columns]
        assert [line.split()[-1] for line in lines[-2:]] == ["2", "1"]
