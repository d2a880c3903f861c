"""A class at every position by hand: positions that do not count, accuracy, perplexity."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedge.tasks import Sequence

TASK = Sequence()
Y = torch.tensor([[0, 1, -1], [2, 2, 2]])
ANSWERS = torch.zeros(2, 3, 3).index_put(
    (torch.tensor([0]), torch.tensor([1]), torch.tensor([1])), torch.tensor(4.0)
)


def test_positions_that_do_not_count_take_no_part():
    """One example counts at two positions: the first by chance (ties go to class 0), the second clearly."""
    sure = float(F.cross_entropy(torch.tensor([[0.0, 4.0, 0.0]]), torch.tensor([1])))
    assert TASK.losses(ANSWERS, Y).tolist() == pytest.approx([(math.log(3) + sure) / 2, math.log(3)])
    sums = {name: value.numpy() for name, value in TASK.sums(ANSWERS, Y).items()}
    assert (int(sums["right"]), int(sums["positions"])) == (2, 5)
    assert TASK.values(ANSWERS, Y).tolist() == [2, 0]
    accuracy, perplexity = (score(sums) for score in TASK.scores)
    assert (accuracy, perplexity) == pytest.approx((0.4, math.exp((4 * math.log(3) + sure) / 5)))
    assert TASK.answer_shape(3, (7,)) == (3, 7)
    assert TASK.impossible(sums, 2) is None


def test_a_model_that_has_diverged_has_a_perplexity_all_the_same():
    assert TASK.scores[1]({"entropy": np.array(1e9), "positions": np.array(1)}) == math.exp(700)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.zeros(3, np.int64), r"must be int64 \(N, positions\), is int64 \(3,\)"),
        (np.array([[0, 3]]), r"must be -1\.\.2, is 0 to 3"),
        (np.array([[0, 1], [-1, -1]]), "must count at one position of every example"),
    ],
)
def test_y_that_it_does_not_take(y, words):
    with pytest.raises(ValueError, match=words):
        TASK.refuse(y, 3)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"right": np.array(6)}, "count out of range"),
        ({"positions": np.array(1)}, "count out of range"),
        ({"entropy": np.array(-1.0)}, "sum out of range"),
        ({"entropy": np.array(np.nan)}, "sum out of range"),
    ],
)
def test_sums_that_no_two_examples_have(change, kind):
    sums = {name: value.numpy() for name, value in TASK.sums(ANSWERS, Y).items()}
    found = TASK.impossible({**sums, **change}, 2)
    assert found is not None
    assert found[0] == kind
