"""The cloud's groups by the deal test: results, what asks for a new one, what is adopted and averaged."""

import json
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedge.cloud.tested_groups import DealtGroups, _draw_orders
from fedge.clustering.likeness.evidence import Answers
from fedge.clustering.likeness.updates import Likeness
from fedge.clustering.memberships.strangers import PRESENT, PROPOSED
from fedge.config.sections.cluster import ClusterConfig

CONFIG = ClusterConfig(signal="affinity", method="agglomerative", count="auto", patience=2)
WHERE = (0, 1)


def likeness(groups, clients=3, seed=0):
    leaf_of = np.repeat(np.arange(len(groups)), clients)
    group = np.asarray(groups)[leaf_of]
    noise = np.random.default_rng(seed).normal(0, 0.01, (len(leaf_of), len(leaf_of)))
    return Likeness(((group[:, None] == group) + noise + noise.T)[None], leaf_of, 1)


def models(leaves, first=0.0):
    return [{"w": np.array([first + leaf])} for leaf in range(leaves)]


def step(dealt, leaves, loss=lambda role, leaf: 1.0, forks=(), folds=None):
    """Ask, answer by `loss` of role and leaf, and settle; three clients a leaf."""
    asked = dealt.ask(models(leaves), [1.0] * leaves, forks, folds or {}, WHERE)
    leaf_of = np.repeat(np.arange(leaves), 3)
    roles = {role for mine in asked for role in mine}
    losses = {
        role: np.array([loss(role, leaf) if role in asked[leaf] else np.nan for leaf in leaf_of])
        for role in roles
    }
    answers = Answers(losses, np.full(len(leaf_of), 9), leaf_of, clients=np.arange(len(leaf_of)))
    return dealt.settle(answers if losses else None, leaves)


def better(role, leaf):
    """Losses of which what is proposed is the smallest."""
    return {PRESENT: 1.0, PROPOSED: 0.5}.get(role, 2.0)


def test_groups_of_three_are_found_one_cut_after_the_other():
    """Three groups of two leaves: a cut found in step 1, tried in 2, the next one tried at once in 3."""
    dealt = DealtGroups(CONFIG)
    groups = [0, 0, 1, 1, 2, 2]
    dealt.record_updates(likeness(groups, clients=6), 0)
    labels, _ = step(dealt, 6)
    assert labels.tolist() == [0] * 6
    assert [len(change.after) for change in dealt.proposals.on_trial] == [2]
    labels, facts = step(dealt, 6, better, models(6, 10.0))
    assert labels.max() == 1
    assert [trial["useful"] for trial in facts["trials"]] == [True]
    labels, _ = step(dealt, 6, better, models(6, 10.0))
    assert labels.tolist() == groups
    assert not dealt.proposals.agreed
    step(dealt, 6)
    assert not dealt.is_open


def test_what_is_averaged_after_a_split_are_its_forks():
    dealt = DealtGroups(CONFIG)
    dealt.record_updates(likeness([0, 0, 0, 1, 1, 1]), 0)
    step(dealt, 6)
    starts = dealt.forks(models(6), [1.0] * 6)
    assert [float(start["w"][0]) for start in starts] == pytest.approx([1.0] * 3 + [4.0] * 3)
    step(dealt, 6, better, models(6, 10.0))
    states, weights = dealt.cluster_models(models(6), [1.0] * 6)
    assert [float(state["w"][0]) for state in states] == [10, 11, 12, 13, 14, 15]
    assert weights == [1.0] * 6


def test_equal_updates_ask_nothing_anew():
    """A probe of clients whose data are as before: the result stands as it was, reached or not."""
    dealt = DealtGroups(CONFIG)
    dealt.record_updates(likeness([0] * 6), 0)
    step(dealt, 6)
    assert not dealt.is_open
    before = dealt.tests
    dealt.record_updates(likeness([0] * 6), 0)
    assert dealt.tests is before
    assert not dealt.is_open
    dealt.record_updates(likeness([0] * 6, seed=1), 0)
    assert dealt.tests is not before
    assert dealt.is_open


@pytest.mark.parametrize("clusters", [1, 2, 3, 4])
def test_which_clusters_are_asked_first_is_drawn(clusters):
    """Over fifty rounds every order of the others comes up, of two as of three."""
    labels = np.arange(clusters)
    drawn = [_draw_orders(labels, 7, global_round) for global_round in range(1, 51)]
    for leaf in range(clusters):
        others = [k for k in range(clusters) if k != leaf]
        assert {tuple(orders[leaf]) for orders in drawn} == set(permutations(others))


def test_a_jump_by_hand():
    """Leaf 1's two clients rise by e^0.3 and e^0.1, 0.2 on average; leaf 0's fall."""
    leaf_of = {0: 0, 1: 1, 2: 1}
    for limit, expected in ((0.19, [1]), (0.21, []), (0.0, [])):
        dealt = DealtGroups(ClusterConfig(**{**vars(CONFIG), "watch": limit}))
        dealt.watch({0: 1.0, 1: 1.0, 2: 1.0}, leaf_of)
        assert dealt.jumped == []
        dealt.watch({0: 0.5, 1: np.exp(0.3), 2: np.exp(0.1)}, leaf_of)
        assert dealt.jumped == expected


def test_a_leaf_that_moves_takes_its_new_clusters_model_as_it_is():
    """Leaf 2 is of cluster 0 and does better with cluster 1's model: two steps, no forks."""
    dealt = DealtGroups(CONFIG)
    dealt.proposals.labels = np.array([0, 0, 0, 1, 1])
    step(dealt, 5, better)

    def loss(role, leaf):
        return 0.3 if leaf == 2 and role in ("cluster-1", PROPOSED) else {PRESENT: 1.0}.get(role, 2.0)

    for _ in range(3):  # models are young, then it must be found twice
        labels, _ = step(dealt, 5, loss)
        assert labels.tolist() == [0, 0, 0, 1, 1]
    assert dealt.forks(models(5), [1.0] * 5) == [None] * 5
    labels, _ = step(dealt, 5, loss)
    assert labels.tolist() == [0, 0, 1, 1, 1]
    assert dealt.cluster_models(models(5), [1.0] * 5)[1] == [1.0, 1.0, 0.0, 1.0, 1.0]


def test_a_leaf_whose_loss_has_jumped_moves_at_once():
    dealt = DealtGroups(CONFIG)
    dealt.proposals.labels = np.array([0, 0, 0, 1, 1])
    leaf_of = dict(enumerate(np.repeat(np.arange(5), 3).tolist()))
    dealt.watch(dict.fromkeys(leaf_of, 1.0), leaf_of)
    dealt.watch({client: 1.0 + (leaf == 2) for client, leaf in leaf_of.items()}, leaf_of)
    assert dealt.jumped == [2]
    loss = lambda role, leaf: 0.3 if leaf == 2 and role != PRESENT else {PRESENT: 1.0}.get(role, 2.0)  # noqa: E731
    assert [step(dealt, 5, loss)[0].tolist() for _ in range(2)] == [[0, 0, 0, 1, 1], [0, 0, 1, 1, 1]]


def test_clusters_that_are_as_good_for_each_other_become_one():
    dealt = DealtGroups(CONFIG)
    dealt.proposals.labels = np.array([0, 0, 1, 1])
    alike = lambda role, leaf: {PRESENT: 1.0, PROPOSED: 1.02}.get(role, 1.01)  # noqa: E731
    for _ in range(4):
        assert step(dealt, 4, alike)[0].tolist() == [0, 0, 1, 1]
    assert step(dealt, 4, alike, models(4))[0].tolist() == [0] * 4
    apart = DealtGroups(CONFIG)
    apart.proposals.labels = np.array([0, 0, 1, 1])
    for _ in range(6):
        labels, _ = step(apart, 4, lambda role, leaf: {PRESENT: 1.0}.get(role, 1.2), models(4))
        assert labels.tolist() == [0, 0, 1, 1]


def test_forks_of_a_useful_split_train_on_while_a_part_loses():
    """Leaves 3 to 5 lose 1.2 / 1 by a split that the others gain much by; then they gain, and it counts."""
    dealt = DealtGroups(CONFIG)
    dealt.record_updates(likeness([0, 0, 0, 1, 1, 1]), 0)
    step(dealt, 6)

    def young(role, leaf):
        return {PRESENT: 1.0, PROPOSED: 0.5 if leaf < 3 else 1.2}.get(role, 2.0)

    labels, facts = step(dealt, 6, young, models(6, 10.0))
    assert (labels.max(), facts["trials"][0]["useful"]) == (0, True)
    assert float(dealt.forks(models(6), [1.0] * 6)[0]["w"][0]) == 11  # of forks 10, 11, 12
    labels, _ = step(dealt, 6, better, models(6, 20.0))
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_doubts_do_not_last():
    """One part goes on losing: the third trial decides by the mean of both."""
    dealt = DealtGroups(CONFIG)
    dealt.record_updates(likeness([0, 0, 0, 1, 1, 1]), 0)
    step(dealt, 6)
    losses = {PRESENT: 1.0}

    def loss(role, leaf):
        return losses.get(role, (0.5 if leaf < 3 else 1.2) if role == PROPOSED else 2.0)

    found = [step(dealt, 6, loss, models(6, 10.0))[0].max() for _ in range(3)]
    assert found == [0, 0, 1]


def beside(place):
    """The likeness of leaves 0, 1 and 3, 4, 5, which are two groups, and of leaf 2 between them."""
    alike = likeness([0, 0, 0, 1, 1, 1], clients=6)
    x = np.array([0, 0, place, 1, 1, 1])[alike.leaf_of]
    return Likeness(alike.cosines - np.abs(x[:, None] - x)[None], alike.leaf_of, 1)


@pytest.mark.parametrize(("place", "stands"), [(0.005, True), (None, False)])
def test_a_leaf_on_the_wrong_side_is_put_right_only_if_that_cut_stands_too(place, stands):
    """Leaf 2 was put beside 0 and 1; its clients go on doing far better with the other's forks.

    Where its updates are nearly as much like the others', so is the test of that cut. Else what is adopted
    is what was tested.
    """
    dealt = DealtGroups(CONFIG)
    plain = likeness([0, 0, 0, 1, 1, 1])
    dealt.record_updates(beside(place) if stands else plain, 0)
    step(dealt, 6)

    def loss(role, leaf):
        if leaf == 2 and role == PROPOSED:
            return 0.9
        return better(role, leaf) if leaf != 2 or role == PRESENT else 0.2

    for _ in range(2):  # while its forks are young that may be for lack of training
        labels, facts = step(dealt, 6, loss, models(6, 10.0))
        assert labels.max() == 0
    labels, facts = step(dealt, 6, loss, models(6, 10.0))
    assert labels.tolist() == ([0, 0, 1, 1, 1, 1] if stands else [0, 0, 0, 1, 1, 1])
    assert facts.get("misplaced") == ([2] if stands else None)
    assert dealt.tests[0].stands
    if stands:
        for _ in range(3):  # and the result does not fetch it back
            settled = step(dealt, 6, lambda role, leaf: 1.0 if role == PRESENT else 2.0)[0]
            assert settled.tolist() == labels.tolist()


@pytest.mark.parametrize("tempted", [(0, 1), (4, 5)])
def test_leaves_of_a_group_to_come_stay_where_their_own_group_is_cut_off(tempted):
    """Three groups of two leaves: the first cut leaves two of them together, in a model of both.

    The pure model opposite is better for one of these groups. It is not on the wrong side: the next cut gives
    it a model of its own.
    """
    dealt = DealtGroups(CONFIG)
    dealt.record_updates(likeness([0, 0, 1, 1, 2, 2], clients=6), 0)
    cuts = [test.parts for test in dealt.tests if test.stands]
    assert cuts == [((0, 1, 4, 5), (2, 3)), ((0, 1), (4, 5))]
    step(dealt, 6)

    def loss(role, leaf):
        if leaf in tempted and dealt.proposals.labels.max() == 0:
            return {PRESENT: 1.0, PROPOSED: 0.9}.get(role, 0.2)
        return better(role, leaf)

    seen = [step(dealt, 6, loss, models(6, 10.0)) for _ in range(5)]
    assert seen[-1][0].tolist() == [0, 0, 1, 1, 2, 2]
    assert not any("misplaced" in facts for _, facts in seen)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 99), st.booleans())
def test_all_of_it_survives(seed, useful):
    """After any step a copy that was restored goes on as the original does."""
    dealt = DealtGroups(CONFIG)
    dealt.record_updates(likeness([0, 0, 1, 1, 2, 2], clients=4, seed=seed), 0)
    loss = better if useful else (lambda role, leaf: 1.0)
    for _ in range(4):
        copy = DealtGroups(CONFIG)
        copy.restore(dealt.likeness, json.loads(json.dumps(dealt.facts())))
        found = [step(each, 6, loss, models(6, 10.0)) for each in (dealt, copy)]
        assert found[0][0].tolist() == found[1][0].tolist()
        assert found[0][1] == found[1][1]
        assert dealt.facts() == copy.facts()


def test_watched_losses_survive():
    """The first round after a stop still sees whose loss has jumped."""
    dealt, copy = DealtGroups(CONFIG), DealtGroups(CONFIG)
    leaf_of = {0: 0, 1: 0, 2: 1}
    dealt.watch({0: 1.0, 1: 1.0, 2: 1.0}, leaf_of)
    copy.restore(None, json.loads(json.dumps(dealt.facts())))
    for each in (dealt, copy):
        each.watch({0: 2.0, 1: 2.0, 2: 1.0}, leaf_of)
        assert each.facts()["changed"] == [0]


@pytest.mark.slow
@pytest.mark.parametrize("leaves", [3, pytest.param(6, marks=pytest.mark.extended)])
def test_simulated_nulls_split_no_more_often_than_the_level(leaves):
    """People who differ and leaves that mean nothing, every trial useful: at most the level's share splits.

    200 runs at level .05: 10 expected, 18 are four in a thousand.
    """
    config = ClusterConfig(**{**vars(CONFIG), "level": 0.05})
    split = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        traits = rng.normal(size=(leaves * 3, 4))
        cosines = traits @ traits.T + 0.3 * (noise := rng.normal(size=(leaves * 3,) * 2)) + 0.3 * noise.T
        dealt = DealtGroups(config)
        dealt.record_updates(Likeness(cosines[None], np.repeat(np.arange(leaves), 3), 1), seed)
        for _ in range(3):
            labels, _ = step(dealt, leaves, better, models(leaves, 10.0))
        split += bool(labels.any())
    assert split <= 18
