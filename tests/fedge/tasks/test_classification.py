"""Classification as a task: the loss is PyTorch's, what is added up is a confusion matrix."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from fedge.tasks.classification import Classification
from fedge.tasks.task import total_sums

TASK = Classification()
Y = torch.tensor([0, 2, 1, 2])
ANSWERS = torch.eye(3)[[0, 1, 1, 2]] * 2  # the second one is taken for class 1


def test_losses_and_their_mean_are_cross_entropy_bit_for_bit():
    for smoothing in (0.0, 0.1):
        expected = F.cross_entropy(ANSWERS, Y, label_smoothing=smoothing)
        assert torch.equal(TASK.loss(ANSWERS, Y, smoothing), expected)
        assert TASK.losses(ANSWERS, Y, smoothing).mean() == pytest.approx(float(expected))


def test_sums_and_values_by_hand():
    confusion = TASK.sums(ANSWERS, Y)["confusion"]
    assert confusion.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    assert TASK.values(ANSWERS, Y).tolist() == [True, False, True, True]
    assert torch.equal(TASK.sums_of(torch.tensor([0, 1, 1, 2]), Y, 3)["confusion"], confusion)
    assert TASK.form(3)["confusion"].shape == (3, 3)
    assert TASK.score({"confusion": confusion.numpy()}) == 0.75


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=30), st.data())
def test_sums_of_parts_are_those_of_the_whole(pairs, data):
    cut = data.draw(st.integers(1, len(pairs) - 1))
    said, true = (torch.tensor(list(part)) for part in zip(*pairs, strict=True))
    whole = TASK.sums_of(said, true, 3)["confusion"].numpy()
    parts = [
        {"confusion": TASK.sums_of(said[rows], true[rows], 3)["confusion"].numpy()}
        for rows in (slice(cut), slice(cut, None))
    ]
    assert np.array_equal(total_sums(parts)["confusion"], whole)


@pytest.mark.parametrize("y", [np.zeros(3, np.float32), np.zeros((3, 1), np.int64)])
def test_another_y_is_refused(y):
    with pytest.raises(ValueError, match=r"^y must be int64 \(N,\), is "):
        TASK.refuse(y, 3)


def test_impossible_counts_are_named():
    assert TASK.impossible({"confusion": np.array([[1, 1], [0, 1]])}, 3) is None
    assert TASK.impossible({"confusion": np.array([[1, 1], [0, 1]])}, 4) == (
        "other number of windows", "3 of 4",
    )  # fmt: skip
    assert TASK.impossible({"confusion": np.array([[5, -1], [0, 0]])}, 4) == ("count out of range", "-1 to 5")
