"""The largest entries by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedge.compression.sparse import TopK

RNG = np.random.default_rng(0)


def test_the_largest_by_size_go():
    update = np.array([0.5, -3.0, 2.0, 0.0, -0.25])
    assert TopK(share=0.4).sent(update, RNG).tolist() == [0.0, -3.0, 2.0, 0.0, 0.0]


def test_of_equals_the_first_go():
    assert TopK(share=0.5).sent(np.array([1.0, -1.0, 1.0, 2.0]), RNG).tolist() == [1.0, 0.0, 0.0, 2.0]


def test_one_goes_at_least():
    assert TopK().sent(np.array([1.0, 2.0]), RNG).tolist() == [0.0, 2.0]
    assert TopK().sent(np.zeros(3), RNG).tolist() == [0.0, 0.0, 0.0]


def test_they_travel_as_float32_with_their_places():
    """Of 1,000 entries 10, each 32 bits and a place of 10 bits; of one entry the place is known."""
    assert TopK().sent(np.array([0.1]), RNG).tolist() == [float(np.float32(0.1))]
    assert [TopK().bits(count) for count in (1000, 1)] == [10 * 42, 32]


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan")])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(ValueError, match="share must be above 0 and at most 1"):
        TopK(share)


@given(
    arrays(np.float32, st.integers(1, 40), elements=st.floats(-8, 8, width=32)).map(
        lambda a: a.astype(float)
    ),
    st.floats(0.01, 1),
)
def test_what_stays_is_no_larger_than_what_goes(update, share):
    sent = TopK(share).sent(update, RNG)
    count = max(1, round(share * len(update)))
    assert np.count_nonzero(sent) == min(count, np.count_nonzero(update))
    went, stayed = np.abs(update[sent != 0]), np.abs(update[sent == 0])
    assert min(went, default=np.inf) >= max(stayed, default=0.0)
    assert (sent[sent != 0] == update[sent != 0]).all()
