"""Odd frames are the windows that plain Python makes of them by the docs, or one line."""

import collections
import warnings

import numpy as np
import pytest
from refusals import check_refusal

import fedge
from fedge.datasets import columns
from hhar.errors import HharError

pytest.importorskip("pandas", reason="pip install 'fedge[pandas]'")

from odd_frames import Refused, odd_frame, plain_windows

SAMPLE, MANY = 200, 2000
LARGEST = 1e18  # of a number in a window, by docs/data.md


def expected(frame, given):
    """The plain windows and classes; None where the docs refuse the frame."""
    try:
        found, classes = plain_windows(frame, given)
    except Refused:
        return None
    is_large = any(np.abs(window[4]).max() > LARGEST for window in found)
    return None if is_large else (found, classes)


def is_odd(given):
    """Whether an argument is of a type or value that plain Python need not be ready for."""
    numbers = [given[key] for key in ("rate_hz", "window_s", "stride_s") if key in given]
    return not all(type(number) in (int, float) and 0 < number < 100 for number in numbers) or not (
        all(isinstance(given[key], str) for key in ("user", "label"))
        and isinstance(given["channels"], list)
        and given["channels"] == ["x", "y"]
        and "about" not in given
        and all(given.get(key) in (key[:1] if key == "time" else key, None) for key in ("device", "session"))
        and given.get("time") in ("t", None)
        and given.get("time_unit", "s") in ("s", "ms", "us", "ns")
    )


def is_refused(frame, given):
    """Whether a frame is refused, in one line with the next step; else its windows are the plain ones."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "from_pandas: ", UserWarning)
            windows = fedge.from_pandas(frame, **given)
    except HharError as error:
        windows, refusal = None, error
    if windows is None:
        check_refusal(refusal)
    if is_odd(given):
        return windows is None
    plain = expected(frame, given)
    assert (plain is None) == (windows is None), windows or str(refusal)
    if windows is None:
        return True
    found, classes = plain
    assert windows.classes == tuple(classes)
    assert len(windows) == len(found)
    columns = [
        column if column is not None else [""] * len(found) for column in (windows.session, windows.device)
    ]
    labels = [classes[number] for number in windows.y.tolist()]
    names = list(zip(windows.user.tolist(), *map(list, columns), labels, strict=True))
    assert names == [window[:4] for window in found]
    x = np.array([window[4] for window in found])
    assert windows.x.shape == x.shape
    np.testing.assert_allclose(windows.x, x, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(x).max()))
    return False


def counts(seeds):
    """(refused, read) of so many odd frames."""
    found = collections.Counter()
    for seed in seeds:
        frame, given = odd_frame(np.random.default_rng([247, seed]))
        try:
            found[is_refused(frame, given)] += 1
        except BaseException as error:
            error.add_note(f"seed {seed}: {given}\n{frame.dtypes}")
            raise
    return found[True], found[False]


def test_odd_frames_are_read_right_or_are_one_line():
    refused, read = counts(range(SAMPLE))
    assert min(refused, read) > SAMPLE / 10


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_thousands_of_odd_frames():
    refused, read = counts(range(SAMPLE, SAMPLE + MANY))
    assert min(refused, read) > MANY / 10


@pytest.mark.extended
@pytest.mark.parametrize("hole", ["_text", "refuse_missing", "refuse_infinite", "_values"])
def test_a_planted_hole_is_found(monkeypatch, hole):
    """A check or a cast of cells is no longer made."""
    holes = {
        "_text": lambda value, name: str(value),
        "refuse_missing": lambda frame, name: None,
        "refuse_infinite": lambda values, name: None,
        "_values": lambda column, name: np.asarray(column.to_numpy()),
    }
    monkeypatch.setattr(columns, hole, holes[hole])
    with pytest.raises(Exception) as found:  # noqa: PT011
        counts(range(3 * MANY))
    assert not isinstance(found.value, HharError)
