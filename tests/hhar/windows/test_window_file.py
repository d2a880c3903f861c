"""Window files: round trip, fingerprints, and one line for every defect."""

import dataclasses
import os
import stat
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hhar import (
    WindowFileError,
    Windows,
    fingerprint,
    fingerprint_windows,
    load_windows,
    save_windows,
)


def small(num=4, **changes) -> Windows:
    base = Windows(
        x=np.arange(num * 6, dtype=np.float32).reshape(num, 2, 3),
        y=np.arange(num, dtype=np.int64) % 2,
        user=np.array(["a"] * num),
        device=np.array(["nexus4_1"] * num),
        session=np.array([f"a/sit/{k:02d}" for k in range(num)]),
        classes=("sit", "walk"),
        channels=("acc_x", "acc_y"),
    )
    return dataclasses.replace(base, **changes)


def arrays_of(windows: Windows) -> dict:
    found = {key: getattr(windows, key) for key in ("x", "y", "user", "device", "session")}
    return found | {"classes": np.array(windows.classes), "channels": np.array(windows.channels)}


def test_windows_show_themselves_in_a_line():
    assert repr(small()) == (
        "<Windows: 4 of 2 × 3 float32, 1 user, 4 sessions, classes sit, walk, channels acc_x, acc_y>"
    )
    many = small(classes=tuple("abcdefgh"), session=None)
    assert repr(many).endswith("1 user, classes a, b, c, d, e, f, … (8), channels acc_x, acc_y>")
    assert repr(small(user=None, classes=None, x=[1])).count("\n") == 0  # what is to be refused has one, too


@pytest.mark.parametrize("key", ["x", "y", "user", "classes", "channels"])
@pytest.mark.parametrize("value", [None, 3, "walk"])
def test_anything_but_arrays_and_names_is_one_line(tmp_path, key, value):
    with pytest.raises(
        WindowFileError, match=f"{key} must be a (NumPy array|tuple of names), but is "
    ) as error:
        save_windows(tmp_path / "w.npz", small(**{key: value}))
    assert "\n" not in str(error.value)


def test_names_may_be_an_array(tmp_path):
    windows = small(classes=np.array(["sit", "walk"]), channels=["acc_x", "acc_y"])
    assert repr(windows) == repr(small())
    assert load_windows(save_windows(tmp_path / "w.npz", windows)).classes == ("sit", "walk")


@pytest.mark.parametrize("compress", [False, True])
def test_round_trip(tmp_path, compress):
    windows = small()
    path = save_windows(tmp_path / "deep" / "w.npz", windows, compress=compress)
    back = load_windows(path)
    assert np.array_equal(back.x, windows.x)
    assert back.x.dtype == np.float32
    assert back.session.tolist() == windows.session.tolist()
    assert back.classes == windows.classes
    assert fingerprint_windows(back) == fingerprint_windows(windows)
    assert [entry.name for entry in path.parent.iterdir()] == ["w.npz"]  # no temporary file is left


def test_device_and_session_may_be_absent(tmp_path):
    back = load_windows(save_windows(tmp_path / "w.npz", small(device=None, session=None)))
    assert back.device is None
    assert back.session is None


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/stdin", "a\0b", "fifo", "."])
def test_what_is_no_file_has_no_fingerprint(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    with pytest.raises(OSError, match="not a regular file"):
        fingerprint(path)


def test_fingerprint_is_the_sha256_of_the_bytes(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")  # the example of FIPS 180-2
    assert fingerprint(tmp_path / "f") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 23), st.floats(-5, 5, width=32))
def test_contents_fingerprint_sees_every_value(place, value):
    windows = small()
    x = windows.x.copy()
    x.flat[place] = value
    same = x.tobytes() == windows.x.tobytes()  # -0.0 equals 0.0, but is another value
    assert (fingerprint_windows(small(x=x)) == fingerprint_windows(windows)) == same


def test_contents_fingerprint_ignores_the_width_of_text():
    assert fingerprint_windows(small(user=np.array(["a"] * 4, dtype="<U20"))) == fingerprint_windows(small())


BAD = {
    "text": ({"x": np.zeros((4, 2, 3), "U1")}, "x must be float32"),
    "too large for float32": ({"x": np.full((4, 2, 3), 1e300)}, "a number beyond float32, first"),
    "squares beyond float32": (
        {"x": small().x + np.array([[[0] * 3] * 2] * 3 + [[[0] * 3, [0, -3e38, 0]]], np.float32)},
        r"x must be from -1e\+18 to 1e\+18, .*1 of 4 .* 3e\+38 in channel 'acc_y' of user 'a', window 3;",
    ),
    "targets whose squares are beyond float32": (
        {"y": np.array([0, 2e18, -3e38, 1], np.float32)},
        r"y must be from -1e\+18 to 1e\+18, .* but 2 of 4 .* 3e\+38 in output 'sit' of user 'a', window 2;",
    ),
    "one axis": ({"x": np.zeros(4, np.float32)}, "x must be float32"),
    "a row's channels without names": (
        {"x": np.zeros((4, 6), np.float32)},
        "channels must name each of the 6",
    ),
    "tokens below zero": ({"x": -np.ones((4, 6), np.int64), "channels": ()}, "tokens .* must be 0 or more"),
    "parts of other names": (
        {"part": np.array(["train", "test", "new", "val"])},
        "part must be train, val or",
    ),
    "parts without a test": (
        {"part": np.array(["train"] * 4)},
        "part must be train, val or test, with windows",
    ),
    "a position beyond the classes": (
        {"y": np.array([[0, 1], [1, 2], [0, -1], [1, 1]])},
        r"y must be from -1 to 1",
    ),
    "labels as text": ({"y": np.array(["0", "1", "0", "1"])}, "y must be int64"),
    "short y": ({"y": np.array([0, 1])}, "y must have one entry per window, but has 2 for 4"),
    "short session": ({"session": np.array(["a"])}, "session must have one entry per window"),
    "user as fractions": ({"user": np.arange(4) / 2}, "user must be str"),
    "numbers that are none": (
        {"y": np.array([0, 1, 0, np.nan])},
        "y must be finite, but is not in 1 windows",
    ),
    "about of three columns": ({"about": np.array([["a", "b", "c"]])}, "about must be str of shape"),
    "about that clears a screen": (
        {"about": np.array([["a", "\x1b[2J"]])},
        "about must hold printable names",
    ),
    "about without end": ({"about": np.array([["licence", "x" * 20_001]])}, "about must be at most 20000"),
    "label past the classes": ({"y": np.array([0, 1, 2, 0])}, "the first in window 2 with 2"),
    "negative label": ({"y": np.array([0, -1, 1, 0])}, "the first in window 1 with -1"),
    "one class": ({"y": np.zeros(4, np.int64)}, "at least two classes"),
    "channel names": ({"channels": np.array(["acc_x"])}, "channels must name each of the 2"),
    "doubled class": ({"classes": np.array(["sit", "sit"])}, "classes must differ"),
    "class that clears a screen": (
        {"classes": np.array(["sit", "a\x1b[2J"])},
        "classes must hold printable names",
    ),
    "user that rings": (
        {"user": np.array(["a", "b\x07", "a", "b"])},
        "user must hold printable names",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_defects_are_refused_in_one_line(tmp_path, name):
    changes, message = BAD[name]
    path = tmp_path / "bad.npz"
    np.savez(path, **(arrays_of(small()) | changes))
    with pytest.raises(WindowFileError, match=message) as caught:
        load_windows(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert ";" in str(caught.value)  # the next step


def test_other_types_are_cast_and_said(tmp_path):
    """As pandas and NumPy make them: float64, int32, numbers and objects for names, another byte order."""
    other = {
        "x": small().x.astype(">f8"), "y": small().y.astype(np.int32), "user": np.arange(4),
        "device": np.array(["a", "bb", "a", "a"], dtype=object),
    }  # fmt: skip
    back = load_windows(small(**other).save(tmp_path / "w.npz"))
    assert np.array_equal(back.x, small().x)
    assert (back.x.dtype, back.y.dtype) == (np.float32, np.int64)
    assert (back.user.tolist(), back.device.tolist()) == (["0", "1", "2", "3"], ["a", "bb", "a", "a"])
    says = "x from >f8 to float32, y from int32 to int64, user from int64 to str, device from object to str"
    assert back.about == {"cast": says}
    del other["device"]  # NumPy would pickle it
    np.savez(tmp_path / "by-hand.npz", **(arrays_of(small()) | other))
    back = load_windows(tmp_path / "by-hand.npz")
    assert np.array_equal(back.x, small().x)
    assert back.about == {"cast": says.rsplit(", ", 1)[0]}


def test_about_goes_along_and_is_no_part_of_the_contents(tmp_path):
    told = small(about={"licence": "CC BY 4.0", "citation": "Stisen et al. 2015"})
    back = load_windows(save_windows(tmp_path / "w.npz", told))
    assert back.about == told.about
    assert fingerprint_windows(back) == fingerprint_windows(small())


def test_objects_are_refused_with_what_to_do():
    with pytest.raises(
        WindowFileError, match=r"is object .*; convert them to numbers: numpy.asarray\(x, dtype='float32'\)"
    ):
        small(x=small().x.astype(object)).save("never.npz")
    with pytest.raises(WindowFileError, match="x must be a NumPy array, but is list"):
        small(x=small().x.tolist()).save("never.npz")


@pytest.mark.parametrize("key", ["user", "device", "session", "part"])
@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([0.5, 1.5, 1.5, 2.5], "make it text: {}.astype(str)"),
        ([True, False, True, False], "make it text: {}.astype(str)"),
        ([b"a", b"b", b"b", b"c"], "make it text: {}.astype(str)"),
        (np.arange(4).astype("M8[D]"), "make it text: {}.astype(str)"),
        (np.array(["a", None, "b", "b"], object), ", in window 1 None; give every window a name, as text"),
        (np.array(["a", "b", 7.5, "b"], object), ", in window 2 7.5; give every window a name, as text"),
    ],
)
def test_names_that_are_no_text_are_refused_with_a_step_that_works(tmp_path, key, values, step):
    with pytest.raises(WindowFileError, match=f" {key} must be str of shape") as caught:
        save_windows(tmp_path / "w.npz", small(**{key: np.array(values)}))
    assert str(caught.value).endswith(step.format(key))


def test_not_finite_names_count_and_first(tmp_path):
    x = small().x.copy()
    x[1, 0, 0], x[3, 1, 2] = np.nan, np.inf
    np.savez(tmp_path / "bad.npz", **(arrays_of(small()) | {"x": x}))
    with pytest.raises(WindowFileError, match="2 of 4 windows hold NaN or infinity, first window 1"):
        load_windows(tmp_path / "bad.npz")


@pytest.mark.parametrize("name", ["a.csv", "a.TSV", "a.parquet"])
def test_a_table_in_place_of_a_window_file_is_named_as_one(tmp_path, name):
    (tmp_path / name).write_text("user,activity,acc_x\n")
    with pytest.raises(WindowFileError, match=r"but is a table; .* fedge\.from_pandas") as caught:
        load_windows(tmp_path / name)
    assert "zip" not in str(caught.value)


def test_empty_missing_and_pickled(tmp_path):
    with pytest.raises(WindowFileError, match="window file must exist"):
        load_windows(tmp_path / "none.npz")
    np.savez(tmp_path / "empty.npz", **{k: v[:0] if k in "xy user device session" else v
                                        for k, v in arrays_of(small()).items()})  # fmt: skip
    with pytest.raises(WindowFileError, match="at least one window"):
        load_windows(tmp_path / "empty.npz")
    np.savez(tmp_path / "pickled.npz", **(arrays_of(small()) | {"user": np.array(["a"] * 4, dtype=object)}))
    with pytest.raises(WindowFileError, match="user must be a plain array, but holds pickled"):
        load_windows(tmp_path / "pickled.npz")
    np.savez(tmp_path / "less.npz", x=small().x)
    with pytest.raises(WindowFileError, match="lacks y, user, classes, channels"):
        load_windows(tmp_path / "less.npz")
    np.save(tmp_path / "single.npy", small().x)
    with pytest.raises(WindowFileError, match="single array"):
        load_windows(tmp_path / "single.npy")


@pytest.mark.parametrize("keep", [0, 1, 10, 200, 900])
def test_truncated_files(tmp_path, keep):
    path = save_windows(tmp_path / "w.npz", small())
    (tmp_path / "cut.npz").write_bytes(path.read_bytes()[:keep])
    with pytest.raises(WindowFileError, match=r"must be an \.npz archive"):
        load_windows(tmp_path / "cut.npz")


def test_flipped_bytes_inside_a_member(tmp_path):
    path = save_windows(tmp_path / "w.npz", small())
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as opened:
        start = opened.infolist()[0].header_offset
    data[start + 190] ^= 0xFF  # inside x's values: the zip's checksum notices
    path.write_bytes(data)
    with pytest.raises(WindowFileError):
        load_windows(path)


def test_bad_windows_are_not_written(tmp_path):
    with pytest.raises(WindowFileError):
        save_windows(tmp_path / "w.npz", small(y=np.zeros(4, np.int64)))
    assert not (tmp_path / "w.npz").exists()


def test_a_device_or_a_pipe_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with pytest.raises(WindowFileError, match="must be a regular file or new, but is not; choose"):
            save_windows(tmp_path / name, small())
    assert stat.S_ISFIFO((tmp_path / "link").stat().st_mode)
    assert len(list(tmp_path.iterdir())) == 2


def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    path = save_windows(tmp_path / "w.npz", small())
    before = path.read_bytes()

    def full_disk(stream, **arrays):
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(WindowFileError, match="No space left"):
        save_windows(path, small())
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["w.npz"]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("hhar-9users/hhar-9users-128x3.npz", (4436, 3, 128)),
        ("motionsense-24users/motionsense-24users-128x6.npz", (21539, 6, 128)),
    ],
)
def test_real_window_files(data_folder, name, shape):
    assert load_windows(data_folder / name).x.shape == shape


@pytest.mark.parametrize("sign", [1, -1])
def test_numbers_with_squares_that_float32_holds_are_taken(tmp_path, sign):
    x = small().x.copy()
    x.flat[0] = sign * 1e18
    assert load_windows(small(x=x).save(tmp_path / "w.npz")).x.flat[0] == np.float32(sign * 1e18)
    assert np.isfinite(np.float32(1e18) ** 2)


@pytest.mark.parametrize(("lengths", "does"), [((4, 4, 4), "convert"), ((3, 9, 4), "cut")])
def test_lists_as_windows_are_refused_with_a_step_that_works(tmp_path, lengths, does):
    """Of equal length they become an array; else they must be cut or padded."""
    x = np.empty(3, dtype=object)
    x[:] = [list(range(length)) for length in lengths]
    windows = Windows(x, np.array([0, 1, 0]), np.array(["a"] * 3), None, None, ("p", "q"), tuple("abcd"))
    with pytest.raises(WindowFileError) as caught:
        windows.save(tmp_path / "w.npz")
    step = str(caught.value).split("; ")[-1]
    assert does in step
    if does == "cut":
        assert "they are of 3 to 9 entries: cut or pad all to one length" in str(caught.value)
    else:
        found = eval(step.removeprefix("convert them to numbers: "), {"numpy": np, "x": x})
        assert found.shape == (3, 4)


def test_whole_numbers_to_predict_are_refused_with_their_type(tmp_path):
    x, user = np.zeros((3, 1), np.float32), np.array(["a"] * 3)
    windows = Windows(x, np.array([270, 12, 90]), user, None, None, ("days",), ("age",))
    with pytest.raises(WindowFileError, match=r"but 3 are not, .* to be predicted as a number, float32; "):
        windows.save(tmp_path / "w.npz")
