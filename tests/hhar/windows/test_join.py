"""Window files put together: what they have in common, whose windows are whose, what cannot be compared."""

from dataclasses import replace

import numpy as np
import pytest

from hhar.windows.join import join, source_names, source_of
from hhar.windows.window_file import WindowFileError, Windows, check_windows


def windows(users, classes, channels, samples=4, session=True, value=0.0):
    count = len(users) * len(classes)
    x = np.full((count, len(channels), samples), value, np.float32) + np.arange(len(channels))[:, None]
    return Windows(
        x.astype(np.float32), np.tile(np.arange(len(classes)), len(users)), np.repeat(users, len(classes)),
        None, np.array([str(k) for k in range(count)]) if session else None, tuple(classes), tuple(channels),
    )  # fmt: skip


ONE = windows(["a", "b"], ["walk", "sit", "jog"], ["acc_x", "acc_y", "gyr_x"])
OTHER = windows(["a"], ["Sitting", "bike", "WALKING"], ["acc_y", "acc_x"], value=10)


def test_common_classes_and_channels_by_hand():
    """One: walk and sit of a and b, channels 0 and 1. Other: Sitting is sit; acc_x comes second."""
    both = join([("data/one.npz", ONE), ("other.npz", OTHER)])
    check_windows(both, "both")
    assert (both.classes, both.channels) == (("walk", "sit"), ("acc_x", "acc_y"))
    assert both.user.tolist() == ["one/a"] * 2 + ["one/b"] * 2 + ["other/a"] * 2
    assert both.y.tolist() == [0, 1, 0, 1, 1, 0]
    assert both.x[:, :, 0].tolist() == [[0, 1]] * 4 + [[11, 10]] * 2
    assert both.session is not None
    assert both.session.tolist() == ["0", "1", "3", "4", "0", "2"]
    assert source_of(both).tolist() == [0, 0, 0, 0, 1, 1]
    said = [replace(w, about={"licence": "MIT", "source": k}) for k, w in (("1", ONE), ("2", OTHER))]
    assert join([("one", said[0]), ("two", said[1])]).about == {"licence": "MIT"}


def test_sources_are_in_the_order_given_whatever_their_names():
    both = join([("z.npz", ONE), ("a.npz", OTHER)])
    assert source_of(both).tolist() == [0, 0, 0, 0, 1, 1]
    assert source_names(["x/a.npz", "a.npz", "synthetic"]) == ["a", "a-2", "synthetic"]


def test_sessions_are_kept_where_all_have_them():
    assert join([("a", ONE), ("b", replace(OTHER, session=None))]).session is None


@pytest.mark.parametrize(
    ("other", "telling"),
    [
        (windows(["a"], ["walk", "sit"], ["acc_x"], samples=5), "float32 of .5,.*hhar thin"),
        (replace(OTHER, about={"rate_hz": "50"}), "the rate of one, 25 Hz, but have 50 Hz"),
        (windows(["a"], ["walk", "sit"], ["mag_x"]), "have 0 and 2"),
        (windows(["a"], ["walk", "bike"], ["acc_x"]), "have 1 and 1"),
    ],
)
def test_what_cannot_be_compared_is_refused(other, telling):
    with pytest.raises(WindowFileError, match=telling):
        join([("one", replace(ONE, about={"rate_hz": "25"})), ("two", other)])


def test_synonyms_of_one_file_are_one_class_and_lose_no_windows():
    """jog and run of one file are the run of the other, and the other way round: 2 users, 3 classes each."""
    both = windows(["a", "b"], ["walk", "jog", "run"], ["acc_x"])
    plain = windows(["a", "b"], ["running", "walking"], ["acc_x"])
    one = join([("both", both), ("plain", plain)])
    assert (one.classes, one.y.tolist()) == (("walk", "jog"), [0, 1, 1, 0, 1, 1, 1, 0, 1, 0])
    other = join([("plain", plain), ("both", both)])
    assert (other.classes, other.y.tolist()) == (("running", "walking"), [0, 1, 0, 1, 1, 0, 0, 1, 0, 0])
    same = join([("one", both), ("two", both)])
    assert (same.classes, len(same)) == (("walk", "jog"), 12)


@pytest.mark.parametrize("name", ["device", "session", "part"])
def test_all_that_is_known_of_windows_is_kept_where_all_files_say_it(name):
    """Rows by rows, of the common classes; of nobody where one file does not say."""
    known = [replace(w, **{name: np.resize(["train", "test"], len(w))}) for w in (ONE, OTHER)]
    one, other = (getattr(w, name) for w in known)
    both = join([("one", known[0]), ("two", known[1])])
    assert getattr(both, name).tolist() == [*one[[0, 1, 3, 4]], *other[[0, 2]]]
    lone = replace(OTHER, **{name: None})
    assert getattr(join([("one", known[0]), ("two", lone)]), name) is None


@pytest.mark.parametrize(
    ("odd", "telling"),
    [
        (replace(OTHER, y=np.zeros(3, np.float32)), "two: windows must have a class each"),
        (replace(OTHER, y=np.zeros((3, 3), np.int64)), "two: windows must have a class each"),
        (replace(OTHER, y=np.ones(3, np.int64)), "two: must have windows of the classes .*walk, sit.*none"),
    ],
)
def test_files_without_common_classes_are_refused(odd, telling):
    for sources in ([("one", ONE), ("two", odd)], [("two", odd), ("one", ONE)]):
        with pytest.raises(
            WindowFileError, match=telling.replace("walk, sit", "(walk, sit|Sitting, WALKING)")
        ):
            join(sources)
