"""Questions to clients about models of strangers, and the weight of their answers, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.clustering.evidence import Answers
from fedge.clustering.proposals import Change
from fedge.clustering.strangers import (
    MOST_MODELS,
    NEIGHBOUR,
    PRESENT,
    PROPOSED,
    Asking,
    StrangerLosses,
    is_doubted,
    is_simple_move,
    merged,
    misplaced,
    moved,
    others,
    questions,
    result_of,
    stranger_losses,
)

NAN = float("nan")
SPLIT = Change("split", ((0, 1, 2, 3),), ((0, 1), (2, 3)))
LONE = Change("split", ((0, 1, 2),), ((0, 1), (2,)))


def models(count, first=0.0):
    return [{"w": np.array([first + k])} for k in range(count)]


def asking(labels, on_trial=(), forks=(), folds=None, ask=True):
    labels = np.array(labels)
    order = [[k for k in range(labels.max() + 1) if ask and k != own] for own in labels]
    return Asking(labels, models(len(labels)), [1.0] * len(labels), on_trial, forks, folds or {}, order)


def values(asked):
    return [{role: float(state["w"][0]) for role, state in roles.items()} for roles in asked]


def test_a_split_by_hand():
    """Models 0 to 3, forks 10 to 13. Leaf 0: others 1 to 3; fork 11; the other part's forks 12 and 13."""
    asked = values(questions(asking([0] * 4, [SPLIT], models(4, 10.0))))
    assert asked[0] == {PRESENT: 2.0, PROPOSED: 11.0, NEIGHBOUR: 12.5}
    assert asked[3] == {PRESENT: 1.0, PROPOSED: 12.0, NEIGHBOUR: 10.5}


def test_a_leaf_that_would_be_alone_is_judged_by_its_other_clients():
    """Leaf 2 has clients 4 and 5; without 4 they make 5.0, without 5 4.0; leaves 0 and 1 have forks."""
    folds = {2: {4: {"w": np.array([5.0])}, 5: {"w": np.array([4.0])}}}
    about = asking([0] * 3, [LONE], [*models(2, 10.0), None], folds)
    asked = values(questions(about))
    assert asked[2] == {PRESENT: 0.5, "without-4": 5.0, "without-5": 4.0, NEIGHBOUR: 10.5}
    assert asked[0] == {PRESENT: 1.5, PROPOSED: 11.0, NEIGHBOUR: 2.0}  # leaf 2 itself has no fork
    losses = {PRESENT: [2] * 6, PROPOSED: [1, 1, 1, 1, NAN, NAN]}
    losses |= {"without-4": [NAN] * 4 + [0.5, 9], "without-5": [NAN] * 4 + [9, 0.25]}
    said = stranger_losses(answers(losses, [0, 0, 1, 1, 2, 2]), about)
    np.testing.assert_allclose(said.proposed, np.log([1, 1, 1, 1, 0.5, 0.25]))
    gained = result_of(LONE, said, 0.05)
    # leaves 0 and 1 gain log 2, leaf 2 the mean of log 4 and log 8: each part counts the same
    np.testing.assert_allclose(gained.gain, (np.log(2) + (np.log(4) + np.log(8)) / 2) / 2)
    assert (gained.clients, gained.better, gained.useful) == (6, 1.0, True)


def answers(losses, leaf_of):
    return Answers(
        {role: np.array(column, dtype=float) for role, column in losses.items()}, np.full(len(leaf_of), 9),
        np.array(leaf_of), clients=np.arange(len(leaf_of)),
    )  # fmt: skip


def test_other_clusters_are_asked_about_and_nobody_is_asked_too_much():
    asked = values(questions(asking([0, 0, 1, 1, 2])))
    assert asked[0] == {PRESENT: 1.0, "cluster-1": 2.5, "cluster-2": 4.0}
    assert asked[4] == {"cluster-0": 0.5, "cluster-1": 2.5}  # alone, without folds
    many = questions(asking([k // 2 for k in range(64)]))
    assert {len(roles) for roles in many} == {MOST_MODELS}
    assert questions(asking([0] * 4)) == [{}] * 4


def test_a_simple_move_needs_no_forks():
    """Leaf 2 goes to 3 and 4: it is asked about their mean, and nobody else about anything of the move."""
    change = Change("move", ((0, 1, 2), (3, 4)), ((0, 1), (2, 3, 4)))
    assert is_simple_move(change)
    assert not is_simple_move(Change("move", ((0, 1), (2, 3)), ((0, 2), (1, 3))))
    about = asking([0, 0, 0, 1, 1], [change], ask=False)
    asked = values(questions(about))
    assert asked[2] == {PRESENT: 0.5, PROPOSED: 3.5}
    assert PROPOSED not in asked[0] | asked[3]
    said = stranger_losses(answers({PRESENT: [1] * 5, PROPOSED: [NAN, NAN, 0.5, NAN, NAN]}, range(5)), about)
    assert result_of(change, said, 0.05).gain == pytest.approx(np.log(2))
    assert result_of(change, said, 0.8).useful is False


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
    merge = Change("merge", ((0, 1), (2,)), ((0, 1, 2),))
    slight = said_of([0, 0, 0], [0.04, 0.04, 0.04])  # three clients lose 4 %
    assert result_of(merge, slight, 0.05).useful
    assert not result_of(merge, said_of([0, 0, 0], [0.06, 0.06, 0.06]), 0.05).useful
    assert not result_of(LONE, said_of([0.05, 0.05, 0.05], [0, 0, 0]), 0.05).useful
    assert result_of(LONE, said_of([NAN] * 3, [0, 0, 0]), 0.05) is None


def test_what_parted_clusters_is_over():
    """Forks of the mean lose .4 and gain .2; cluster 0's model gains leaf 2 .3, who wins nothing else."""
    merge = Change("merge", ((0, 1), (2,)), ((0, 1, 2),))
    clusters = [[NAN, NAN, -0.3], [0.9, 0.9, NAN]]
    said = said_of([0, 0, 0], [0.4, 0.4, -0.2], clusters=clusters, labels=[0, 0, 1])
    gained = result_of(merge, said, 0.05)
    assert (gained.home, gained.parts, gained.useful) == ((0, 1), (0.0, 0.3), True)
    assert gained.gain == pytest.approx(0.15)


def test_one_leaf_counts_as_much_as_the_many_that_it_leaves():
    """63 leaves gain nothing, one gains 1: half of that."""
    many = Change("split", (tuple(range(64)),), (tuple(range(63)), (63,)))
    assert result_of(many, said_of([0.0] * 63 + [1.0], [0.0] * 64), 0.05).gain == pytest.approx(0.5)


def test_a_leaf_on_the_wrong_side_of_a_cut():
    """Leaf 1 does better with the other part; leaf 3, too, but then its part would be empty of others."""
    said = said_of([0] * 4, [0, 0.5, 0, 0], [0.4, 0.1, 0.3, 0.1])
    assert misplaced(SPLIT, said, 0.05) == [1]
    assert misplaced(SPLIT, said_of([0] * 4, [1] * 4, [0] * 4), 0.05) == [0, 2]  # no part is emptied
    assert misplaced(LONE, said_of([0] * 3, [0, 0, 1], [1, 1, 0]), 0.05) == []


def test_when_a_useful_split_is_in_doubt():
    """Where a part loses (leaves 2 and 3 by 0.1), or a leaf seems to be on the wrong side, and not else."""
    for proposed, neighbour, doubted in (
        ([-1, -1, -0.5, -0.5], [1] * 4, False),
        ([-1, -1, 0.1, 0.1], [1] * 4, True),
        ([-1, -0.2, -0.5, -0.5], [1, -0.5, 1, 1], True),
    ):
        said = said_of([0] * 4, proposed, neighbour)
        assert is_doubted(SPLIT, said, result_of(SPLIT, said, 0.05), 0.05) == doubted
    said = said_of([0] * 4, [1] * 4, [2] * 4)
    assert not is_doubted(SPLIT, said, result_of(SPLIT, said, 0.05), 0.05)  # not useful at all


def test_moves_by_hand_with_models_that_nobody_was_asked_about():
    """Leaf 1 does best with cluster 1; leaf 2 was not asked about cluster 0, and leaf 3 is alone."""
    labels = np.array([0, 0, 1, 2])
    clusters = [[NAN, NAN, NAN, 0.1], [0.9, 0.3, NAN, 0.9], [0.8, 0.5, 0.9, NAN]]
    said = said_of([0.5, 0.5, 0.5, NAN], clusters=clusters)
    assert moved(said, labels, [], 0.05).tolist() == [0, 1, 1, 2]
    assert moved(said, labels, [], 0.25).tolist() == [0, 0, 1, 2]
    assert moved(said, labels, [0], 0.05).tolist() == [0, 0, 1, 2]  # its cluster waits for another change
    known = said_of([0.5, 0.5, 0.5, 0.4], clusters=clusters)
    assert moved(known, labels, [], 0.05).tolist() == [0, 1, 1, 0]  # alone, but judged by its folds
    torn = said_of([0.5, 0.5], clusters=[[NAN, NAN], [0.1, 0.6]], leaf_of=[0, 0], labels=[0, 1])
    assert moved(torn, np.array([0, 1]), [], 0.05).tolist() == [0, 1]  # one of its clients is worse off


def test_merges_by_hand():
    """Clusters 0 and 1 lose .02 and .04 with each other's models, 1 and 2 .01 and .6."""
    labels = np.array([0, 1, 2])
    said = said_of([0, 0, 0], clusters=[[NAN, 0.04, 0.9], [0.02, NAN, 0.6], [0.9, 0.01, NAN]])
    assert merged(said, labels, [], 0.05) == [(0, 1)]
    assert merged(said, labels, [], 0.03) == []
    assert merged(said, labels, [0], 0.05) == []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=7), st.data())
def test_others_are_the_cluster_without_the_leaf(labels, data):
    leaf = data.draw(st.integers(0, len(labels) - 1))
    found = others(np.array(labels), leaf)
    assert leaf not in found
    assert {*found, leaf} == {at for at, label in enumerate(labels) if label == labels[leaf]}
