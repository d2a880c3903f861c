"""Made recordings in which several notes sound."""

import numpy as np
import pytest

from fedge.config.registers.option import ConfigError
from fedge.data.examples.notes import NOTES, notes
from hhar.windows.window_file import check_windows


def test_a_note_that_sounds_is_loud_at_its_place():
    """Six notes at 0, 2, 4, 5, 7 and 9 half tones; four rows in ten have each."""
    windows = notes(users=20)
    check_windows(windows, "notes")
    assert (windows.x.shape, windows.y.shape) == ((1200, 12), (1200, 6))
    np.testing.assert_allclose(windows.y.mean(axis=0), 0.4, atol=0.05)
    for note, place in enumerate((0, 2, 4, 5, 7, 9)):
        sounds = windows.y[:, note] == 1
        assert windows.x[sounds, place].mean() - windows.x[~sounds, place].mean() > 0.8, NOTES[note]


def test_a_user_is_the_same_however_many_there_are():
    few, many = notes(users=2), notes(users=5)
    np.testing.assert_array_equal(few.x, many.x[: len(few.x)])
    np.testing.assert_array_equal(few.y, many.y[: len(few.y)])


def test_no_users_are_refused():
    with pytest.raises(ConfigError, match="must be 1 to 1000, but is 0"):
        notes(users=0)
