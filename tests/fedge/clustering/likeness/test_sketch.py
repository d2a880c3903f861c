"""Sketches keep inner products."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.clustering.likeness.sketch import SIZE, cosines, sketch


def test_what_is_short_is_kept():
    assert sketch([np.arange(3, dtype=np.float32), np.ones((2, 2))]).tolist() == [0, 1, 2, 1, 1, 1, 1]
    assert sketch([]).shape == (0,)
    assert sketch([np.arange(6.0)], size=6).tolist() == [0, 1, 2, 3, 4, 5]


@given(st.integers(9, 5000), st.integers(0, 2**32))
def test_sketches_are_linear_and_the_same_each_time(length, seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, length))
    assert np.allclose(sketch([x + 2 * y], 8), sketch([x], 8) + 2 * sketch([y], 8))
    assert sketch([x], 8).tobytes() == sketch([x[:4], x[4:]], 8).tobytes()


@pytest.mark.slow
def test_cosines_of_sketches_are_right_to_a_few_hundredths():
    """Five million entries: in every pair the error is below four of its standard deviations, 4 / √4,096."""
    rng = np.random.default_rng(0)
    common = rng.normal(size=5_000_000)
    vectors = [common * share + rng.normal(size=5_000_000) for share in (0.0, 0.5, 1.0, 2.0)]
    exact = cosines(np.stack([v[::1] for v in vectors]))
    found = cosines(np.stack([sketch([v]) for v in vectors]))
    assert np.abs(found - exact).max() < 4 / np.sqrt(SIZE)


def test_inner_products_are_unbiased():
    """The mean over 400 pairs of the signed error is within four of its standard errors of 0."""
    rng = np.random.default_rng(1)
    errors = []
    for _ in range(400):
        x, y = rng.normal(size=(2, 300))
        errors.append(sketch([x], 16) @ sketch([y], 16) - x @ y)
    assert abs(np.mean(errors)) < 4 * np.std(errors) / 20


def test_cosines_by_hand():
    found = cosines(np.array([[3.0, 4.0], [-3.0, -4.0], [4.0, -3.0], [0.0, 0.0]]))
    assert found == pytest.approx(np.array([[1, -1, 0, 0], [-1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]))
