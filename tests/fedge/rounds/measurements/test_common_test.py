"""Models on the common test set, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

from fedge.config.sections.train import TrainConfig
from fedge.rounds.measurements.common_test import CommonTest

X = np.array([[1, 0], [0, 1], [2, 1], [1, 3]], np.float32)
Y = np.array([0, 1, 0, 0])


def leaf(index, weight, slope):
    """A leaf whose served model says class 0 where slope · x0 > x1."""
    state = {"weight": np.array([[slope, 0], [0, 1]], np.float32)}
    return SimpleNamespace(index=index, weight=weight, models=SimpleNamespace(served=state))


def common(parts, frozen=()):
    return CommonTest(TrainConfig(), nn.Linear(2, 2, bias=False), parts, dict(frozen))


def test_means_are_weighted_and_every_model_meets_all_windows():
    """Slopes 4, 0 and 0: right are 4, 2 and 2 windows of 4; of the mean of weights 3 : 1 and so on."""
    leaves = [leaf(0, 3, 4.0), leaf(1, 1, 0.0), leaf(2, 4, 0.0)]
    asked = []

    def parts(global_round):
        asked.append(global_round)
        yield X[:3], Y[:3]
        yield X[3:], Y[3:]

    found = common(parts).evaluated(leaves, {0: 0, 1: 0, 2: 1}, 7)
    score = {(one.model, one.number): one.test_score for one in found}
    # means: all 12 / 8 = 1.5, cluster 0: 12 / 4 = 3 (3 · 1 > 3 is a tie: the first class), cluster 1: 0
    assert score == {
        ("global", None): 0.75, ("cluster", 0): 1.0, ("cluster", 1): 0.5,
        ("leaf", 0): 1.0, ("leaf", 1): 0.5, ("leaf", 2): 0.5,
    }  # fmt: skip
    assert {one.samples for one in found} == {4}
    logits = X * np.array([1.5, 1], np.float32)
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(4), Y]
    assert found[0].test_loss == pytest.approx(losses.mean(), rel=1e-6)
    assert found[0].further["macro_f1"] == pytest.approx((0.8 + 2 / 3) / 2)
    assert asked == [7] * 5  # cluster 1 is leaf 2 alone: one model, evaluated once


def test_leaves_without_clients_count_alike_in_a_cluster_of_their_own():
    """All clients have moved to leaf 0. Of slopes 4 and 0 the mean is 2: right are 3 windows of 4."""
    leaves = [leaf(0, 3, 4.0), leaf(1, 0, 4.0), leaf(2, 0, 0.0)]
    found = common(lambda _: [(X, Y)]).evaluated(leaves, {0: 0, 1: 1, 2: 1}, 7)
    score = {(one.model, one.number): one.test_score for one in found}
    assert (score["global", None], score["cluster", 1]) == (1.0, 0.75)


def test_a_model_that_has_diverged_has_no_score():
    """The others have theirs."""
    leaves = [leaf(0, 1, np.float32(3e38)), leaf(1, 1, 1.0)]
    leaves[0].models.served["weight"][1, 1] = -3e38
    found = common(lambda _: [(X * 1e38, Y)]).evaluated(leaves, {0: 0, 1: 1}, 1)
    by = {(one.model, one.number): one for one in found}
    assert by["leaf", 0].test_score is None
    assert by["leaf", 0].test_loss is None
    assert by["leaf", 1].test_score is not None


def test_entries_that_do_not_travel_are_put_in():
    """A leaf's model lacks them."""
    own = leaf(0, 1, 4.0)
    state = own.models.served
    own.models.served = {}
    (whole, *_) = common(lambda _: [(X, Y)], state).evaluated([own], {0: 0}, 1)
    assert whole.test_score == 1.0


class Counting(nn.Linear):
    """Answers follow from how often the network was called."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * self.calls


def test_every_model_meets_the_network_as_it_was_made():
    """Else scores would follow from the models evaluated before, and be others after a resume."""
    test = CommonTest(TrainConfig(), Counting(2, 2, bias=False), lambda _: [(X, Y)], {})
    leaves = [leaf(0, 1, 1.0), leaf(1, 1, 1.0)]
    first, second = (test.evaluated(leaves, {0: 0, 1: 1}, 1)[-2:] for _ in "12")
    assert len({one.test_loss for one in (*first, *second)}) == 1
