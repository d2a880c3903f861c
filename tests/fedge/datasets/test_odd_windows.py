"""Odd arrays in `hhar.Windows`, given to a run, saved or read again, are what they hold, or one line."""

import collections
import warnings
from functools import partial

import numpy as np
import pytest
from odd_windows import odd_windows
from refusals import check_refusal

from fedge.config.flat import from_run_config
from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import DATASETS
from fedge.data.prepared import load_source
from fedge.launch.simulate import return_windows
from hhar.errors import HharError
from hhar.windows import window_file
from hhar.windows.window_file import fingerprint_windows, load_windows

SAMPLE, MANY = 150, 2000
KEYS = ("x", "y", "user", "device", "session", "part")


def taken(windows):
    """The windows as a run takes them."""
    name = DATASETS.given(partial(return_windows, windows))
    try:
        return load_source(from_run_config({"data.path": name}), 3)[0]
    finally:
        DATASETS.forget(name)


def is_refused(windows, place):
    """Whether windows are refused, in one line with the next step; else all that was given is there."""
    assert "\n" not in repr(windows)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = taken(windows)
    except ConfigError as error:
        check_refusal(error)
        with pytest.raises(HharError) as saving:
            windows.save(place / "odd.npz")
        check_refusal(saving.value, place)
        return True
    for key in KEYS:
        given, array = getattr(windows, key), getattr(found, key)
        assert (given is None) == (array is None), key
        if given is not None:
            assert type(array) is np.ndarray
            assert not isinstance(given, np.ma.MaskedArray)
            assert cells(key, array) == cells(key, given), key
    assert found.classes == tuple(map(str, windows.classes))
    assert found.channels == tuple(map(str, windows.channels))
    assert dict(windows.about).items() <= dict(found.about).items()
    back = load_windows(windows.save(place / "odd.npz"))
    assert fingerprint_windows(back) == fingerprint_windows(found)
    assert dict(back.about) == dict(found.about)
    return False


def cells(key, array):
    """Cells as the docs cast them: numbers in x float32, in y numbers, and names text; and their shape."""
    listed = np.asarray(array).reshape(-1).tolist()
    cast = np.float32 if key == "x" else float if key == "y" else str
    return np.shape(array), [cast(cell) for cell in listed]


def counts(place, seeds):
    """(refused, taken) of so many odd windows; harmless changes are all taken."""
    found = collections.Counter()
    for seed in seeds:
        windows, is_harmless = odd_windows(np.random.default_rng([248, seed]))
        try:
            refused = is_refused(windows, place)
            assert not (refused and is_harmless), "refused, but nothing is wrong with it"
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        found[refused] += 1
    return found[True], found[False]


def test_odd_windows_are_taken_as_they_are_or_are_one_line(tmp_path):
    refused, held = counts(tmp_path, range(SAMPLE))
    assert min(refused, held) > SAMPLE / 5


@pytest.mark.extended
@pytest.mark.timeout(300)
def test_thousands_of_odd_windows(tmp_path):
    refused, held = counts(tmp_path, range(SAMPLE, SAMPLE + MANY))
    assert min(refused, held) > MANY / 5


@pytest.mark.extended
def test_a_planted_hole_is_found(tmp_path, monkeypatch):
    """Orders of bytes and classes of arrays are no longer looked at."""
    monkeypatch.setattr(window_file, "_with_plain_arrays", lambda windows: windows)
    with pytest.raises((AssertionError, AttributeError, TypeError, ValueError)):
        counts(tmp_path, range(MANY))
