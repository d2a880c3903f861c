"""The deal test: by hand, against brute force, and its level in simulation where it assumes nothing."""

from itertools import permutations
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.clustering.deal_test.cuts import without_client_effects
from fedge.clustering.deal_test.deals import (
    DealTest,
    _least_likely_cut,
    _statistic,
    deal_test,
    labels_after,
)
from fedge.clustering.deal_test.reach import smallest_p
from fedge.clustering.likeness.updates import size_strata


def alike(types, noise, rng):
    """Cosines of vectors that are a client's type and noise, less the mean of all: (K, K)."""
    x = np.concatenate([types, rng.normal(0, noise, (len(types), 40))], axis=1)
    x = x - x.mean(axis=0)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x @ x.T


def block_similarity(leaf_of, group_of_leaf):
    """1 for clients of one group, 0 else."""
    group = np.asarray(group_of_leaf)[leaf_of]
    return (group[:, None] == group).astype(float)


def test_smallest_p_is_what_a_leaf_that_differs_entirely_gets():
    for sizes in ([3, 3, 3], [4, 4, 4], [3, 3, 3, 3], [2, 2, 2, 2], [2, 3, 4]):
        leaf_of = np.repeat(np.arange(len(sizes)), sizes)
        odd = 0
        similarity = block_similarity(leaf_of, [leaf == odd for leaf in range(len(sizes))])
        labels, _, p, deals, exact, *_ = deal_test(
            [similarity], leaf_of, np.random.default_rng(0), draws=99_999
        )
        assert exact == (deals <= 6000)
        assert (labels != labels[odd]).sum() == len(sizes) - 1
        if len(set(sizes)) == 1:
            assert p == pytest.approx(smallest_p(sizes), rel=0.1 if not exact else 1e-12)
    assert smallest_p([2] * 10) == pytest.approx(1 / 19)


def test_p_and_statistic_by_brute_force():
    """Seven clients at leaves of 2, 2 and 3: every permutation of the clients, the formula written out."""
    rng = np.random.default_rng(5)
    leaf_of = np.array([0, 2, 1, 2, 0, 1, 2])
    similarity = alike(rng.normal(size=(7, 3)), 0.5, rng)
    pairs = without_client_effects(similarity)
    upper = np.triu(np.ones((7, 7), dtype=bool), 1)
    cuts = [[True, False, False], [False, True, False], [False, False, True]]

    def differences(deal):
        values = []
        for cut in cuts:
            side = np.asarray(cut)[deal]
            within = upper & (side[:, None] == side)
            between = upper & (side[:, None] != side)
            values.append(pairs[within].mean() - pairs[between].mean())
        return values

    deals = sorted({tuple(leaf_of[list(order)]) for order in permutations(range(7))})
    found = np.array([differences(np.array(deal)) for deal in deals])
    # each over the standard deviation of its own null: that of cuts which set as many clients apart
    scaled = found / np.array([sqrt((found[:, q] ** 2).mean()) for q in range(3)])
    best = scaled.max(axis=1)  # three leaves: every cut parts one leaf
    best = (best - best.mean()) / best.std()
    observed = best[deals.index(tuple(leaf_of))]
    expected = (best >= observed - 1e-9).mean()
    labels, statistic, p, _, exact, *_ = deal_test([similarity], leaf_of, rng)
    assert exact
    assert (statistic, p) == (pytest.approx(observed), pytest.approx(expected))
    assert (labels != labels[int(scaled[deals.index(tuple(leaf_of))].argmax())]).sum() == 2


@given(st.integers(0, 2**32))
def test_names_of_clients_and_leaves_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    leaf_of = np.repeat(np.arange(3), 3)
    similarity = alike(rng.normal(size=(9, 2)), 0.5, rng)
    labels, statistic, p, *_ = deal_test([similarity], leaf_of, rng)
    order, names = rng.permutation(9), rng.permutation(3)
    other = deal_test([similarity[np.ix_(order, order)]], names[leaf_of][order], rng)
    assert (other[1], other[2]) == (pytest.approx(statistic), p)
    assert (labels[:, None] == labels).tolist() == (other[0][names][:, None] == other[0][names]).tolist()


def test_several_similarities_take_the_one_that_sees():
    """One similarity may show groups that another hides; noise beside it costs a little."""
    rng = np.random.default_rng(1)
    leaf_of = np.repeat(np.arange(6), 4)
    noise = alike(rng.normal(size=(24, 2)), 0.5, rng)
    shown = block_similarity(leaf_of, [1, 0, 0, 0, 0, 0]) + 0.1 * noise
    labels, _, p, *_ = deal_test([noise, shown], leaf_of, rng)
    assert labels.tolist() == [0, 1, 1, 1, 1, 1]
    assert p <= 0.002


def test_a_leaf_that_stands_out_in_one_similarity_does_not_hide_groups_in_another():
    """Three groups of three leaves; and a similarity in which three clients of leaf 0 are like nobody else.

    Parting leaf 0 by the second is more standard deviations above the mean of the deals than parting a group
    by the first, and as many deals as set these three clients apart reach it: 9 of C(27, 3). Parting a group
    from the rest is reached by none. That there are two similarities makes p twice as large at most.
    """
    rng = np.random.default_rng(4)
    leaf_of = np.repeat(np.arange(9), 3)
    groups = np.arange(9) // 3
    shown = alike(rng.normal(size=(27, 3)) * 0.55 + np.eye(3)[groups[leaf_of]], 0.3, rng)
    odd = block_similarity(leaf_of, [1] + [0] * 8) + 0.02 * alike(rng.normal(size=(27, 2)), 0.5, rng)
    labels = deal_test([shown, odd], leaf_of, rng)[0]
    p = deal_test([shown, odd], leaf_of, rng, draws=9999)[2]
    alone = deal_test([odd], leaf_of, rng, draws=9999)
    assert alone[0].tolist() == [0] + [1] * 8
    assert alone[2] == pytest.approx(9 / comb(27, 3), rel=0.5)
    assert p <= 2.2 * alone[2] <= 0.01
    assert len({(a, b) for a, b in zip(groups.tolist(), labels.tolist(), strict=True)}) == 3


@given(st.integers(0, 2**32), st.integers(1, 3))
def test_the_cut_is_of_the_similarity_in_which_fewest_deals_reach_it(seed, kinds):
    rng = np.random.default_rng(seed)
    separation = rng.normal(size=(40, kinds, 2))
    standing = (separation - separation[1:].mean(axis=0)) / separation[1:].std(axis=0)
    deviations = standing[0]
    kind, size = _least_likely_cut(separation, standing, 1)
    reached = (separation[1:] >= separation[0]).sum(axis=0)
    assert deviations[kind, size] == deviations[kind].max()
    assert all(reached[kind, size] <= reached[k, deviations[k].argmax()] for k in range(kinds))


@given(st.integers(0, 2**32), st.integers(1, 3))
def test_the_statistic_is_the_fewest_deals_that_reach_and_then_what_is_explained(seed, kinds):
    rng = np.random.default_rng(seed)
    height, explained = rng.normal(size=(2, 12, kinds))
    least, share = _statistic(height, explained, 1)
    counts = (height[1:] >= height[:, None]).sum(axis=1)  # (D, M)
    assert least.tolist() == counts.min(axis=1).tolist()
    for deal in range(12):
        equal = np.flatnonzero(counts[deal] == counts[deal].min())
        assert share[deal] == explained[deal, equal].max()


def test_of_two_cuts_that_no_other_deal_reaches_the_clearer_one_counts():
    """Two leaves of four, told apart by one similarity; in the other a deal of its own is the best of 35.

    Both are the best of their similarity, so only what they explain tells them apart: p is 1/35 and not 2/35.
    """
    leaf_of, rng = np.repeat([0, 1], 4), np.random.default_rng(3)
    noise = alike(rng.normal(size=(8, 3)), 0.5, rng)
    shown = block_similarity(leaf_of, [0, 1]) + 0.05 * alike(rng.normal(size=(8, 2)), 0.5, rng)
    assert deal_test([noise], leaf_of, rng)[2] > 1 / 35
    for similarities in ([noise, shown], [shown, noise]):
        assert deal_test(similarities, leaf_of, rng)[2] == pytest.approx(1 / 35)


@pytest.mark.whole_runs  # seconds of simulation
@pytest.mark.extended
def test_many_leaves_are_cut_where_they_differ():
    """Sixty-four leaves of two clients, half of another kind, then one alone: candidates find both."""
    rng = np.random.default_rng(2)
    leaf_of = np.repeat(np.arange(64), 3)
    for groups in (np.arange(64) % 2, np.arange(64) == 7):
        types = rng.normal(size=(192, 3)) * 0.1 + 3 * np.asarray(groups)[leaf_of][:, None] * [1, 0, 0]
        labels, _, p, deals, exact, *_ = deal_test([alike(types, 0.2, rng)], leaf_of, rng, draws=199)
        assert (labels == labels[0]).tolist() == (groups == groups[0]).tolist()
        assert (p, deals, exact) == (1 / 200, 200, False)


def test_one_cut_has_a_p_of_its_own():
    """Three leaves of four: leaf 2 differs. The cut of leaf 0 is not what was found, and has a larger p."""
    leaf_of = np.repeat(np.arange(3), 4)
    rng = np.random.default_rng(4)
    types = rng.normal(size=(12, 3)) * 0.2 + 2 * (leaf_of == 2)[:, None] * [1, 0, 0]
    similarity = [alike(types, 0.2, rng)]
    labels, statistic, p, *_ = deal_test(similarity, leaf_of, rng)
    found = deal_test(similarity, leaf_of, rng, cut=labels == 1)
    assert (found[0].tolist(), found[1:3]) == (labels.tolist(), (statistic, p))
    assert p == 3 / comb(12, 4)
    assert deal_test(similarity, leaf_of, rng, cut=np.array([True, False, False]))[2] > 0.2


def test_a_leaf_of_large_clients_alone_is_no_evidence():
    """All clients of leaf 0 are large, and alike for that: no deal changes them."""
    rng, leaf_of = np.random.default_rng(5), np.repeat(np.arange(3), 4)
    types = rng.normal(size=(12, 3)) * 0.2 + 2 * (leaf_of == 0)[:, None] * [1, 0, 0]
    similarity = [alike(types, 0.2, rng)]
    assert deal_test(similarity, leaf_of, rng)[2] < 0.01
    assert deal_test(similarity, leaf_of, rng, strata=size_strata(np.where(leaf_of == 0, 900, 100)))[2] > 0.05


@pytest.mark.parametrize(
    ("windows", "strata"),
    [
        ([100] * 5, [0] * 5),
        ([72, 100, 100, 141], [0, 0, 0, 0]),  # within a factor of √2 of the median
        ([100, 100, 100, 200, 200], [0, 0, 0, 1, 1]),
        ([100, 100, 100, 500, 1500], [0, 0, 0, 2, 4]),
        ([0, 10, 10], [-3, 0, 0]),
    ],
)
def test_strata_of_size_by_hand(windows, strata):
    assert size_strata(np.array(windows)).tolist() == strata


def test_a_cut_that_does_not_stand_changes_nothing():
    test = DealTest((0, 1, 2), ((0,), (1, 2)), 1.0, 0.2, 0.05, 280, True)
    assert labels_after([test], np.zeros(3, dtype=np.int64)).tolist() == [0, 0, 0]


def test_pairs_that_do_not_differ_say_nothing():
    labels, statistic, p, *_ = deal_test(
        [np.ones((9, 9))], np.repeat(np.arange(3), 3), np.random.default_rng(0)
    )
    assert (statistic, p) == (0.0, 1.0)
    assert len(labels) == 3


@pytest.mark.parametrize("leaf_of", [[0, 0, 0, 0, 0, 0], [0, 1, 2], [0, 0, 0, 2, 2, 2]])
def test_too_little_for_a_test_is_refused(leaf_of):
    leaf_of = np.array(leaf_of)
    with pytest.raises(ValueError, match="deal test needs 2 leaves"):
        deal_test([np.eye(len(leaf_of))], leaf_of, np.random.default_rng(0))


def people(kind, count, rng):
    """(K, 3) types of people, drawn without regard to leaves."""
    if kind == "heavy":
        return rng.standard_t(3, size=(count, 3)) / sqrt(3)
    types = rng.normal(size=(count, 3)) * (0.7 if kind == "odd" else 1.0)
    if kind == "odd":  # a fifth of them of another kind
        types[rng.random(count) < 0.2, 0] += 3
    return types


@pytest.mark.whole_runs  # seconds of simulation
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        ("odd", [3, 3, 3]),
        ("heavy", [4] * 4),
        ("normal", [3] * 6),
        pytest.param("odd", [2] * 10, marks=pytest.mark.extended),
        ("heavy", [1, 2, 3, 4, 5]),
    ],
)
def test_the_level_holds_whatever_people_are_like(kind, sizes):
    """P(p ≤ .05) and P(p ≤ .01) are no larger than that in 300 nulls, but for chance.

    If they were as large, more than 27 and more than 10 had chances of 1 in 1,000 and 1 in 3,000.
    """
    ps = null_p_values(kind, sizes, 300)
    assert (ps <= 0.05).sum() <= 27
    assert (ps <= 0.01).sum() <= 10


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["normal", "heavy", "odd"])
@pytest.mark.parametrize("sizes", [[3] * 3, [4] * 4, [3] * 6, [5] * 6, [2] * 10, [3] * 12, [1, 2, 3, 4, 5]])
def test_the_level_holds_in_a_thousand_nulls(kind, sizes, capsys):
    ps = null_p_values(kind, sizes, 1000)
    with capsys.disabled():
        found = [int((ps <= level).sum()) for level in (0.01, 0.05)]
        print(f"\n{kind} {sizes}: p <= .01 in {found[0]}, p <= .05 in {found[1]} of 1,000")
    assert (ps <= 0.01).sum() <= 15


def null_p_values(kind, sizes, many):
    """p of `many` draws of people who are dealt to leaves by chance, with two similarities each."""
    leaf_of = np.repeat(np.arange(len(sizes)), sizes)
    ps = []
    for seed in range(many):
        rng = np.random.default_rng([seed, len(sizes), 3])
        first, second = (alike(people(kind, len(leaf_of), rng), 0.5, rng) for _ in range(2))
        ps.append(deal_test([first, second], leaf_of, rng, draws=199)[2])
    return np.array(ps)
