"""Ways to deal clients to leaves, by hand and against the number that there are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedge.clustering.deal_test.dealing import all_deals, deals_of


def test_every_deal_by_hand():
    """Two leaves of two: clients 0 and 1, 2, or 3 together. A leaf of one and one of two: who is alone."""
    assert {tuple(d) for d in all_deals([2, 2])} == {(0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 0)}
    assert {tuple(d) for d in all_deals([2, 1])} == {(1, 0, 0), (0, 1, 0), (0, 0, 1)}
    assert len(all_deals([3, 3, 3])) == 280
    assert len(all_deals([2, 2, 3])) == 105
    assert all_deals([5] * 6) is None


@given(st.lists(st.integers(1, 3), min_size=2, max_size=4).filter(lambda sizes: sum(sizes) < 9))
def test_deals_are_distinct_and_of_the_sizes(sizes):
    deals = all_deals(sizes)
    assert all((np.bincount(deal, minlength=len(sizes)) == sizes).all() for deal in deals)
    partitions = {
        frozenset(frozenset(np.flatnonzero(deal == leaf)) for leaf in range(len(sizes))) for deal in deals
    }
    assert len(partitions) == len(deals)


def test_deals_inside_of_strata_by_hand():
    """Leaf 0 has clients of strata 0 and 1, leaf 1 two of stratum 0 and one of 1, leaf 2 two of stratum 1.

    Stratum 0: one client to leaf 0 of three, the others to leaf 1. Stratum 1: 4! / 2! ways.
    """
    leaf_of, strata = np.array([0, 0, 1, 1, 1, 2, 2]), np.array([0, 1, 0, 0, 1, 1, 1])
    deals, exact = deals_of(leaf_of, strata, np.random.default_rng(0), 99)
    assert (len(deals) - 1, exact) == (3 * 12, True)
    assert deals[0].tolist() == leaf_of.tolist()
    assert len({tuple(deal) for deal in deals}) == 36
    for deal in deals:
        assert all(sorted(deal[strata == k]) == sorted(leaf_of[strata == k]) for k in (0, 1))


def test_deals_that_are_drawn_are_of_the_same_clients():
    """Six leaves of five have too many deals: fewer are drawn, none of other sizes, some that differ."""
    leaf_of = np.repeat(np.arange(6), 5)
    deals, exact = deals_of(leaf_of, None, np.random.default_rng(0), 99)
    assert (len(deals), exact) == (100, False)
    assert deals[0].tolist() == leaf_of.tolist()
    assert all((np.bincount(deal) == 5).all() for deal in deals)
    assert len({tuple(deal) for deal in deals}) == 100
