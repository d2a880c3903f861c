"""Groups whose number the evidence decides: the deal test."""

from dataclasses import replace

import numpy as np
import pytest

from fedge.clustering.deal_test.auto import p_of_cut, run_deal_tests
from fedge.clustering.deal_test.deals import labels_after
from fedge.clustering.likeness.updates import Likeness
from fedge.config.sections.cluster import ClusterConfig

DEAL = ClusterConfig(signal="affinity", method="agglomerative", count="auto", level="auto", patience=2)


def likeness(groups, clients=4):
    """The likeness of clients whose updates agree within groups of leaves, and a little noise."""
    leaf_of = np.repeat(np.arange(len(groups)), clients)
    group = np.asarray(groups)[leaf_of]
    noise = np.random.default_rng(0).normal(0, 0.01, (len(leaf_of), len(leaf_of)))
    return Likeness(((group[:, None] == group) + noise + noise.T)[None], leaf_of, 1)


@pytest.mark.parametrize("groups", [[0, 1, 1], [0, 0, 1, 0], [0, 1, 0, 1, 0, 1], [0, 0, 0, 1, 1, 1, 2, 2, 2]])
def test_dealt_groups_are_those_of_the_updates(groups):
    found = run_deal_tests(likeness(groups), DEAL, 0)
    assert labels_after(found, np.zeros(len(groups), dtype=np.int64)).tolist() == groups
    assert found[0].p <= found[0].level


def test_without_groups_the_deal_test_finds_none():
    found = run_deal_tests(likeness([0] * 6), DEAL, 0)
    assert [test.stands for test in found] == [False]


def test_equal_updates_have_equal_tests_whatever_the_round():
    alike = likeness([0, 0, 0, 1, 1, 1])
    later = replace(alike, global_round=9)
    assert run_deal_tests(alike, DEAL, 5) == run_deal_tests(later, DEAL, 5)


def test_too_few_updates_are_said():
    found = run_deal_tests(likeness([0, 1], clients=2), DEAL, 0)
    assert "from 2 leaves and 5 clients on" in found


def test_p_of_a_cut_is_its_own():
    """Of the planted cut it is the smallest there is; of a leaf on the wrong side it is none."""
    alike = likeness([0, 0, 0, 1, 1, 1])
    right, wrong = (p_of_cut(alike, range(6), part, 0) for part in ([0, 1, 2], [0, 1, 3]))
    assert right == 1 / 2000
    assert wrong > 0.05
