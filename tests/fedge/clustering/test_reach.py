"""What the deal test can show: by hand; `test_deals` compares smallest_p with the test itself."""

from math import comb

import pytest

from fedge.clustering.reach import (
    clients_per_leaf_needed,
    level_in_force,
    levels_of_parts,
    out_of_reach,
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
    assert smallest_p_of_any_cut([9, 9]) == 1.0  # two leaves are not tested


@pytest.mark.parametrize(
    ("parts", "levels"),
    [
        ([[4] * 8, [4] * 4], [0.01 * 2 / 3, 0.01 / 3]),  # both can be rejected
        ([[3] * 9, [3] * 3], [0.01, 0.0025]),  # three leaves cannot, below .036
        ([[3] * 3, [3] * 3], [0.005, 0.01]),  # neither; the last keeps what it could have had
        ([[4] * 5, [4]], [0.01, 0.01 / 6]),  # a leaf alone has nothing to be parted
    ],
)
def test_levels_of_parts_by_hand(parts, levels):
    found = levels_of_parts(0.01, parts)
    assert found == pytest.approx(levels)
    floors = [smallest_p_of_any_cut(sizes) for sizes in parts]
    can = [level for level, floor in zip(found, floors, strict=True) if floor <= level]
    assert sum(can) <= 0.01 + 1e-12


@pytest.mark.parametrize(
    ("leaves", "level", "needed"), [(3, 0.01, 4), (6, 0.01, 3), (3, 0.05, 3), (3, 0.04, 3)]
)
def test_how_many_clients_are_needed(leaves, level, needed):
    assert clients_per_leaf_needed(leaves, level) == needed
    assert smallest_p([needed] * leaves) <= level < smallest_p([needed - 1] * leaves)


def test_the_level_is_weak_only_where_the_strong_one_is_out_of_reach():
    assert level_in_force("auto", [3, 3, 3]) == 0.05
    assert level_in_force("auto", [4, 4, 4]) == 0.01
    assert level_in_force(0.2, [4, 4, 4]) == 0.2


@pytest.mark.parametrize(("sizes", "there"), [((9,), "there is one leaf"), ((5, 4), "there are 2 leaves")])
def test_too_few_leaves_are_said(sizes, there):
    assert f"{there}: all stay one cluster; raise hierarchy.num-servers" in str(out_of_reach("auto", sizes))


def test_weak_evidence_is_called_so():
    line = str(out_of_reach("auto", [3, 3, 3]))
    assert line.startswith(
        "9 clients in 3 leaves cannot show that one leaf differs from all others below p = 0.036"
    )
    assert line.endswith(
        "4 at each leaf could show it at 0.01; splits at p up to 0.05 count, which is weak evidence"
    )
    assert str(out_of_reach(0.01, [3, 3, 3])).endswith("only larger groups of leaves can be found")
    assert out_of_reach("auto", [4, 4, 4]) is None
