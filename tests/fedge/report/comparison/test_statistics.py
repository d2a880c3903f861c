"""Means and intervals over seeds, against numbers of a table and against SciPy."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedge.report.comparison.statistics import Estimate, estimate, paired_difference


def test_by_hand():
    """Of 1, 2, 3: mean 2, std 1, t(0.975, 2) = 4.3027 (Student's table), so ± 4.3027 / √3 = 2.4841."""
    found = estimate([1.0, 2.0, 3.0])
    assert (found.mean, found.std, found.n) == (2.0, 1.0, 3)
    assert found.high - found.mean == pytest.approx(2.4841, abs=1e-4)
    assert found.mean - found.low == pytest.approx(2.4841, abs=1e-4)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=10))
def test_the_interval_is_scipy_s(values):
    found = estimate(values)
    if found.std > 1e-9:
        low, high = stats.t.interval(0.95, len(values) - 1, found.mean, stats.sem(values))
        assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6, abs=1e-9)


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=6), st.floats(allow_nan=False))
def test_any_numbers_have_a_mean(values, reference):
    """Also those of diverged models; ends of an interval are around the mean."""
    found = estimate(values)
    assert found.n == len(values)
    assert math.isnan(found.mean) == ({math.inf, -math.inf} <= set(values))
    if math.isfinite(found.mean):
        assert min(values) * (1 - 1e-9 * math.copysign(1, min(values))) <= found.mean
    else:
        assert (found.std, found.low, found.high) == (None, None, None)
    if found.low is not None:
        assert found.low <= found.mean <= found.high
    one = dict(enumerate(values))
    difference = paired_difference(one, dict.fromkeys(one, reference))
    assert difference is None or difference.n == len(values)


def test_infinite_values_have_no_spread():
    assert estimate([1.0, math.inf]) == Estimate(math.inf, None, None, None, 2)
    assert paired_difference({1: math.inf, 2: 1.0}, {1: 1.0, 2: 1.0}).mean == math.inf
    assert paired_difference({1: math.inf, 2: 1.0}, {1: math.inf, 2: 1.0}) is None
    assert estimate([1e308, 1e308, 1e308]).mean == pytest.approx(1e308)


def test_one_value_has_no_spread_and_none_no_mean():
    one = estimate([0.5])
    assert (one.mean, one.std, one.low, one.high, one.n) == (0.5, None, None, None, 1)
    with pytest.raises(ValueError, match="nothing to average"):
        estimate([])


def test_pairs_are_by_seed():
    """Seeds 2 and 3 are in both: differences 1 and 3."""
    found = paired_difference({1: 9.0, 2: 3.0, 3: 7.0}, {2: 2.0, 3: 4.0, 4: 0.0})
    assert (found.mean, found.n) == (2.0, 2)
    assert paired_difference({1: 1.0}, {2: 1.0}) is None
