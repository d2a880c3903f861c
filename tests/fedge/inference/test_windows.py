from dataclasses import replace

import numpy as np
import pytest

from fedge.config.registers.option import ConfigError
from fedge.inference.card import Card
from fedge.inference.windows import checked, read_raw_windows, scale_warning
from hhar.windows.window_file import load_windows

CARD = Card("1", "cnn", {}, {}, (2, 16), "float32", ("u", "v"), ("a", "b"))
X = np.zeros((3, 2, 16), np.float32)


def written(path, **arrays):
    np.savez(path / "d.npz", **arrays)
    return path / "d.npz"


def test_x_alone_will_do_and_users_are_taken_along(tmp_path):
    found = read_raw_windows(written(tmp_path, x=X.astype(np.float64)), CARD)
    assert (found.x.dtype, found.user) == (np.float32, None)
    found = read_raw_windows(
        written(tmp_path, x=X, user=np.array(list("abc")), channels=np.array(["u", "v"])), CARD
    )
    assert found.user.tolist() == list("abc")


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": X}, "data must be a window file, but .* lacks x"),
        ({"x": X[:, :1]}, r"windows of shape \(windows, 2, 16\), as in training \(u, v\), but is of "
        r"shape \(3, 1"),
        ({"x": X[..., :8]}, r"but is of shape \(3, 2, 8\); cut and sample them alike"),
        ({"x": X, "channels": np.array(["v", "u"])}, "channels must be those of training, u, v, but "
        ".* has v, u"),
        ({"x": X.astype(complex)}, "must be float32 or uint8, but is 'complex128'"),
        ({"x": X + np.array([[[0]], [[np.nan]], [[0]]], np.float32)}, "must be finite, but window 1 is not"),
        ({"x": X + np.array([[[0]], [[0]], [[-3e38]]], np.float32)}, "window 2 holds a larger number"),
        ({"x": X + np.array([[[0]], [[0]], [[1e300]]])}, "must be finite, but window 2 is not"),
        ({"x": X, "user": np.array([1.0, 2.0, 3.0])}, "user must be a text per window"),
        ({"x": X.astype(object)}, "holds pickled objects"),
    ],
)  # fmt: skip
def test_other_windows_are_refused_in_one_line(tmp_path, arrays, words):
    with pytest.raises(ConfigError, match=words) as caught:
        read_raw_windows(written(tmp_path, **arrays), CARD)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["?", "i1", "i2", "i8", "u2", "u8", "f2", "f4", "f8", "g", ">f4", ">i2"])
def test_a_file_of_training_is_also_one_for_predictions(tmp_path, kind):
    """Numbers are cast, and numeric names, as a run casts those of `data.path`."""
    x = np.tile(np.arange(2, dtype=kind), 48).reshape(3, 2, 16)
    arrays = {"x": x, "user": np.array([3, 1, 2]), "channels": np.array(["u", "v"])}
    path = written(tmp_path, y=np.array([0, 1, 0]), classes=np.array(["a", "b"]), **arrays)
    there, found = load_windows(path), read_raw_windows(path, CARD)
    assert found.x.dtype == there.x.dtype == np.float32
    assert np.array_equal(found.x, there.x)
    assert found.user.tolist() == there.user.tolist() == ["3", "1", "2"]


@pytest.mark.parametrize("kind", ["i2", "i8", "?"])
def test_whole_numbers_in_place_of_bytes_are_refused(tmp_path, kind):
    with pytest.raises(ConfigError, match="must be float32 or uint8"):
        read_raw_windows(written(tmp_path, x=X.astype(kind)), replace(CARD, dtype="uint8"))


def test_what_is_no_archive(tmp_path):
    (tmp_path / "d.npz").write_bytes(b"PK\x03\x04 nothing")
    for name, words in (("d.npz", "must be an .npz archive"), ("no", "must be a readable")):
        with pytest.raises(ConfigError, match=words):
            read_raw_windows(tmp_path / name, CARD)


def test_no_windows_are_windows():
    assert len(checked(X[:0], CARD)) == 0


SCALED = replace(CARD, mean=(0.0, 1.0), std=(1.0, 2.0))


@pytest.mark.parametrize(
    ("x", "words"),
    [
        pytest.param(X + np.array([[0.0], [4.0]]), "", id="another person"),
        pytest.param(X + np.array([[0.0], [12.0]]), "v is 12 ± 0, was 1 ± 2", id="another middle"),
        pytest.param(X + np.tile([-6.0, 6.0], 8), "u is 0 ± 6, was 0 ± 1", id="another width"),
        pytest.param(np.full(X.shape, 255, np.uint8), "", id="brightness"),
        pytest.param(np.full(X.shape, 255, np.float32), "u is 255 ± 0, was 0 ± 1", id="not brightness"),
        pytest.param(X[:0], "", id="nothing"),
    ],
)
def test_windows_of_another_scale_are_said(x, words):
    assert words in scale_warning(x, SCALED)
    assert bool(scale_warning(x, SCALED)) == bool(words)
    assert scale_warning(x, CARD) == "", "a model without scaling knows no scale"
