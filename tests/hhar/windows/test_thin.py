"""Thinner window files: which windows stay, what becomes of samples, what is refused."""

import dataclasses

import numpy as np
import pytest

from hhar.cli import main
from hhar.errors import HharError
from hhar.windows.thin import thin
from hhar.windows.window_file import Windows, load_windows, save_windows


def windows() -> Windows:
    """Seven windows of one channel, four samples: b has the first two and the last, a those between."""
    user = np.array(["b", "b", "a", "a", "a", "a", "b"])
    x = np.arange(28, dtype=np.float32).reshape(7, 1, 4)
    session = np.array([f"s{n}" for n in range(7)])
    return Windows(x, np.arange(7, dtype=np.int64) // 2 % 2, user, None, session, ("sit", "walk"), ("acc_x",))


def test_every_second_window_of_each_user_stays_in_order():
    kept = thin(windows(), keep_every=2)
    assert kept.session is not None
    assert kept.session.tolist() == ["s0", "s2", "s4", "s6"]
    assert kept.user.tolist() == ["b", "a", "a", "b"]
    assert kept.y.tolist() == [0, 1, 0, 1]
    assert kept.device is None


def test_samples_become_means():
    halved = thin(windows(), mean_of=2)
    assert halved.x.dtype == np.float32
    assert halved.x[:2].tolist() == [[[0.5, 2.5]], [[4.5, 6.5]]]
    assert thin(windows(), mean_of=4).x[1].tolist() == [[5.5]]


def test_ones_change_nothing():
    assert np.array_equal(thin(windows()).x, windows().x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep_every": 0}, "keep-every must be at least 1, but is 0"),
        ({"mean_of": 3}, "must divide the 4 samples of a window, but is 3; choose one of 1, 2, 4"),
    ],
)
def test_what_cannot_be_is_said(options, message):
    with pytest.raises(HharError, match=message):
        thin(windows(), **options)


def test_from_the_command_line(tmp_path, capsys):
    source, target = tmp_path / "all.npz", tmp_path / "thin.npz"
    save_windows(source, windows())
    assert main(["thin", str(source), str(target), "--keep-every", "2", "--mean-of", "2"]) == 0
    assert "4 windows of 1 channel × 2 samples" in capsys.readouterr().out
    assert load_windows(target).x.shape == (4, 1, 2)
    assert main(["thin", str(source), str(target), "--mean-of", "5"]) == 2
    assert "mean-of must divide" in capsys.readouterr().err


def test_what_windows_say_of_their_rate_is_true_afterwards():
    told = dataclasses.replace(windows(), about={"rate_hz": "50", "stride_s": "1.28", "licence": "MIT"})
    assert thin(told, keep_every=4, mean_of=2).about == {
        "rate_hz": "25",
        "stride_s": "5.12",
        "licence": "MIT",
    }
    assert thin(told).about == told.about
    assert thin(dataclasses.replace(told, about={"rate_hz": "fifty"}), mean_of=2).about == {}


def test_images_stay_images():
    """Every third of seven; pixels are no samples that could be averaged."""
    images = np.arange(7 * 4, dtype=np.uint8).reshape(7, 1, 2, 2)
    pictures = dataclasses.replace(windows(), x=images)
    found = thin(pictures, keep_every=3)
    assert found.x.dtype == np.uint8
    assert found.x.shape[1:] == (1, 2, 2)
    assert set(found.x[:, 0, 0, 0].tolist()) <= set(images[:, 0, 0, 0].tolist())
    with pytest.raises(HharError, match="mean-of must be 1 for images"):
        thin(pictures, mean_of=2)


FORMS = {
    "bytes": np.arange(28, dtype=np.uint8).reshape(7, 1, 4),
    "images": np.arange(28, dtype=np.uint8).reshape(7, 1, 2, 2),
    "rows": np.arange(7, dtype=np.float32).reshape(7, 1),
    "volumes": np.zeros((7, 1, 2, 2, 2), np.float32),
    "tokens": np.arange(28).reshape(7, 4),
}
TARGETS = {
    "classes": np.arange(7) // 2 % 2,
    "numbers": np.arange(14, dtype=np.float32).reshape(7, 2),
    "several": np.arange(14).reshape(7, 2) % 2,
}


@pytest.mark.parametrize("y", TARGETS)
@pytest.mark.parametrize("x", FORMS)
def test_windows_of_every_form_are_thinned_with_all_that_is_known_of_them(tmp_path, capsys, x, y):
    """Rows 0, 2, 4, 6 of every array of the file, as NumPy indexes them."""
    parts = np.array(["train", "train", "test", "train", "val", "train", "test"])
    channels = () if x == "tokens" else ("acc_x",)
    full = dataclasses.replace(
        windows(), x=FORMS[x], y=TARGETS[y], part=parts, device=np.array(list("pqpqpqp")), channels=channels
    )
    source, target = tmp_path / "all.npz", tmp_path / "thin.npz"
    save_windows(source, full)
    assert main(["thin", str(source), str(target), "--keep-every", "2"]) == 0
    assert "4 windows of" in capsys.readouterr().out
    before, after = np.load(source), np.load(target)
    assert set(after.files) == set(before.files)
    for name in before.files:
        kept = before[name] if name in ("classes", "channels") else before[name][[0, 2, 4, 6]]
        assert after[name].dtype.kind == before[name].dtype.kind
        assert np.array_equal(after[name], kept)
    means = main(["thin", str(source), str(target), "--mean-of", "2"])
    said = capsys.readouterr().err
    assert (means, "must be 1 for" in said) == ((0, False) if x == "bytes" else (2, True))


def test_means_of_bytes_are_brightness_as_in_a_run():
    """(0 + 1) / 2 / 255 and so on: bytes count from 0 to 1."""
    halved = thin(dataclasses.replace(windows(), x=FORMS["bytes"]), mean_of=2)
    assert halved.x[1].tolist() == [[np.float32(4.5 / 255), np.float32(6.5 / 255)]]


def test_a_class_for_each_sample_goes_with_no_mean_of_samples():
    for classes, refused in (("sit", "walk"), True), (("a", "b", "c", "d"), False):
        at_samples = dataclasses.replace(windows(), y=np.zeros((7, 4), np.int64), classes=classes)
        if refused:
            with pytest.raises(HharError, match="y has a class for each sample"):
                thin(at_samples, mean_of=2)
        else:
            assert thin(at_samples, mean_of=2).y.shape == (7, 4)
