"""Several classes per example by hand and against scikit-learn."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from fedge.tasks import Multilabel, total_sums

TASK = Multilabel()
ANSWERS = torch.tensor([[1.0, -1.0, 2.0], [-1.0, -1.0, -1.0]])
Y = torch.tensor([[1, 1, 0], [0, 0, 0]])


def sums_of(answers, y):
    """Sums as arrays."""
    return {name: value.numpy() for name, value in TASK.sums(answers, y).items()}


def test_two_examples():
    """The first has classes 0 and 1 and is said to have 0 and 2: F1 1/2; the second has none, rightly."""
    assert TASK.values(ANSWERS, Y).tolist() == [0.5, 1.0]
    scores = [score(sums_of(ANSWERS, Y)) for score in TASK.scores]
    assert scores == pytest.approx([0.75, 0.5, 1 / 3, 0.5])
    wanted = F.binary_cross_entropy_with_logits(ANSWERS, Y.float(), reduction="none").mean(dim=1)
    assert torch.equal(TASK.losses(ANSWERS, Y), wanted)


@given(st.integers(2, 20), st.integers(1, 4), st.integers(0, 2**31))
def test_scores_are_those_of_scikit_learn_however_examples_are_dealt(count, classes, seed):
    rng = np.random.default_rng(seed)
    y = torch.from_numpy(rng.integers(0, 2, (count, classes)))
    answers = torch.from_numpy(rng.normal(size=(count, classes)).astype(np.float32))
    cut = int(rng.integers(1, count))
    parts = [sums_of(answers[:cut], y[:cut]), sums_of(answers[cut:], y[cut:])]
    found = [score(total_sums(parts)) for score in TASK.scores]
    assert found == [score(total_sums(parts[::-1])) for score in TASK.scores]
    said = (answers > 0).long().numpy()
    by_example = [f1_score(t, s, zero_division=1.0) for t, s in zip(y.numpy(), said, strict=True)]
    assert found[0] == pytest.approx(np.mean(by_example))
    assert found[1] == pytest.approx(f1_score(y.numpy().ravel(), said.ravel(), zero_division=1.0))
    assert found[3] == (said == y.numpy()).all(axis=1).mean()


def test_y_that_it_does_not_take():
    with pytest.raises(ValueError, match=r"must be int64 \(N, 3\), is int64 \(2, 2\)"):
        TASK.refuse(np.zeros((2, 2), np.int64), 3)
    with pytest.raises(ValueError, match="must be 0 or 1, is 0 to 2"):
        TASK.refuse(np.array([[0, 2]]), 2)


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"n": np.array(3)}, "other number of windows"),
        ({"hits": np.array([-1, 0, 0])}, "count out of range"),
        ({"misses": np.array([2, 2, 2])}, "count out of range"),
        ({"exact": np.array(2)}, "counts do not add up"),
        ({"f1": np.array(2.5)}, "counts do not add up"),
        ({"f1": np.array(np.inf)}, "sum out of range"),
    ],
)
def test_sums_that_no_two_examples_have(change, kind):
    sums = sums_of(ANSWERS, Y)
    assert TASK.impossible(sums, 2) is None
    found = TASK.impossible({**sums, **change}, 2)
    assert found is not None
    assert found[0] == kind
