import dataclasses

import numpy as np
import pytest
from evaluations import classified
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import accuracy_score, f1_score

from fedge.exchange.evaluate import gain_sums, pool_evaluations
from fedge.metrics.scores import accuracy, counts_of, macro_f1, score_spread

LABELS = st.integers(1, 30).flatmap(lambda n: hnp.arrays(np.int64, (2, n), elements=st.integers(0, 4)))
CONFUSIONS = hnp.arrays(np.int64, (3, 3), elements=st.integers(0, 20)).filter(lambda c: c.sum() > 0)


def confusion_of(true, predicted, classes=5):
    confusion = np.zeros((classes, classes), np.int64)
    np.add.at(confusion, (true, predicted), 1)
    return confusion


def test_scores_by_hand():
    """Class 0: 2 of 3 right and 1 wrongly taken for it: F1 = 4/6. Class 1: 1 of 2 right: F1 = 2/4. Class 2 is
    absent.

    Accuracy 3/5; macro F1 (2/3 + 1/2) / 2 = 7/12.
    """
    confusion = np.array([[2, 1, 0], [1, 1, 0], [0, 0, 0]])
    assert accuracy(confusion) == 3 / 5
    assert macro_f1(confusion) == pytest.approx(7 / 12)


def test_a_class_that_is_only_predicted_counts():
    """Class 1 never occurs but is predicted once: its F1 is 0; class 0: 2·1/(1 + 2) = 2/3; mean 1/3."""
    assert macro_f1(np.array([[1, 1], [0, 0]])) == pytest.approx(1 / 3)


@given(LABELS)
def test_scores_are_those_of_scikit_learn(labels):
    true, predicted = labels
    confusion = confusion_of(true, predicted)
    assert accuracy(confusion) == pytest.approx(accuracy_score(true, predicted))
    assert macro_f1(confusion) == pytest.approx(f1_score(true, predicted, average="macro"))


@given(CONFUSIONS, st.permutations(range(3)), st.integers(2, 9))
def test_scores_know_neither_the_order_of_classes_nor_the_scale(confusion, order, factor):
    moved = confusion[np.ix_(order, order)]
    for score in (accuracy, macro_f1):
        assert score(moved) == pytest.approx(score(confusion))
        assert score(confusion * factor) == pytest.approx(score(confusion))
        assert 0 <= score(confusion) <= 1


def test_pooling_by_hand():
    """Client 0: 1 of 2 right, loss 4; client 1: 6 of 6 right, loss 0. Pooled: 7/8 (not 3/4) and (2·4 + 6·0)/8
    = 1.
    """
    one = classified(np.array([[1, 1], [0, 0]]), 4.0)
    other = classified(np.array([[3, 0], [0, 3]]), 0.0)
    found = pool_evaluations([one, other])
    assert (found.score, found.loss) == (7 / 8, 1.0)
    assert found.further["macro_f1"] == pytest.approx((8 / 9 + 6 / 7) / 2)
    assert pool_evaluations([]) is None


@given(st.lists(CONFUSIONS, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_pooling_weighs_by_windows_in_any_order(confusions, rng):
    evaluations = [classified(c, float(i)) for i, c in enumerate(confusions)]
    sizes = [c.sum() for c in confusions]
    found = pool_evaluations(evaluations)
    assert found.score == pytest.approx(np.average([accuracy(c) for c in confusions], weights=sizes))
    assert found.loss == pytest.approx(np.average(range(len(sizes)), weights=sizes))
    assert found.further["macro_f1"] == macro_f1(sum(confusions))
    rng.shuffle(evaluations)
    again = pool_evaluations(evaluations)
    assert (again.score, again.loss) == pytest.approx((found.score, found.loss))


@given(CONFUSIONS, st.floats(0, 10))
def test_a_single_client_is_its_own_pool(confusion, loss):
    found = pool_evaluations([classified(confusion, loss)])
    assert (found.score, found.loss) == (accuracy(confusion), pytest.approx(loss))
    assert found.further == {"macro_f1": macro_f1(confusion)}


def test_a_round_by_hand(make_result):
    """Clients 0 and 1 were evaluated (0.5, 1.0; losses 0.9, 0.3) and trained (10 windows: 1.0; 30 windows:
    2.0).

    Test loss: plain mean 0.6. Training loss: (10·1 + 30·2)/40 = 1.75.
    """
    result = make_result()
    accuracies = result.over_clients("test_score")
    assert (accuracies.n, accuracies.mean, accuracies.worst) == (2, 0.75, 0.5)
    assert result.over_clients("test_loss").mean == pytest.approx(0.6)
    assert result.over_clients("test_score", unseen_clients=True) is None
    assert result.train_loss == 1.75


def test_a_round_without_anyone(make_result):
    result = make_result()
    empty = dataclasses.replace(result, clients=result.clients[2:])
    assert empty.over_clients("test_score") is None
    assert empty.over_clients("macro_f1") is None
    assert empty.train_loss is None


def test_unseen_clients_stand_apart(make_result):
    """Client 1 as an unseen client: seen is client 0 alone, unseen is client 1 alone."""
    result = make_result()
    result.clients[1] = dataclasses.replace(result.clients[1], unseen_client=True)
    assert result.over_clients("test_score").mean == 0.5
    assert result.over_clients("test_score", unseen_clients=True).mean == 1.0
    assert result.over_clients("macro_f1").n == 1


def test_spread_by_hand():
    """0.2, 0.4, 0.6, 0.8: mean 0.5, population std √0.05, 10th percentile 0.2 + 0.3 · 0.2 = 0.26.

    Jain: 2² / (4 · (0.04 + 0.16 + 0.36 + 0.64)) = 4 / 4.8 = 5/6.
    """
    found = score_spread([0.8, 0.2, 0.6, 0.4])
    assert (found.mean, found.worst, found.n) == (pytest.approx(0.5), 0.2, 4)
    assert (found.std, found.p10, found.jain) == tuple(map(pytest.approx, (0.05**0.5, 0.26, 5 / 6)))
    assert score_spread([0.0, 0.0]).jain == 1.0
    assert score_spread([1.0, 0.0, 0.0, 0.0]).jain == 0.25


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_spread_is_bounded_and_knows_no_order(scores, rng):
    found = score_spread(scores)
    assert min(scores) == found.worst <= found.p10 <= max(scores)
    assert 0.999 / len(scores) <= found.jain <= 1.0 + 1e-9
    rng.shuffle(scores)
    again = score_spread(scores)
    assert (again.mean, again.jain) == (pytest.approx(found.mean), pytest.approx(found.jain))
    assert (again.worst, again.p10) == (found.worst, found.p10)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1))
def test_windows_that_only_one_model_has_right(windows):
    own, other = np.array(windows).T
    assert counts_of(gain_sums(own, other)) == (windows.count((True, False)), windows.count((False, True)))
    assert counts_of(gain_sums(own, own)) == (0, 0)
