"""Scores of confusion matrices, by hand and against scikit-learn."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import confusion_matrix, f1_score

from fedge.metrics.scores import accuracy, counts_of, macro_f1, score_spread


def test_by_hand():
    """Rows true, columns predicted: 8 + 9 of 20 right; F1 of 16 / 19 and 18 / 21."""
    matrix = np.array([[8, 2], [1, 9]])
    assert accuracy(matrix) == 0.85
    assert macro_f1(matrix) == pytest.approx((16 / 19 + 18 / 21) / 2)


@given(arrays(np.int64, (2, 30), elements=st.integers(0, 4)))
def test_macro_f1_is_scikit_learn_s(labels):
    truth, predicted = labels
    matrix = confusion_matrix(truth, predicted, labels=range(5))
    assert macro_f1(matrix) == pytest.approx(f1_score(truth, predicted, average="macro"))


@given(arrays(np.int64, (3, 3), elements=st.integers(0, 50)), st.permutations(range(3)))
def test_numbers_of_classes_do_not_matter(matrix, order):
    matrix[0, 0] += 1  # at least one window
    again = matrix[np.ix_(order, order)]
    assert accuracy(again) == accuracy(matrix)
    assert macro_f1(again) == pytest.approx(macro_f1(matrix))


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=6))
def test_any_scores_have_a_spread(scores):
    """Also those of diverged models; Jain's index is from 1/n to 1, and unknown of an infinite score."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = score_spread(scores)
    assert (found.n, found.worst) == (len(scores), min(scores))
    if all(map(math.isfinite, scores)):
        assert -1e-9 <= found.jain <= 1 + 1e-9
    else:
        assert math.isnan(found.jain)


def test_jain_of_large_scores_is_that_of_small_ones():
    assert score_spread([0.5e300, 1e300]).jain == pytest.approx(score_spread([0.5, 1.0]).jain)


def test_counts_of_differences():
    """Two windows that only the own model has right and one that only the other has: 1 − 2, and 3 in all."""
    assert counts_of((-1.0, 3.0)) == (2, 1)
    assert counts_of((0.0, 0.0)) == (0, 0)


def test_where_less_is_better_the_worst_is_the_largest():
    found = score_spread([1.0, 2.0, 3.0], higher_is_better=False)
    assert (found.worst, found.p10, found.mean) == (3.0, pytest.approx(2.8), 2.0)


def test_spread_of_one_and_of_zeros():
    one = score_spread([0.7])
    assert (one.mean, one.std, one.worst, one.p10, one.jain, one.n) == (
        0.7,
        0.0,
        0.7,
        0.7,
        pytest.approx(1),
        1,
    )
    assert score_spread([0.0, 0.0]).jain == 1.0


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=20))
def test_spread_holds_together(scores):
    found = score_spread(scores)
    assert min(scores) == found.worst <= found.p10 + 1e-12
    assert 1 / len(scores) - 1e-9 <= found.jain <= 1 + 1e-9
