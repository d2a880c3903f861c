"""Contributions of children to a leaf and to the cloud."""

import numpy as np
import pytest
from flwr.serverapp.strategy import FedAvg

from fedge.leaf.leaf import Leaf
from fedge.leaf.strategies.aggregation import Contribution, group_means, mean_of


def state(value):
    return {"w": np.array([value], np.float32)}


def test_children_weigh_by_their_windows():
    """(1 · 2 + 3 · 6) / 4 = 5."""
    brought = [Contribution(0, state(2), 1, version=1), Contribution(4, state(6), 3, version=1)]
    assert mean_of(brought)["w"].tolist() == [5.0]


def test_nobody_brings_no_mean():
    with pytest.raises(ValueError, match="state"):
        mean_of([])


def test_a_tree_of_two_levels_is_one_mean_over_all_clients():
    """Leaves with windows (1, 2) and (3,): the mean of leaf means by windows is that of 2, 5 and 8: 6."""
    leaves = [
        Leaf(0, {0: 1, 1: 2}, mean_of([Contribution(0, state(2), 1, 1), Contribution(1, state(5), 2, 1)]),
             ["w"], FedAvg(), 0),
        Leaf(1, {2: 3}, state(8), ["w"], FedAvg(), 0),
    ]  # fmt: skip
    brought = [leaf.contribution(version=4) for leaf in leaves]
    assert [(each.child, each.weight, each.version) for each in brought] == [(0, 3, 4), (1, 3, 4)]
    assert brought[1].state is leaves[1].model
    np.testing.assert_allclose(mean_of(brought)["w"], [6.0])


def test_who_has_clients_gets_its_group_s_mean_whether_it_counts_or_not():
    """Children 0 to 2 are one group: 2 counts 0, but has clients. Child 3, of the other, has none."""
    weights = [1, 3, 0, 0, 2]
    brought = [Contribution(i, state(value), weights[i], 1) for i, value in enumerate((2, 6, 99, 99, 1))]
    means = group_means(np.array([0, 0, 0, 1, 1]), brought, [True, True, True, False, True])
    assert [None if mean is None else float(mean["w"][0]) for mean in means] == [5.0, 5.0, 5.0, None, None]
    assert means[0] is means[2]
