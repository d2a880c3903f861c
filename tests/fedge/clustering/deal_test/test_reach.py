"""Reach of the deal test: by hand; `test_deals` compares smallest_p with the test itself."""

from math import comb

import numpy as np
import pytest
from scipy.stats import binom

from fedge.clustering.deal_test.reach import (
    clients_per_leaf_needed,
    draws_for,
    level_by_power,
    level_in_force,
    small_leaf_warning,
    smallest_p,
    smallest_p_of_any_cut,
)


def test_smallest_p_by_hand():
    """The chance that the odd leaf's clients stay together; with two leaves both are set apart at once."""
    assert smallest_p([3, 3, 3]) == 3 / comb(9, 3)
    assert smallest_p([2, 3, 4]) == 1 / comb(9, 4)
    assert smallest_p([4, 4]) == 2 / comb(8, 4)
    assert smallest_p([3, 4]) == 1 / comb(7, 3)


def test_smallest_p_of_any_cut_by_hand():
    """Two leaves of four against two: three such cuts, of C(12, 6) / 2 ways to part six clients from six."""
    assert smallest_p_of_any_cut([3, 3, 3, 3]) == pytest.approx(3 / (comb(12, 6) / 2))
    assert smallest_p_of_any_cut([3, 3, 3]) == pytest.approx(smallest_p([3, 3, 3]))
    # the leaf of four from the others; a single client's pairs sum to zero, so to part it says nothing
    assert smallest_p_of_any_cut([1, 2, 4]) == pytest.approx(1 / comb(7, 3))
    assert smallest_p_of_any_cut([5, 5]) == pytest.approx(1 / 126)
    assert smallest_p_of_any_cut([9]) == 1.0  # one leaf is not tested
    assert smallest_p_of_any_cut([2, 2]) == 1.0  # nor are four clients


def test_smallest_p_over_strata_by_hand():
    """One large client and three others at each of three leaves: a leaf has 3 · C(9, 3) possible hands."""
    assert smallest_p([(1, 3)] * 3) == 3 / (3 * comb(9, 3))
    assert smallest_p_of_any_cut([(1, 3)] * 3) == pytest.approx(3 / (3 * comb(9, 3)))
    assert smallest_p_of_any_cut([(4, 0), (0, 4)]) == 1.0  # nobody could stand elsewhere
    assert smallest_p([(3,)] * 6) == smallest_p([3] * 6)


@pytest.mark.parametrize("leaves", [3, 6, 9])
def test_a_leaf_that_differs_entirely_is_hardly_ever_lost_by_the_draw(leaves):
    """Its p is 1 + a binomial count over the draws + 1; with 1,999 draws 6 × 3 lost it in 11 % of tests."""
    floor = smallest_p([3] * leaves)
    level, draws = (0.01 if floor <= 0.01 else 0.05), draws_for(floor)
    assert binom.sf(level * (draws + 1) - 1, draws, floor) < 0.002
    assert binom.sf(0.01 * 2000 - 1, 1999, smallest_p([3] * 6)) > 0.1


def test_no_more_deals_are_drawn_than_are_needed():
    """The fewest by which a perfect leaf's count is 3.1 standard deviations below the largest one allowed."""
    allowed = {
        (draws, level): max(c for c in range(draws) if (1 + c) / (draws + 1) <= level)
        for draws in (1999, 19_999, 49_999)
        for level in (0.01, 0.05)
    }
    for floor in np.linspace(0.0005, 0.0499, 500):
        sure = []
        for draws in (1999, 19_999, 49_999):
            mean, variance = binom.stats(draws, floor)
            room = allowed[draws, 0.01 if floor <= 0.01 else 0.05] - mean
            sure += [draws] if room >= 3.1 * np.sqrt(variance) else []
        assert draws_for(floor) == (sure or [49_999])[0]
    assert draws_for(0.2) == 1999  # never below the level


@pytest.mark.parametrize(("leaves", "needed"), [(2, 6), (3, 5), (6, 4)])
def test_how_many_clients_are_needed(leaves, needed):
    """So many that four hands of a leaf's size fit below 0.01."""
    assert clients_per_leaf_needed(leaves) == needed
    assert 4 * smallest_p([needed] * leaves) <= 0.01 < 4 * smallest_p([needed - 1] * leaves)


def test_the_level_is_weak_where_the_strong_one_leaves_no_room():
    """At 6 × 3 the smallest p is 6/816 = .00735: at 0.01 no other three clients may look as odd."""
    assert level_in_force("auto", [3, 3, 3]) == 0.05
    assert level_in_force("auto", [3] * 6) == 0.05
    assert level_in_force("auto", [4, 4, 4]) == 0.05
    assert level_in_force("auto", [4] * 4) == 0.01
    assert level_in_force(0.2, [4, 4, 4]) == 0.2
    assert level_by_power(0.0025) == 0.01 < level_by_power(0.0026)


def test_one_leaf_is_too_few():
    assert "there is one leaf: all stay one cluster; raise hierarchy.num-servers" in str(
        small_leaf_warning("auto", [9])
    )
    assert small_leaf_warning("auto", [6, 6]) is None


def test_weak_evidence_is_called_so():
    line = str(small_leaf_warning("auto", [3, 3, 3]))
    assert line.startswith(
        "9 clients in 3 leaves cannot show that one leaf differs from all others below p = 0.036"
    )
    assert line.endswith(
        "5 at each leaf could show it at 0.01; splits at p up to 0.05 count, which is weak evidence"
    )
    assert str(small_leaf_warning(0.01, [3, 3, 3])).endswith("only larger groups of leaves can be found")
    assert small_leaf_warning("auto", [5, 5, 5]) is None
    assert small_leaf_warning(0.01, [4, 4, 4]) is None
