"""With what forks of a trial begin and go on, by hand: models 0, 1, 2, … of equal weight."""

import json

import numpy as np
import pytest

from fedge.cloud.forks import Forks
from fedge.clustering.memberships.proposals import ClusterChange

HALVES = ClusterChange("split", ((0, 1, 2, 3),), ((0, 1), (2, 3)))
LONE = ClusterChange("split", ((0, 1, 2),), ((0, 1), (2,)))
MERGE = ClusterChange("merge", ((0, 1), (2, 3)), ((0, 1, 2, 3),))
LEAF_OF = np.repeat(np.arange(3), 3)


def states(*values):
    return [None if value is None else {"w": np.array([float(value)])} for value in values]


def values(of):
    return [None if state is None else float(state["w"][0]) for state in of]


def begun(*changes):
    forks = Forks()
    forks.set_trials(changes, ())
    return forks


def without(client):
    """Models made without a client of leaf 2: 10 times its number."""
    return {client: states(10 * client)[0]}


FOLDS = {2: without(6) | without(7) | without(8)}


def test_forks_of_a_refused_split_go_on_from_where_they_are():
    forks = begun(HALVES)
    assert values(forks.starts(models := states(0, 1, 2, 3), [1.0] * 4)) == [0.5, 0.5, 2.5, 2.5]
    forks.set_models(states(10, 12, 20, 24), {})
    assert values(map(forks.model_of, range(4))) == [10, 12, 20, 24]
    forks.set_trials([HALVES], [])
    assert values(forks.starts(models, [1.0, 3.0, 1.0, 1.0])) == [11.5, 11.5, 22, 22]
    forks.set_trials([], [])  # not found again: the next trial is a new one
    forks.set_trials([HALVES], [])
    assert values(forks.starts(models, [1.0] * 4)) == [0.5, 0.5, 2.5, 2.5]


def test_forks_of_a_merge_begin_anew_and_those_of_a_change_that_was_adopted_are_done():
    forks = begun(MERGE)
    forks.set_models(states(10, 12, 20, 24), {})
    forks.set_trials([MERGE], [])
    assert values(forks.starts(states(0, 1, 2, 3), [1.0] * 4)) == [1.5] * 4
    forks = begun(HALVES)
    forks.set_trials([HALVES], [HALVES])
    assert list(forks.ages.values()) == [0]


def test_a_leaf_that_would_be_alone_has_folds_from_the_common_model_on():
    """Its own model, 9, its clients have all trained; the mean of the cluster is (0 + 3 + 9) / 3."""
    forks = begun(LONE)
    models, weights = states(0, 3, 9), [1.0] * 3
    assert forks.separated_leaves == {2}
    assert values(forks.starts(models, weights)) == [1.5, 1.5, None]
    folds = forks.fold_starts(models, weights, LEAF_OF)
    assert {leaf: values(made) for leaf, made in folds.items()} == {2: [4.0] * 3}
    forks.set_models(states(1, 2, None), FOLDS)
    assert forks.model_of(2) is None  # after one round its own model is better
    forks.set_trials([LONE], [])
    assert values(forks.fold_starts(models, weights, LEAF_OF)[2]) == [60, 70, 80]
    forks.set_models(states(1, 2, None), FOLDS)
    assert values([forks.model_of(2)]) == [70]


@pytest.mark.parametrize("clients", [1, 2])
def test_no_fork_is_made_of_one_clients_model(clients):
    leaf_of = np.array([0, 0, 1, 1] + [2] * clients)
    assert begun(LONE).fold_starts(states(0, 3, 9), [1.0] * 3, leaf_of) == {}


def test_how_old_forks_are_survives():
    forks, other = begun(LONE), Forks()
    forks.set_trials([LONE], [])
    other.restore(json.loads(json.dumps(forks.facts())))
    assert other.ages == forks.ages == {LONE: 1}
