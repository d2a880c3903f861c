"""Changes of the groups in force: which there are, how they wait, that each is decided by itself."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.clustering.deal_test.deals import DealTest
from fedge.clustering.memberships.proposals import (
    ClusterChange,
    Proposals,
    apply_changes,
    changes_between,
    next_groups,
)

LABELS = st.integers(2, 7).flatmap(
    lambda size: st.tuples(*(st.lists(st.integers(0, size - 1), min_size=size, max_size=size),) * 2)
)


def cut(first, second, p=0.001):
    return DealTest(tuple(sorted((*first, *second))), (first, second), 5.0, p, 0.01, 1999, False)


def grouping(labels):
    array = np.asarray(labels)
    return {tuple(np.flatnonzero(array == k).tolist()) for k in set(array.tolist())}


@given(LABELS)
def test_changes_share_no_leaf_and_lead_where_they_should(pair):
    before, after = map(np.array, pair)
    changes = changes_between(before, after)
    leaves = [leaf for change in changes for leaf in change.leaves]
    assert len(leaves) == len(set(leaves))
    assert grouping(apply_changes(before, changes)) == grouping(after)
    assert all(ClusterChange.from_json(json.loads(json.dumps(c.to_json()))) == c for c in changes)


def test_movers_by_hand():
    assert ClusterChange("split", ((0, 1, 2),), ((0, 1), (2,))).movers == ()
    assert ClusterChange("move", ((0, 1, 2), (3, 4)), ((0, 1), (2, 3, 4))).movers == (2,)
    assert ClusterChange("merge", ((0, 1), (2,)), ((0, 1, 2),)).movers == (2,)


def test_cuts_come_one_at_a_time_the_coarsest_first():
    """Leaves 0 1 | 2 3 | 4 5: the first cut parts 0 1 2 3 from 4 5, the next the former."""
    tests = [cut((0, 1, 2, 3), (4, 5)), cut((0, 1), (2, 3))]
    target = np.array([0, 0, 1, 1, 2, 2])
    one, two = np.zeros(6, dtype=np.int64), np.array([0, 0, 0, 0, 1, 1])
    assert next_groups(target, tests, one, []).tolist() == two.tolist()
    assert next_groups(target, tests, two, []).tolist() == target.tolist()
    (coarse,) = changes_between(one, two)
    assert next_groups(target, tests, one, [coarse]).tolist() == target.tolist()
    assert next_groups(target, tests, target, []).tolist() == target.tolist()


def test_disjoint_changes_are_decided_by_themselves():
    """Two clusters are to come apart: the one cut is useful, the other is not, and neither waits."""
    proposals = Proposals()
    proposals.labels = np.array([0, 0, 0, 1, 1, 1])
    found = np.array([0, 0, 1, 2, 2, 3])
    proposals.find(found)
    assert proposals.call(2) == tuple(changes_between(proposals.labels, found))
    first, second = proposals.on_trial
    proposals.find(found)
    assert proposals.decide({first: True, second: False}, 6) == [first]
    assert proposals.labels.tolist() == [0, 0, 1, 2, 2, 2]
    assert proposals.failed == {second: 1}
    assert proposals.is_unsettled is False
    assert proposals.call(2) == (second,)  # and is tried again


@pytest.mark.parametrize("patience", [2, 3])
def test_how_long_a_change_waits_and_when_it_is_tried_again(patience):
    """Found in every step and never useful: tried three times in a row, then after p, 2 p, 4 p steps more."""
    proposals, found, tried = Proposals(), np.array([0, 0, 1, 1]), []
    for step in range(1, 8 * patience + 3):
        proposals.find(found)
        if proposals.on_trial:
            tried.append(step)
        proposals.decide(dict.fromkeys(proposals.on_trial, False), 4)
        proposals.call(patience)
    p = patience
    assert tried == [p, p + 1, p + 2, 2 * p + 2, 4 * p + 2, 8 * p + 2]


def test_a_change_without_answers_waits_and_one_that_is_not_found_is_forgotten():
    proposals, found = Proposals(), np.array([0, 0, 1, 1])
    proposals.find(found)
    (change,) = proposals.call(2)
    proposals.find(found)
    assert proposals.decide({}, 4) == []
    assert proposals.call(2) == (change,)
    proposals.find(np.zeros(4, dtype=np.int64))
    assert proposals.decide({change: True}, 4) == []
    assert proposals.labels.tolist() == [0] * 4
    assert proposals.agreed == {}


def test_each_further_trial_asks_for_more_gain():
    """Once, twice, three times and never more than four times the least gain; a merge is no split."""
    proposals, found = Proposals(), np.array([0, 0, 1, 1])
    (split,) = changes_between(np.zeros(4, dtype=np.int64), found)
    hurdles = []
    for _ in range(30):
        proposals.find(found)
        proposals.decide(dict.fromkeys(proposals.on_trial, False), 4)
        if proposals.call(1):
            hurdles.append(proposals.gain_factor(split))
    assert hurdles[:6] == [1, 2, 3, 4, 4, 4]
    assert proposals.gain_factor(ClusterChange("merge", split.after, split.before)) == 1


def test_what_waits_survives():
    proposals, found = Proposals(), np.array([0, 0, 1, 1, 1])
    proposals.find(found)
    (change,) = proposals.call(2)
    proposals.find(found)
    for _ in range(3):
        proposals.decide({change: False}, 5)
        proposals.call(2)
        proposals.find(found)
    other = Proposals()
    other.restore(json.loads(json.dumps(proposals.facts())))
    assert other.facts() == proposals.facts()
    assert other.failed == {change: 3}
    for each in (proposals, other):
        each.find(found)
        assert each.call(2) == (change,)
