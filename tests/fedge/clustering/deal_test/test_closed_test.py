"""Closed tests of partitions: by hand, and how often they part what is one, in simulation."""

import tracemalloc
from itertools import combinations, product
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from fedge.clustering.deal_test.closed_test import (
    ClosedTest,
    DealTests,
    Weighted,
    joint_p,
    levels_of_groups,
    partitions_of,
)
from fedge.clustering.deal_test.cuts import MOST_LEAVES_FOR_ALL_CUTS
from fedge.clustering.deal_test.deals import deal_test, labels_after
from fedge.clustering.deal_test.reach import level_in_force, smallest_p_of_any_cut
from fedge.clustering.likeness.sketch import cosines
from fedge.metrics.agreement import agreement
from tests.fedge.clustering.deal_test.test_deals import alike


def drawn_tests(groups, clients, seed=0, between=2.0, draws=None, strata=None, noise=0.2):
    """Deal tests of leaves of which each group of leaves is a kind of people."""
    rng = np.random.default_rng(seed)
    leaf_of = np.repeat(np.arange(len(groups)), clients)
    kinds = np.eye(max(groups) + 1)[np.asarray(groups)[leaf_of]]
    types = np.concatenate([rng.normal(size=(len(leaf_of), 3)) * noise, between * kinds], axis=1)
    return DealTests(
        [alike(types, noise, rng)],
        leaf_of,
        lambda leaves: np.random.default_rng([seed, *leaves]),
        strata,
        draws,
    )


def found(groups, clients, level=0.01, **drawn):
    leaves = tuple(range(len(groups)))
    chain = ClosedTest(drawn_tests(groups, clients, **drawn), leaves, level).chain()
    return labels_after(chain, np.zeros(len(leaves), dtype=np.int64)).tolist(), chain


def test_partitions_are_counted_by_bells_numbers():
    items = [(k,) for k in range(6)]
    assert [sum(1 for _ in partitions_of(items[:k])) for k in range(7)] == [1, 1, 2, 5, 15, 52, 203]


@given(
    st.lists(st.tuples(st.floats(1e-4, 1), st.integers(1, 30)), min_size=1, max_size=5), st.floats(0.001, 0.2)
)
def test_shares_add_up_to_the_level_at_most(groups, level):
    floors, clients = zip(*groups, strict=True)
    found = levels_of_groups(floors, clients, level)
    if found is None:
        assert sum(floor for floor in floors if floor <= level) > level
        return
    assert sum(found) <= level * (1 + 1e-9) + 1e-12
    assert all(s >= f or s == 0 for s, f in zip(found, floors, strict=True))


def group_with(explained, actual):
    """Differences explained by a group's deals, and by the actual one of them."""
    return Weighted(float(explained[actual % len(explained)]), np.array(explained))


GROUPS = st.lists(
    st.tuples(st.lists(st.integers(-300, 2000), min_size=2, max_size=9), st.integers(0, 8)),
    min_size=1,
    max_size=4,
)


@given(GROUPS)
def test_groups_together_count_all_combinations(drawn):
    """Against every combination one by one; steps may only add to p."""
    tests = [group_with([number / 1000 for number in numbers], actual) for numbers, actual in drawn]
    sums = np.array([sum(each) for each in product(*(numbers for numbers, _ in drawn))])
    own = sum(numbers[actual % len(numbers)] for numbers, actual in drawn)
    step = sum(max(numbers) - min(numbers) for numbers, _ in drawn) / 2**14
    found = joint_p(tests)
    assert found >= (sums >= own).mean() - 1e-9
    assert found <= (sums >= own - (len(tests) + 1) * step - 1e-6).mean() + 1e-9


@given(GROUPS, st.floats(0.001, 0.3))
def test_groups_together_keep_their_level(drawn, level):
    """Of all combinations of actual deals, equally likely, at most the level's share is rejected."""
    numbers = [[each / 1000 for each in group] for group, _ in drawn]
    every = list(product(*(range(len(group)) for group in numbers)))
    rejected = sum(
        joint_p([group_with(*pair) for pair in zip(numbers, at, strict=True)]) <= level for at in every
    )
    assert rejected <= level * len(every) * (1 + 1e-9)


def test_a_group_alone_has_its_own_p_and_groups_that_explain_nothing_have_one():
    assert joint_p([group_with([0.3, 0.1, 0.2, 0.0], 0)]) == 0.25
    assert joint_p([group_with([0.2, 0.2], 0), group_with([0.0, 0.0, 0.0], 1)]) == 1.0


def test_a_group_of_one_kind_does_not_hide_the_difference_in_another():
    """{0 1}{2 3}, of which 0 and 1 are alike: of 35² combinations 35 have the best deal of 2 and 3."""
    closed = ClosedTest(drawn_tests([0, 0, 1, 2], 4), (0, 1, 2, 3), "auto")
    p, level = closed.result_of([(0, 1), (2, 3)])
    assert (p, level) == (pytest.approx(1 / 35, abs=1 / 35**2), 0.05)


def test_other_groups_tell_which_similarity_counts():
    """Two of three leaves differ as the third does, in one similarity; in another, another deal is better.

    Alone, the better deal of the second similarity hides the difference: 2 of 35. Beside the third leaf, from
    which the second similarity does not distinguish them, it does not.
    """
    leaf_of, groups = np.repeat(np.arange(3), 4), [(0, 1), (2,)]
    crossed = np.array([0, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0, 1])  # half of each leaf
    rng = np.random.default_rng(7)
    shown, other = (
        alike(np.concatenate([rng.normal(size=(12, 3)) * 0.5, size * np.eye(3)[kinds]], axis=1), 0.2, rng)
        for size, kinds in ((1.0, leaf_of), (2.0, crossed))
    )
    inner = np.ix_(leaf_of < 2, leaf_of < 2)
    alone = deal_test([shown[inner], other[inner]], leaf_of[leaf_of < 2], rng)
    tests = DealTests([shown, other], leaf_of, np.random.default_rng)
    assert (alone.p, tests.test((0, 1), groups).p) == (pytest.approx(2 / 35), pytest.approx(1 / 35))


@given(st.integers(0, 2**32))
def test_two_leaves_beside_others_have_a_p_that_is_exact(seed):
    """Whatever people are like: of all 35 deals of eight clients, at most k have a p of k / 35."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(2, 12, 5)) * rng.uniform(0.2, 2, size=(2, 1, 5))
    similarities = [cosines(each) for each in vectors]
    ps = []
    for others in combinations(range(1, 8), 3):
        leaf_of = np.repeat([1, 2], [8, 4])
        leaf_of[[0, *others]] = 0
        tests = DealTests(similarities, leaf_of, np.random.default_rng)
        ps.append(tests.test((0, 1), [(0, 1), (2,)]).p * 35)
    assert (np.sort(ps) >= np.arange(1, 36) - 1e-6).all()


@pytest.mark.parametrize(
    ("groups", "clients"),
    [
        ([0, 1, 2], 4),  # three single leaves
        ([0, 1, 2], 8),
        ([0, 1, 2, 3], 4),  # four
        ([0, 0, 0, 0, 1, 2], 4),  # 4 + 1 + 1
        ([0, 1, 2, 3, 4, 5], 4),  # all apart
        ([0, 0, 0, 1, 1, 1, 2, 2, 2], 3),  # three sources
        ([0, 1], 6),
        ([0, 1, 1, 1, 1, 1], 3),
        ([0, 0, 1, 1], 3),
        ([0, 0, 0, 0], 4),
    ],
)
def test_groups_of_any_number_are_found(groups, clients):
    labels, chain = found(groups, clients, "auto")
    assert labels == groups
    assert chain[0].level == level_in_force("auto", [clients] * len(groups))


def test_two_leaves_of_five_are_one_of_126_deals():
    labels, (test,) = found([0, 1], 5)
    assert (labels, test.p, test.deals, test.exact) == ([0, 1], 1 / 126, 126, True)
    assert found([0, 1], 4)[0] == [0, 0]  # one of 35 is no evidence at .01


def test_three_single_leaves_of_four_by_hand():
    """Any leaf is set apart in 35 of 5,775 deals: p = .006, at .01. Of the other two one deal of 35: .029.

    That is above .01, so the two are tested at .05 by "auto"; at .01 they stay together.
    """
    closed = ClosedTest(drawn_tests([0, 1, 2], 4), (0, 1, 2), "auto")
    p, level = closed.result_of([(0, 1, 2)])
    assert (p, level) == (pytest.approx(35 / 5775), 0.05)
    assert closed.result_of([(0, 1), (2,)]) == (pytest.approx(1 / 35), 0.05)
    assert [test.stands for test in closed.chain()] == [True, True]
    assert len(set(found([0, 1, 2], 4, 0.01)[0])) == 2


def test_partitions_of_pairs_are_tested_together():
    """Four single leaves of four clients: of {0 1}{2 3} the deal is the best of 35²."""
    closed = ClosedTest(drawn_tests([0, 1, 2, 3], 4), (0, 1, 2, 3), "auto")
    p, level = closed.result_of([(0, 1), (2, 3)])
    assert (p, level) == (pytest.approx(1 / 35**2), 0.05)
    assert closed.result_of([(0, 1), (2,), (3,)])[0] == pytest.approx(1 / 35)
    assert closed.result_of([(0,), (1,), (2,), (3,)])[0] == 1.0  # nothing to be tested


class Told:
    """p of every set of leaves, as a test says; all have ten clients."""

    def __init__(self, ps):
        self.ps = ps

    def test(self, group, partition):
        return SimpleNamespace(p=self.ps[group])

    def floor(self, group):
        return 0.001

    def clients(self, group):
        return 10 * len(group)


@pytest.mark.parametrize("kept", [(0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_a_p_of_the_level_rejects_and_others_are_looked_at(kept):
    """Level 0.05, p = 0.05 everywhere but at one set, which holds: it is the hardest."""
    ps = dict.fromkeys([(0, 1), (0, 2), (1, 2), (0, 1, 2)], 0.05)
    alone = [(0,), (1,), (2,)]
    assert ClosedTest(Told(ps), (0, 1, 2), 0.05).hardest(alone) == (0.05, 0.05)
    assert ClosedTest(Told({**ps, kept: 0.5}), (0, 1, 2), 0.05).hardest(alone) == (0.5, 0.05)


def test_a_group_that_cannot_be_rejected_takes_no_share():
    """Four groups of three leaves of three clients. Three leaves can have p = .036 at best: never at .01."""
    groups = (np.arange(12) // 3).tolist()
    labels, chain = found(groups, 3)
    assert labels == groups
    assert smallest_p_of_any_cut([3, 3, 3]) > 0.01
    assert [test.stands for test in chain] == [True, True, True, *[False] * (len(chain) - 3)]


def test_a_group_that_cannot_be_tested_is_not():
    """Two different leaves of one client each have one deal, which says nothing: they stay together."""
    tests = drawn_tests([0, 0, 1, 2], [4, 4, 1, 1], between=4.0)
    assert tests.floor((2, 3)) == 1
    chain = ClosedTest(tests, (0, 1, 2, 3), "auto").chain()
    assert [test.leaves for test in chain if tests.floor(test.leaves) == 1] == []


def test_the_first_of_many_leaves_is_found_alone():
    """Of more leaves than all cuts are tried for, where the cut goes on from the one that was tested."""
    groups = [0, *[1] * MOST_LEAVES_FOR_ALL_CUTS]
    labels, chain = found(groups, 3, draws=999)
    assert labels == groups
    assert chain[0].parts[0] == (0,)


def test_the_order_of_leaves_does_not_matter():
    one, other = found([0, 0, 1, 1, 2, 2], 4)[0], found([2, 1, 0, 2, 1, 0], 4)[0]
    assert one == [0, 0, 1, 1, 2, 2]
    assert other == [0, 1, 2, 0, 1, 2]


@pytest.mark.extended
@pytest.mark.parametrize(
    ("groups", "clients", "level"),
    [
        ([0] * 6, 3, 0.01),  # nothing is there, at a given level
        ([1, 0, 0, 0], 4, 0.05),  # three leaves that are one: four times their smallest p are .024
        ([0, 0, 0, 1, 1, 1], 4, 0.05),  # two groups of three: .012 together
    ],
)
def test_what_belongs_together_is_parted_no_more_often_than_the_level(groups, clients, level):
    """Of 200 runs, where no more are allowed than come by chance in all but one of 200."""
    given = "auto" if any(groups) else level
    closed = ClosedTest(drawn_tests(groups, clients), tuple(range(len(groups))), given)
    true = [tuple(at for at, g in enumerate(groups) if g == k) for k in {*groups}]
    assert closed.level_of([group for group in true if len(group) > 1]) == level
    wrong = 0
    for seed in range(200):
        drawn = {"seed": seed, "draws": 199, "noise": 0.5, "between": 4.0}
        labels, _ = found(groups, clients, given, **drawn)
        finer = all(
            len({g for g, mine in zip(groups, labels, strict=True) if mine == k}) == 1 for k in labels
        )
        wrong += finer and len(set(labels)) > len(set(groups))
    assert wrong <= binom.ppf(0.995, 200, level)


@pytest.mark.slow
@pytest.mark.extended
def test_sixty_four_leaves_in_bounded_memory():
    """Four groups of 16 leaves of two clients: found, in less than 200 MB however many deals.

    Deals that are worked out together hold at most 32 MB in one array, a few of which are there at a time.
    """
    leaf_of = np.repeat(np.arange(64), 2)
    groups = np.arange(64) % 4
    rng = np.random.default_rng(0)
    traits = rng.normal(size=(128, 8)) + 4 * np.eye(8)[groups[leaf_of]]
    tracemalloc.start()
    tests = DealTests([cosines(traits)], leaf_of, lambda leaves: np.random.default_rng(leaves), draws=399)
    chain = ClosedTest(tests, tuple(range(64)), 0.01).chain()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert agreement(groups, labels_after(chain, np.zeros(64, dtype=np.int64))).ari >= 0.95
    assert peak < 200e6
