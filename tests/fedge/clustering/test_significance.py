"""The client sign-flip test."""

from functools import partial

import numpy as np
import pytest

from fedge.clustering.hierarchical import cut, joined
from fedge.clustering.significance import CutTest, cut_test, divide, labels_after, separation

AVERAGE = partial(joined, linkage_="average", count=2)


def planted(groups, strength, seed, per_leaf=4):
    """Relationships of clients who differ by themselves (std 1) and by group, and their leaves."""
    rng = np.random.default_rng(seed)
    groups = np.array(groups)
    leaf_of = np.repeat(np.arange(len(groups)), per_leaf)
    found = rng.normal(size=(len(groups), len(leaf_of)))
    found += strength * (groups[:, None] != groups[leaf_of])
    own = np.arange(len(groups))[:, None] == leaf_of
    return np.where(own, 0.0, found), leaf_of


def test_separation_by_hand():
    """Within pairs 1 and 3, between 0, 0, 2, 2: (2 − 1) / √(1/2 + 1/4)."""
    similarity = np.array([[9, 1, 0, 2], [1, 9, 2, 0], [0, 2, 9, 3], [2, 0, 3, 9]], float)
    assert separation(similarity, np.array([0, 0, 1, 1])) == pytest.approx(1 / np.sqrt(0.75))


def test_nothing_within_or_between_is_no_separation():
    assert separation(np.eye(3), np.array([0, 1, 2])) == -np.inf
    assert separation(np.eye(3), np.array([0, 0, 0])) == -np.inf


@pytest.mark.parametrize("bisect", [AVERAGE, partial(cut, count=2)])
def test_groups_are_found(bisect):
    for seed in range(3):
        relationships, leaf_of = planted([0, 1, 1, 0, 1, 0], 2.0, seed)
        labels, _, p = cut_test(relationships, leaf_of, bisect, np.random.default_rng(seed))
        assert labels.tolist() == [0, 1, 1, 0, 1, 0]
        assert p == 0.001


@pytest.mark.slow
def test_without_groups_p_is_uniform():
    """Of 60 draws about 60 · x lie below x; 18 or more below 0.1 would happen once in 200,000 times."""
    found = [
        cut_test(*planted([0] * 5, 0.0, seed, per_leaf=3), AVERAGE, np.random.default_rng(seed), draws=99)[2]
        for seed in range(60)
    ]
    assert np.sum(np.array(found) <= 0.1) < 18
    assert 0.35 < np.mean(found) < 0.65


def test_people_who_differ_much_are_no_groups():
    """One client per leaf whom only some models suit: large relationships, but no agreement in any leaf."""
    relationships, leaf_of = planted([0] * 6, 0.0, 1)
    relationships[:, ::4] *= 20
    assert cut_test(relationships, leaf_of, AVERAGE, np.random.default_rng(0))[2] > 0.05


def test_three_groups_come_apart_in_two_cuts():
    relationships, leaf_of = planted([0, 1, 2] * 4, 4.0, 0)

    def among(leaves):
        keep = np.isin(leaf_of, leaves)
        return relationships[list(leaves)][:, keep], np.searchsorted(leaves, leaf_of[keep])

    tests = divide(among, tuple(range(12)), AVERAGE, 0.01, np.random.default_rng(0))
    assert sorted(test.p <= 0.01 for test in tests) == [False] * (len(tests) - 2) + [True, True]
    assert labels_after(tests, np.zeros(12, np.int64), 0.01).tolist() == [0, 1, 2] * 4
    strict = labels_after(tests, np.zeros(12, np.int64), 0.0)
    assert strict.tolist() == [0] * 12


def test_fewer_than_four_leaves_are_not_tested():
    assert divide(lambda _: pytest.fail("asked"), (0, 1, 2), AVERAGE, 0.01, np.random.default_rng(0)) == []


def test_leaves_that_cannot_be_told_apart_stay_together():
    """All equal: every draw from the null is as good as what was found."""
    leaf_of = np.repeat(np.arange(4), 2)
    flat = (np.zeros((4, 8)), leaf_of)
    (test,) = divide(lambda _: flat, (0, 1, 2, 3), AVERAGE, 0.5, np.random.default_rng(0))
    assert test.p == 1.0
    assert labels_after([test], np.zeros(4, np.int64), 0.5).tolist() == [0] * 4


def test_labels_of_nested_cuts():
    """{0..5} into {0 1 2 3} and {4 5}, then {0 1} and {2 3}; a cut above the level does not count."""
    tests = [
        CutTest((0, 1, 2, 3, 4, 5), ((4, 5), (0, 1, 2, 3)), 1.0, 0.001),
        CutTest((0, 1, 2, 3), ((0, 3), (1, 2)), 1.0, 0.01),
        CutTest((4, 5), ((4,), (5,)), 1.0, 0.02),
    ]
    assert labels_after(tests, np.zeros(6, np.int64), 0.01).tolist() == [0, 1, 1, 0, 2, 2]
    assert tests[0].to_json() == {
        "leaves": [0, 1, 2, 3, 4, 5], "parts": [[4, 5], [0, 1, 2, 3]], "statistic": 1.0, "p": 0.001,
    }  # fmt: skip
