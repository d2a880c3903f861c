"""Forks beside leaves whose models are written down here."""

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from fedge.exchange.round_context import LEAF, OWN_LINE, PERSONAL, TRIAL
from fedge.leaf.leaf import Leaf
from fedge.rounds import lines


def state(value):
    return {"w": np.array([value], np.float32)}


@pytest.fixture
def leaves():
    """Models 0, 1, 2: leaf 1 took offer 5 tentatively, leaves 1 and 2 have trials 7 and 8."""
    made = [Leaf(i, {i: 10}, state(i), ["w"], FedAvg(), scaffold_levels=1) for i in range(3)]
    made[1].models.take_tentatively(state(5))
    for leaf, trial in zip(made[1:], (7, 8), strict=True):
        leaf.models.apply_cloud_step(None, state(trial))
    return made


def test_the_leaves_themselves_train(leaves):
    training = lines.own_models(leaves)
    assert training.line == LEAF
    assert [training.by_index[index] is leaf for index, leaf in enumerate(leaves)] == [True] * 3


def test_forks_train_beside_those_that_have_something_to_train(leaves):
    found = [
        (t.line, [(f.index, float(f.model["w"][0])) for f in t.leaves]) for t in lines.extra_lines(leaves)
    ]
    assert found == [(OWN_LINE, [(1, 1.0)]), (TRIAL, [(1, 7.0), (2, 8.0)])]


def test_only_models_come_back_from_forks(leaves):
    """Forks know the leaf's control variates; what happens to them stays with them."""
    for training in lines.extra_lines(leaves):
        for fork in training.leaves:
            assert fork.control is leaves[fork.index].control
            fork.models.trained(LEAF, state(float(fork.model["w"][0]) + 10))
            fork.control = None
        lines.assign_fork_models(training, leaves)
    assert [float(leaf.model["w"][0]) for leaf in leaves] == [0, 5, 2]
    assert float(leaves[1].models.own_line["w"][0]) == 11
    assert [float(leaf.models.trial["w"][0]) for leaf in leaves[1:]] == [17, 18]
    assert all(leaf.control is not None for leaf in leaves)


def test_folds_of_a_leaf_train_one_after_the_other_each_without_some_clients():
    """Four clients, three folds: without 0 and 3, without 1, without 2."""
    leaf = Leaf(0, dict.fromkeys(range(4), 10), state(0), ["w"], FedAvg(), scaffold_levels=1)
    leaf.models.apply_cloud_step(None, None, [state(value) for value in (5, 6, 7)])
    found = []
    for training in lines.extra_lines([leaf]):
        (fork,) = training.leaves
        found.append((training.line, training.fold, fork.clients, float(fork.model["w"][0])))
        fork.models.trained(LEAF, state(float(fork.model["w"][0]) + 10))
        lines.assign_fork_models(training, [leaf])
    assert found == [(TRIAL, 0, (1, 2), 5.0), (TRIAL, 1, (0, 2, 3), 6.0), (TRIAL, 2, (0, 1, 3), 7.0)]
    assert [float(model["w"][0]) for model in leaf.models.folds] == [15, 16, 17]
    leaf.models.apply_cloud_step(None, None)
    assert leaf.models.folds == []


def test_a_line_is_made_when_it_is_due(leaves):
    """The second line sees changes that the first one makes to a leaf."""
    begun = lines.extra_lines(leaves)
    next(begun)
    leaves[2].models.apply_cloud_step(None, None)
    assert [fork.index for fork in next(begun).leaves] == [1]


def test_where_nothing_stands_beside_nothing_trains(leaves):
    assert list(lines.extra_lines(leaves[:1])) == []
    assert [lines.has_extra_lines([leaf]) for leaf in leaves] == [
        bool(list(lines.extra_lines([leaf]))) for leaf in leaves
    ]


def test_what_is_served_is_fine_tuned_without_control_variates(leaves):
    """Leaf 1 serves 1, though it goes on with the offer."""
    training = lines.personal_line(leaves)
    assert training.line == PERSONAL
    assert [float(fork.model["w"][0]) for fork in training.leaves] == [0, 1, 2]
    assert [fork.control for fork in training.leaves] == [None] * 3
