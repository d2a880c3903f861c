"""Mean and deviation put together from parts are those of the whole, however the whole is cut."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.data.scaling import ChannelSums, Scale, apply_scale, channel_sums, scale_of


def test_sums_by_hand():
    """Channel 0 holds 1, 3, 5, 7: mean 4, deviations 9 + 1 + 1 + 9. Channel 1 is constant."""
    x = np.array([[[1, 3], [10, 10]], [[5, 7], [10, 10]]], np.float32)
    assert channel_sums(x) == ChannelSums(4, (4.0, 10.0), (20.0, 0.0))
    assert scale_of([channel_sums(x)]) == Scale((4.0, 10.0), (float(np.float32(np.sqrt(5))), 1.0))


def test_a_client_without_windows_adds_nothing():
    x = np.array([[[1.0, 3.0]]], np.float32)
    nothing = channel_sums(x[:0])
    assert nothing == ChannelSums(0, (0.0,), (0.0,))
    assert scale_of([nothing, channel_sums(x), nothing]) == scale_of([channel_sums(x)])


@given(
    cuts=st.sets(st.integers(1, 39)),
    offset=st.sampled_from([0.0, 9.81, -1e4]),
    image=st.booleans(),
    seed=st.integers(0, 99),
)
def test_parts_give_the_mean_and_deviation_of_the_whole(cuts, offset, image, seed):
    """To float32, as NumPy has them over all windows at once in float64."""
    x = np.random.default_rng(seed).normal(size=(40, 3, 2, 4) if image else (40, 3, 8)) * 2 + offset
    x = x.astype(np.float32)
    scale = scale_of([channel_sums(part) for part in np.split(x, sorted(cuts))])
    whole = x.astype(np.float64).swapaxes(0, 1).reshape(3, -1)
    np.testing.assert_allclose(scale.mean, whole.mean(axis=1), rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(scale.std, whole.std(axis=1), rtol=1e-7)
    apply_scale(x, scale)
    np.testing.assert_allclose(x.mean(axis=0).mean(), 0, atol=2e-3)
    assert x.dtype == np.float32


def test_sums_take_little_memory():
    """Two channels in float64 at a time at most, of eight."""
    x = np.ones((20_000, 8, 16), np.float32)
    tracemalloc.start()
    channel_sums(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.2 * 20_000 * 16 * 8


def test_a_scale_of_nothing_changes_nothing():
    x = np.array([[[1.0, 3.0]]], np.float32)
    apply_scale(x, Scale())
    assert x.tolist() == [[[1.0, 3.0]]]


def test_a_deviation_that_is_rounding_is_none():
    """All alike to float32: centred, and not scaled up."""
    x = np.full((1, 1, 4), 16777216.0, np.float32)
    x[0, 0, 0] += 2
    assert scale_of([channel_sums(x)]).std == pytest.approx((1.0,))
