"""The clocks of other machines; real ones differ in runs/engines/test_ray_cluster.py."""

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.timing import clocks
from fedge.timing.clocks import MachineClock, clock_lead_s


def bounds(*pairs):
    return tuple(np.array(pairs).T)


def test_the_example():
    assert doctest.testmod(clocks).failed == 0


@given(
    st.floats(-1e6, 1e6),
    st.lists(st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 10.0)), min_size=1, max_size=5),
)
def test_the_truth_is_never_excluded_and_the_closest_reading_bounds_the_error(ahead, ways):
    """A question and its answer are under way for some time each; the clock is read in between."""
    clock = MachineClock()
    for number, (there, back) in enumerate(ways):
        asked = 100.0 * number
        clock = clock.asked(asked, asked + there + ahead, asked + there + back)
    found = clock_lead_s(*bounds((-np.inf, np.inf)), clock)
    closest = min(there + back for there, back in ways)
    assert clock.low - 1e-6 <= ahead <= clock.high + 1e-6
    assert abs(found - ahead) <= closest / 2 + 2e-3 or found == 0.0


def test_one_clock_is_left_alone():
    """Zero is possible: the machines are containers of one."""
    assert clock_lead_s(*bounds((-0.5, 0.1), (-0.2, 0.4))) == 0.0


@pytest.mark.parametrize(
    "pairs", [[(1.0, 2.0), (5.0, 6.0)], [(np.nan, 1.0)]], ids=["it has jumped", "no number"]
)
def test_what_cannot_be_is_no_number(pairs):
    assert np.isnan(clock_lead_s(*bounds(*pairs)))
