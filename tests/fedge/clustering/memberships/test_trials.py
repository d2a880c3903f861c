"""Results of trials by clients' losses of models of strangers, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from fedge.clustering.memberships.mixture import ByClass
from fedge.clustering.memberships.proposals import ClusterChange
from fedge.clustering.memberships.strangers import StrangerLosses
from fedge.clustering.memberships.trials import (
    change_gain,
    groups_after_moves,
    mergeable_pairs,
    misplaced_leaves,
    needs_longer_trial,
)

NAN = float("nan")
SPLIT = ClusterChange("split", ((0, 1, 2, 3),), ((0, 1), (2, 3)))
LONE = ClusterChange("split", ((0, 1, 2),), ((0, 1), (2,)))


def said_of(present, proposed=None, neighbour=None, clusters=None, leaf_of=None, labels=None):
    size = len(present)
    unknown = np.full(size, NAN)
    columns = [unknown if c is None else np.array(c, dtype=float) for c in (proposed, neighbour)]
    return StrangerLosses(
        np.arange(size) if leaf_of is None else np.array(leaf_of), np.array(present, dtype=float), *columns,
        np.array([unknown] * 3) if clusters is None else np.array(clusters, dtype=float),
        np.zeros(size, dtype=np.int64) if labels is None else np.array(labels),
    )  # fmt: skip


def test_a_merge_may_cost_a_little_a_split_must_gain():
    merge = ClusterChange("merge", ((0, 1), (2,)), ((0, 1, 2),))
    slight = said_of([0, 0, 0], [0.04, 0.04, 0.04])  # three clients lose 4 %
    assert change_gain(merge, slight, 0.05).useful
    assert not change_gain(merge, said_of([0, 0, 0], [0.06, 0.06, 0.06]), 0.05).useful
    assert not change_gain(LONE, said_of([0.05, 0.05, 0.05], [0, 0, 0]), 0.05).useful
    assert change_gain(LONE, said_of([NAN] * 3, [0, 0, 0]), 0.05) is None


def test_what_parted_clusters_is_over():
    """Forks of the mean lose .4 and gain .2; cluster 0's model gains leaf 2 .3, who wins nothing else."""
    merge = ClusterChange("merge", ((0, 1), (2,)), ((0, 1, 2),))
    clusters = [[NAN, NAN, -0.3], [0.9, 0.9, NAN]]
    said = said_of([0, 0, 0], [0.4, 0.4, -0.2], clusters=clusters, labels=[0, 0, 1])
    gained = change_gain(merge, said, 0.05)
    assert (gained.home, gained.parts, gained.useful) == ((0, 1), (0.0, 0.3), True)
    assert gained.gain == pytest.approx(0.15)


def test_one_leaf_counts_as_much_as_the_many_that_it_leaves():
    """63 leaves gain nothing, one gains 1: half of that."""
    many = ClusterChange("split", (tuple(range(64)),), (tuple(range(63)), (63,)))
    found = change_gain(many, said_of([0.0] * 63 + [1.0], [0.0] * 64), 0.05)
    assert found.gain == pytest.approx(0.5)
    assert found.better == 1 / 64  # no change is nothing better


def test_a_leaf_on_the_wrong_side_of_a_cut():
    """Leaf 1 does better with the other part; leaf 3, too, but then its part would be empty of others."""
    said = said_of([0] * 4, [0, 0.5, 0, 0], [0.4, 0.1, 0.3, 0.1])
    assert misplaced_leaves(SPLIT, said, 0.05) == [1]
    assert misplaced_leaves(SPLIT, said_of([0] * 4, [1] * 4, [0] * 4), 0.05) == [0, 2]  # no part is emptied
    assert misplaced_leaves(LONE, said_of([0] * 3, [0, 0, 1], [1, 1, 0]), 0.05) == []


def test_when_a_useful_split_is_in_doubt():
    """Where a part loses (leaves 2 and 3 by 0.1), or a leaf seems to be on the wrong side, and not else."""
    for proposed, neighbour, doubted in (
        ([-1, -1, -0.5, -0.5], [1] * 4, False),
        ([-1, -1, 0, 0], [1] * 4, False),  # what neither gains nor loses
        ([-1, -1, 0.1, 0.1], [1] * 4, True),
        ([-1, -0.2, -0.5, -0.5], [1, -0.5, 1, 1], True),
    ):
        said = said_of([0] * 4, proposed, neighbour)
        assert needs_longer_trial(SPLIT, said, change_gain(SPLIT, said, 0.05), 0.05) == doubted
    said = said_of([0] * 4, [1] * 4, [2] * 4)
    assert not needs_longer_trial(SPLIT, said, change_gain(SPLIT, said, 0.05), 0.05)  # not useful at all


def test_moves_by_hand_with_models_that_nobody_was_asked_about():
    """Leaf 1 does best with cluster 1; leaf 2 was not asked about cluster 0, and leaf 3 is alone."""
    labels = np.array([0, 0, 1, 2])
    clusters = [[NAN, NAN, NAN, 0.1], [0.9, 0.3, NAN, 0.9], [0.8, 0.5, 0.9, NAN]]
    said = said_of([0.5, 0.5, 0.5, NAN], clusters=clusters)
    assert groups_after_moves(said, labels, [], 0.05).tolist() == [0, 1, 1, 2]
    assert groups_after_moves(said, labels, [], 0.25).tolist() == [0, 0, 1, 2]
    assert groups_after_moves(said, labels, [0], 0.05).tolist() == [
        0,
        0,
        1,
        2,
    ]  # its cluster waits for another change
    known = said_of([0.5, 0.5, 0.5, 0.4], clusters=clusters)
    assert groups_after_moves(known, labels, [], 0.05).tolist() == [
        0,
        1,
        1,
        0,
    ]  # alone, but judged by its folds
    torn = said_of([0.5, 0.5], clusters=[[NAN, NAN], [0.1, 0.6]], leaf_of=[0, 0], labels=[0, 1])
    assert groups_after_moves(torn, np.array([0, 1]), [], 0.05).tolist() == [
        0,
        1,
    ]  # one of its clients is worse off


def test_merges_by_hand():
    """Clusters 0 and 1 lose .02 and .04 with each other's models, 1 and 2 .01 and .6."""
    labels = np.array([0, 1, 2])
    said = said_of([0, 0, 0], clusters=[[NAN, 0.04, 0.9], [0.02, NAN, 0.6], [0.9, 0.01, NAN]])
    assert mergeable_pairs(said, labels, [], 0.05) == [(0, 1)]
    assert mergeable_pairs(said, labels, [], 0.03) == []
    assert mergeable_pairs(said, labels, [0], 0.05) == []


def skewed(present, proposed):
    """Leaves 0 and 1 have eight windows of class 0, leaves 2 and 3 of class 1: right ones of two models."""
    held = np.array([[8, 0], [8, 0], [0, 8], [0, 8]])
    right = [np.array(each)[:, None] * held // 8 for each in (present, proposed)]
    return ByClass(np.arange(4), held, held, *right)


def test_a_split_of_classes_does_not_count_however_much_each_part_gains():
    """Losses fall to 1/e, as each part's model knows its one class, of which 4 of 8 were right before."""
    said = replace(said_of([0] * 4, [-1] * 4), by_class=skewed([4] * 4, [8] * 4))
    worth = change_gain(SPLIT, said, 0.05)
    assert (worth.gain, worth.useful) == (1.0, False)
    # half of the people's windows are of a class that the part lacks: right before, wrong after
    assert worth.standardised == pytest.approx(np.log((1 / 4 + 1 / 16) / (1 / 2 + 1 / 16)))
    assert worth.to_json()["standardised"] == worth.standardised
    assert "standardised" not in change_gain(SPLIT, said_of([0] * 4, [-1] * 4), 0.05).to_json()


def test_a_split_that_gains_in_all_classes_counts_and_waits_if_class_shares_explain_most_of_it():
    both = np.full((4, 2), 4)
    held = both + np.array([[3, 0], [3, 0], [0, 3], [0, 3]])
    by_class = ByClass(np.arange(4), held, held, both // 2, both)
    # right of a part's classes are 2/7 and 2/4, then 4/7 and 4/4; it has 22 windows
    error, less = 1 - (2 / 7 + 1 / 2) / 2, 1 - (4 / 7 + 1) / 2
    gain = np.log((error + 1 / 22) / (less + 1 / 22))  # 0.92
    for fall, doubted in ((-0.04, True), (0.04, True), (0.06, False), (1.8, False), (1.9, True)):
        said = replace(said_of([0] * 4, [-fall] * 4, [2] * 4), by_class=by_class)
        worth = change_gain(SPLIT, said, 0.05)
        assert worth.standardised == pytest.approx(gain)
        assert worth.useful
        assert needs_longer_trial(SPLIT, said, worth, 0.05) is doubted
    assert not change_gain(SPLIT, said, gain).useful  # a later trial asks for more
    worse = replace(said_of([0] * 4, [0.06] * 4, [1] * 4), by_class=by_class)
    assert not change_gain(SPLIT, worse, 0.05).useful  # known clients lose too much
    move = ClusterChange("move", ((0, 1, 2), (3,)), ((0, 1), (2, 3)))
    assert not needs_longer_trial(
        move, said, change_gain(move, said, 0.05), 0.05
    )  # has no forks that could train on
