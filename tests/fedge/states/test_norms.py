import numpy as np
import pytest

from fedge.states.norms import update_norm


def test_norm_by_hand():
    """(3, 4) and 12 away, the counter aside: sqrt(9 + 16 + 144) = 13."""
    model = {"a": np.zeros(2, np.float32), "b": np.ones((1, 1)), "n": np.array(7)}
    state = {"a": np.array([3, 4], np.float32), "b": np.full((1, 1), 13.0), "n": np.array(99)}
    assert update_norm(state, model) == 13.0
    assert update_norm(model, model) == 0.0
    huge = {**state, "b": np.full((1, 1), 1e200)}
    assert update_norm(huge, model) == float("inf")


def test_norm_of_a_large_entry():
    """3 away in each of 2^20 + 5 places: 3 · sqrt(2^20 + 5)."""
    model = {"a": np.full(2**20 + 5, 2, np.float32)}
    assert update_norm({"a": model["a"] + 3}, model) == pytest.approx(3 * (2**20 + 5) ** 0.5, rel=1e-12)
