"""Groups whose number the evidence decides."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from fedge.clustering.auto import auto_grouping, dealt_tests, moved
from fedge.clustering.deals import labels_after
from fedge.clustering.evidence import Answers, Evidence, leaf_role
from fedge.clustering.hierarchical import joined
from fedge.clustering.updates import Likeness
from fedge.config.sections.cluster import ClusterConfig

AVERAGE = partial(joined, linkage_="average", count=2)
CONFIG = ClusterConfig(signal="affinity", method="agglomerative", count="auto", test="sign-flip", patience=2)
NAN = float("nan")


def evidence(groups, seed=0, common_start=True, silent=(), per_leaf=3, between=3.0):
    """Losses of models that are `between` times as bad at other groups' clients, times noise of a client."""
    rng = np.random.default_rng(seed)
    groups = np.array(groups)
    leaf_of = np.repeat(np.arange(len(groups)), per_leaf)
    losses = np.exp(rng.normal(0, 0.2, (len(groups), len(leaf_of))))
    losses *= np.where(groups[:, None] == groups[leaf_of], 1.0, between)
    losses[:, np.isin(leaf_of, silent)] = NAN
    answers = Answers({leaf_role(i): row for i, row in enumerate(losses)}, np.full(len(leaf_of), 9), leaf_of)
    return Evidence([{}] * len(groups), None, [1] * len(groups), (), common_start, answers)


def grouped(found, before=None):
    grouping = auto_grouping(found, CONFIG, None if before is None else np.array(before), AVERAGE)
    return "".join(map(str, grouping.labels)), grouping


@pytest.mark.slow
def test_as_many_groups_as_there_are():
    for groups in ("0000", "0011", "010101", "00110022", "012012012012"):
        for seed in range(2):
            assert grouped(evidence(list(map(int, groups)), seed))[0] == groups


def test_facts_name_every_test():
    _, grouping = grouped(evidence([0, 0, 1, 1]))
    (test,) = grouping.facts["tests"]
    assert (test["leaves"], test["parts"]) == ([0, 1, 2, 3], [[0, 1], [2, 3]])
    assert test["p"] <= 0.01
    assert grouping.similarity is not None
    assert "silent" not in grouping.facts


def test_from_one_start_groups_in_force_do_not_count():
    """A probe: wrong clusters merge, right ones are found again."""
    assert grouped(evidence([0] * 6), before=[0, 0, 0, 1, 1, 1])[0] == "000000"
    assert grouped(evidence([0, 1] * 3), before=[0, 0, 0, 1, 1, 1])[0] == "010101"


def test_from_different_starts_clusters_only_come_apart_or_lose_leaves():
    """Models of two clusters differ, but nothing says that their people do: they stay as they are."""
    labels = [0] * 4 + [1] * 4
    assert grouped(evidence(labels, common_start=False, between=9), before=labels)[0] == "00001111"
    assert grouped(evidence([0] * 8, common_start=False), before=labels)[0] != "00000000"
    apart = evidence([0, 0, 2, 2, 1, 1, 1, 1], common_start=False)
    assert grouped(apart, before=labels)[0] == "00112222"


def test_a_leaf_goes_where_others_serve_it_better():
    """Leaf 3 is in the wrong cluster; no further test is made in that step."""
    found, grouping = grouped(evidence([0, 0, 0, 1, 1, 1], common_start=False), before=[0, 0, 0, 0, 1, 1])
    assert found == "000111"
    assert grouping.facts["tests"] == []


def test_moves_by_hand():
    """Leaf 2 of {0 1 2}: own cluster's others have losses 4 and 1 (geometric mean 2), leaf 3's model 1.9."""
    matrix = np.ones((5, 5))
    matrix[:, 2] = [4, 1, 0.1, 1.9, 5]
    assert moved(matrix, np.array([0, 0, 0, 1, 2])).tolist() == [0, 0, 1, 1, 2]
    matrix[3, 2] = 2.1
    assert moved(matrix, np.array([0, 0, 0, 1, 2])).tolist() == [0, 0, 0, 1, 2]


def test_who_does_not_move():
    """A leaf alone knows no other models of its cluster; of a silent one nothing is known."""
    matrix = np.ones((3, 3))
    matrix[:, 0] = [5, 0.1, 0.1]
    assert moved(matrix, np.array([0, 1, 1])).tolist() == [0, 1, 1]
    matrix[:, 1] = NAN
    assert moved(matrix, np.array([0, 1, 1])).tolist() == [0, 1, 1]


def test_a_silent_leaf_stays_with_the_rest_until_its_clients_have_evaluated():
    """As a leaf that joins late: it begins in the first cluster and moves when something is known of it."""
    found, grouping = grouped(evidence([0, 1] * 4, silent=[1]))
    assert found == "00010101"
    assert grouping.facts["silent"] == [1]
    assert grouping.similarity is None
    assert grouped(evidence([0, 1] * 4, common_start=False), before=list(map(int, found)))[0] == "01010101"


def test_three_leaves_are_one_cluster():
    found, grouping = grouped(evidence([0, 1, 1]))
    assert found == "000"
    assert grouping.facts == {"skipped": "whether there are groups can be tested from 4 leaves on"}


# --- the deal test ------------------------------------------------------------------------------------

DEAL = replace(CONFIG, test="deal", level="auto")


def likeness(groups, clients=4):
    """The likeness of clients whose updates agree within groups of leaves, and a little noise."""
    leaf_of = np.repeat(np.arange(len(groups)), clients)
    group = np.asarray(groups)[leaf_of]
    noise = np.random.default_rng(0).normal(0, 0.01, (len(leaf_of), len(leaf_of)))
    return Likeness(((group[:, None] == group) + noise + noise.T)[None], leaf_of, 1)


@pytest.mark.parametrize("groups", [[0, 1, 1], [0, 0, 1, 0], [0, 1, 0, 1, 0, 1], [0, 0, 0, 1, 1, 1, 2, 2, 2]])
def test_dealt_groups_are_those_of_the_updates(groups):
    found = dealt_tests(likeness(groups), DEAL, 0)
    assert labels_after(found, np.zeros(len(groups), dtype=np.int64)).tolist() == groups
    assert found[0].p <= found[0].level


def test_without_groups_the_deal_test_finds_none():
    found = dealt_tests(likeness([0] * 6), DEAL, 0)
    assert [test.stands for test in found] == [False]


def test_equal_updates_have_equal_tests_whatever_the_round():
    alike = likeness([0, 0, 0, 1, 1, 1])
    later = replace(alike, global_round=9)
    assert dealt_tests(alike, DEAL, 5) == dealt_tests(later, DEAL, 5)


def test_too_few_updates_are_said():
    found = dealt_tests(likeness([0, 1], clients=2), DEAL, 0)
    assert "from 2 leaves and 5 clients on" in found
