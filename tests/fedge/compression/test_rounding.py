"""Rounded entries by hand, and means of random ones within bounds that follow from their range."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedge.compression.rounding import Float16, Int8

SIZES = st.floats(-1e3, 1e3, width=32, allow_subnormal=False)
UPDATES = arrays(np.float64, st.integers(1, 30), elements=SIZES)


def rng(seed=0):
    return np.random.default_rng(seed)


def test_half_precision_by_hand():
    """Between 1 and 2 float16 has steps of 2⁻¹⁰; 65,504 is its largest number."""
    update = np.array([1 + 2**-10, 1 + 2**-12, -0.5, 1e6, -1e6, 0.0])
    assert Float16().sent(update, rng()).tolist() == [1 + 2**-10, 1.0, -0.5, 65504.0, -65504.0, 0.0]
    assert Float16().bits(6) == 96


def test_whole_numbers_of_steps_by_hand():
    """Steps of 1: the largest is sent as it is, 0.5 as 0 or 1, −1.25 as −2 or −1, 0 as 0."""
    code = Int8(levels=4)
    update = np.array([4.0, 0.5, -1.25, 0.0])
    seen = np.array([code.sent(update, rng(seed)) for seed in range(50)])
    assert [sorted(set(column)) for column in seen.T] == [[4.0], [0.0, 1.0], [-2.0, -1.0], [0.0]]


def test_bits_of_levels():
    """255 values of 127 levels are 8 bits; 15 of 7 are 4; the scale has 32."""
    assert [Int8(levels).bits(100) for levels in (127, 7, 1)] == [832, 432, 232]


def test_nothing_stays_nothing():
    assert Int8().sent(np.zeros(3), rng()).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("levels", [0, 2**15 + 1, 1.5, True])
def test_levels_that_cannot_be_are_refused(levels):
    with pytest.raises(ValueError, match="levels must be a whole number from 1 to 32768"):
        Int8(levels)


def test_rounding_at_random_is_right_in_the_mean():
    """Hoeffding: the mean of N draws of width w is t off with probability at most 2 exp(−2 N t² / w²).

    10⁻⁹ over all entries, at a fixed seed: a rounding that always goes down, or to the nearest, is w / 4 off.
    """
    update = np.array([1.0, 0.3, -0.77, 0.0041, -0.5, 1e-4])
    step, draws = 1.0 / 3, 20_000
    code, stream = Int8(levels=3), rng(5)
    mean = np.mean([code.sent(update, stream) for _ in range(draws)], axis=0)
    bound = step * math.sqrt(math.log(2 * len(update) / 1e-9) / (2 * draws))
    assert bound < step / 8
    assert np.abs(mean - update).max() <= bound
    down = np.floor(update / step) * step
    assert np.abs(down - update).max() > 4 * bound


@given(UPDATES, st.integers(1, 200))
def test_no_entry_is_a_step_off(update, levels):
    """Levels from −L to L, of which each entry gets one beside it."""
    sent = Int8(levels).sent(update, rng())
    size = float(np.abs(update).max())
    step = size / levels
    assert np.abs(sent - update).max() <= step * (1 + 1e-6)
    assert np.abs(sent).max() <= size * (1 + 1e-6)
