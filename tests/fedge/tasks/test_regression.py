"""Regression by hand and against scikit-learn: half the squared error, RMSE, MAE, R², and what cannot be."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from fedge.tasks import Regression, total_sums

TASK = Regression()
ANSWERS = torch.tensor([[1.0], [2.0], [6.0]])
Y = torch.tensor([0.0, 2.0, 3.0])


def sums_of(answers, y):
    """Sums as arrays."""
    return {name: value.numpy() for name, value in TASK.sums(answers, y).items()}


def test_errors_of_three_examples():
    """Errors 1, 0 and 3: half of 1, 0 and 9; √(10 / 3), 4 / 3; y varies by 14/3 around 5/3."""
    assert TASK.losses(ANSWERS, Y).tolist() == [0.5, 0.0, 4.5]
    assert TASK.values(ANSWERS, Y).tolist() == [-1.0, 0.0, -9.0]
    rmse, mae, r2 = (score(sums_of(ANSWERS, Y)) for score in TASK.scores)
    assert (rmse, mae, r2) == pytest.approx(((10 / 3) ** 0.5, 4 / 3, 1 - 10 / (14 / 3)))


@given(st.integers(2, 30), st.integers(1, 3), st.integers(0, 2**31))
def test_scores_are_those_of_scikit_learn_however_examples_are_dealt(count, outputs, seed):
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.normal(3, 2, (count, outputs)).astype(np.float32))
    answers = torch.from_numpy(rng.normal(3, 2, (count, outputs)).astype(np.float32))
    cut = int(rng.integers(1, count))
    parts = [sums_of(answers[:cut], y[:cut]), sums_of(answers[cut:], y[cut:])]
    pooled, other = total_sums(parts), total_sums(parts[::-1])
    assert all(np.array_equal(pooled[name], other[name]) for name in pooled)
    rmse, mae, r2 = (score(pooled) for score in TASK.scores)
    assert rmse == pytest.approx(
        np.mean(root_mean_squared_error(y, answers, multioutput="raw_values") ** 2) ** 0.5
    )
    assert mae == pytest.approx(mean_absolute_error(y, answers), rel=1e-6)
    assert r2 == pytest.approx(r2_score(y.double(), answers.double()), rel=1e-6)


def test_where_y_does_not_vary_r2_is_one_or_zero_as_in_scikit_learn():
    same = torch.tensor([2.0, 2.0])
    assert TASK.scores[2](sums_of(torch.tensor([[2.0], [2.0]]), same)) == 1.0
    assert TASK.scores[2](sums_of(torch.tensor([[2.0], [3.0]]), same)) == 0.0


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.zeros(3, np.int64), r"must be float32 \(N, 1\), is int64 \(3,\)"),
        (np.zeros((3, 2), np.float32), r"must be float32 \(N, 1\), is float32 \(3, 2\)"),
        (np.array([0, np.nan], np.float32), "must be finite"),
    ],
)
def test_y_that_it_does_not_take(y, words):
    with pytest.raises(ValueError, match=words):
        TASK.refuse(y, 1)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"n": np.array(4)}, "other number of windows"),
        ({"squares": np.array([np.nan])}, "sum out of range"),
        ({"squares": np.array([-1.0])}, "sums do not add up"),
        ({"absolute": np.array([1e9])}, "sums do not add up"),
        ({"absolute": np.array([-1.0])}, "sum out of range"),
        ({"y2": np.array([0.1])}, "sums do not add up"),
    ],
)
def test_sums_that_no_three_examples_have(change, kind):
    sums = sums_of(ANSWERS, Y)
    assert TASK.impossible(sums, 3) is None
    found = TASK.impossible({**sums, **change}, 3)
    assert found is not None
    assert found[0] == kind


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([0.0, 2.0, 3.0], ""),
        ([0.0, 0.0, 0.0], ""),
        ([20.0, -20.0, 0.0], ""),
        ([1e5, 2e5, 3e5], "y of 'cost' is far from 1 in size (root mean square 2.16e+05), so "),
        ([1e-6, 2e-6, 3e-6], "y of 'cost' is far from 1 in size (root mean square 2.16e-06), so "),
        ([1e18, 1e18, 1e18], "y of 'cost' is far from 1 in size (root mean square 1e+18), so "),
        ([[1.0, 90.0], [1.0, 90.0]], "y of 'days' is far from 1 in size (root mean square 90), so "),
        ([[99.0, 90.0], [99.0, 90.0]], "y of 'cost' and 1 more is far from 1 in size "),
    ],
)
def test_numbers_that_a_network_hardly_reaches_are_said(y, words):
    found = " ".join(TASK.remarks(np.array(y, np.float32), ("cost", "days")))
    assert found.startswith(words)
    assert bool(found) == bool(words)
