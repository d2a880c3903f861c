"""Questions to clients about models of strangers, and their answers, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.clustering.likeness.evidence import Answers, collect_answers
from fedge.clustering.memberships.proposals import ClusterChange
from fedge.clustering.memberships.strangers import (
    MOST_MODELS,
    NEIGHBOUR,
    PRESENT,
    PROPOSED,
    StrangerQuestions,
    cluster_neighbours,
    is_simple_move,
    questions,
    stranger_losses,
)
from fedge.clustering.memberships.trials import change_gain
from fedge.exchange.evaluate import Evaluation
from fedge.tasks.classification import CONFUSION

NAN = float("nan")
SPLIT = ClusterChange("split", ((0, 1, 2, 3),), ((0, 1), (2, 3)))
LONE = ClusterChange("split", ((0, 1, 2),), ((0, 1), (2,)))


def models(count, first=0.0):
    return [{"w": np.array([first + k])} for k in range(count)]


def asking(labels, on_trial=(), forks=(), folds=None, ask=True):
    labels = np.array(labels)
    order = [[k for k in range(labels.max() + 1) if ask and k != own] for own in labels]
    return StrangerQuestions(
        labels, models(len(labels)), [1.0] * len(labels), on_trial, forks, folds or {}, order
    )


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
    gained = change_gain(LONE, said, 0.05)
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
    change = ClusterChange("move", ((0, 1, 2), (3, 4)), ((0, 1), (2, 3, 4)))
    assert is_simple_move(change)
    assert not is_simple_move(ClusterChange("move", ((0, 1), (2, 3)), ((0, 2), (1, 3))))
    about = asking([0, 0, 0, 1, 1], [change], ask=False)
    asked = values(questions(about))
    assert asked[2] == {PRESENT: 0.5, PROPOSED: 3.5}
    assert PROPOSED not in asked[0] | asked[3]
    said = stranger_losses(answers({PRESENT: [1] * 5, PROPOSED: [NAN, NAN, 0.5, NAN, NAN]}, range(5)), about)
    assert change_gain(change, said, 0.05).gain == pytest.approx(np.log(2))
    assert change_gain(change, said, 0.8).useful is False


@given(st.lists(st.integers(0, 3), min_size=1, max_size=7), st.data())
def test_others_are_the_cluster_without_the_leaf(labels, data):
    leaf = data.draw(st.integers(0, len(labels) - 1))
    found = cluster_neighbours(np.array(labels), leaf)
    assert leaf not in found
    assert {*found, leaf} == {at for at, label in enumerate(labels) if label == labels[leaf]}


def confusion(*rows):
    """(K, 2, 2) of two classes, of rows right and wrong: of class 0, then of class 1."""
    return np.array([[[r0, w0], [w1, r1]] for r0, w0, r1, w1 in rows])


def test_right_answers_by_class_of_leaves_that_differ_in_their_classes():
    """Leaf 2 would be alone: its clients 4 and 5 judge each other's models. Client 1 is silent."""
    folds = {2: {4: {"w": np.array([5.0])}, 5: {"w": np.array([4.0])}}}
    about = asking([0] * 3, [LONE], [*models(2, 10.0), None], folds)
    nothing = (0, 0, 0, 0)
    said = {
        PRESENT: confusion((1, 7, 0, 0), nothing, *[(2, 6, 0, 0)] * 2, (0, 0, 3, 5), (0, 0, 4, 4)),
        PROPOSED: confusion((5, 3, 0, 0), nothing, *[(6, 2, 0, 0)] * 2, nothing, nothing),
        "without-4": confusion(*[nothing] * 4, (0, 0, 7, 1), (0, 0, 1, 7)),
        "without-5": confusion(*[nothing] * 4, (0, 0, 1, 7), (0, 0, 8, 0)),
    }
    about = replace(about, taught=np.array([[9, 0]] * 4 + [[0, 7]] * 2))
    by_class = stranger_losses(replace(answers({}, [0, 0, 1, 1, 2, 2]), confusions=said), about).by_class
    assert by_class.windows.tolist() == [[8, 0], [0, 0], [8, 0], [8, 0], [0, 8], [0, 8]]
    assert by_class.taught.tolist() == about.taught.tolist()
    assert by_class.present.tolist() == [[1, 0], [0, 0], [2, 0], [2, 0], [0, 3], [0, 4]]
    assert by_class.proposed.tolist() == [[5, 0], [0, 0], [6, 0], [6, 0], [0, 7], [0, 8]]


def test_where_leaves_have_the_same_classes_losses_alone_are_stranger_losses():
    about = asking([0, 0], [ClusterChange("split", ((0, 1),), ((0,), (1,)))], models(2, 10.0))
    said = replace(answers({}, [0, 1]), confusions={PRESENT: confusion((4, 4, 4, 4), (3, 5, 2, 6))})
    apart, even = np.array([[9, 0], [0, 9]]), np.array([[5, 4], [4, 5]])
    assert stranger_losses(said, replace(about, taught=apart)).by_class is not None
    assert stranger_losses(said, replace(about, taught=even)).by_class is None
    assert stranger_losses(said, about).by_class is None  # nobody has counted
    assert stranger_losses(answers({}, [0, 1]), replace(about, taught=apart)).by_class is None  # no classes
    assert stranger_losses(said, replace(about, taught=apart[:, :0])).by_class is None


def test_answers_of_clients_have_their_confusions():
    counts = np.array([[3, 1], [0, 4]])
    replies = {
        4: {("a", "val"): Evaluation({CONFUSION: counts}, 0.5, 8)},
        7: {("a", "val"): Evaluation({CONFUSION: counts}, float("inf"), 8)},
    }
    found = collect_answers(replies, {4: 0, 5: 0, 7: 1}, {4: 8, 5: 8, 7: 8})
    assert found.confusions["a"].tolist() == [counts.tolist(), [[0, 0]] * 2, [[0, 0]] * 2]
