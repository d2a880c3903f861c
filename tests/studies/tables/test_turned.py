"""Turned images: quarters exactly, what lies between by its ends."""

import numpy as np

from studies.tables.turned import Turned, graded, planted

IMAGES = np.arange(2 * 1 * 4 * 4, dtype=np.float32).reshape(2, 1, 4, 4)
RNG = np.random.default_rng(0)


def test_quarters_are_exact():
    """The first row becomes the first column, from below: anticlockwise."""
    turned, labels = Turned(degrees=90.0).apply(IMAGES, np.array([3, 4]))
    assert turned[0, 0, ::-1, 0].tolist() == [0, 1, 2, 3]
    assert labels.tolist() == [3, 4]
    same, _ = Turned().apply(IMAGES, np.array([3, 4]))
    np.testing.assert_array_equal(same, IMAGES)


def test_between_quarters_it_turns_the_same_way():
    """A bright spot right of the middle of 9 × 9 goes up with the angle, to above it at 90°."""
    spot = np.zeros((1, 1, 9, 9), np.float32)
    spot[0, 0, 4, 7] = 1.0
    places = []
    for degrees in (0.0, 45.0, 89.999, 90.0):
        turned, _ = Turned(degrees=degrees).apply(spot, np.zeros(1, np.int64))
        places.append(tuple(int(n) for n in np.unravel_index(turned[0, 0].argmax(), (9, 9))))
    assert places == [(4, 7), (2, 6), (1, 4), (1, 4)]


def test_groups():
    assert [c.describe()["degrees"] for c in planted(2, ("g",), 10, RNG)] == [0.0, 90.0]
    assert [c.describe()["degrees"] for c in graded(6, ("g",), 10, RNG)] == [0, 18, 36, 54, 72, 90]
    assert [c.describe()["degrees"] for c in graded(1, ("g",), 10, RNG)] == [0.0]
