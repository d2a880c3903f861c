"""Gains by class shares alone do not count: right answers class by class, by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.clustering.memberships.mixture import WIDE, ByClass, standardised_gain


def said_of(held, present, proposed, leaf_of=None, taught=None):
    held = np.array(held)
    leaves = np.arange(len(held)) if leaf_of is None else np.array(leaf_of)
    trained = held if taught is None else np.array(taught)
    return ByClass(leaves, trained, held, np.array(present), np.array(proposed))


def test_classes_are_weighed_by_their_shares_among_all():
    """A part's 90 windows of class 0 fall from 45 to 0 wrong, its 10 of class 1 rise from 5 to 10.

    Of all windows half are of each class, so errors are .5 before and after.
    """
    said = said_of([[90, 10], [10, 90]], [[45, 5], [5, 45]], [[90, 0], [0, 90]])
    assert standardised_gain(said, [(0,)]) == pytest.approx(0)
    assert standardised_gain(said, [(1,)]) == pytest.approx(0)


def test_a_class_that_a_part_does_not_train_on_is_lost_by_it():
    """Of all windows half are of class 1, which the part lacks: right before, wrong after, at the worst."""
    said = said_of([[8, 0], [0, 8]], [[4, 0], [0, 6]], [[8, 0], [0, 6]])
    before, after = 1 - (4 / 8 + 1) / 2, 1 - (8 / 8 + 0) / 2
    assert standardised_gain(said, [(0,)]) == pytest.approx(np.log((before + 1 / 8) / (after + 1 / 8)))


@pytest.mark.parametrize(("taught", "knows"), [(24, False), (26, True)])
def test_a_class_without_validation_windows_that_a_part_trains_on_is_left_out(taught, knows):
    """All train on 200 windows of class 1 and 1,800 others: a quarter of its share is 25 of 1,000."""
    trained = [[1000 - taught, taught], [800 + taught, 200 - taught]]
    said = said_of([[16, 0], [8, 8]], [[8, 0], [4, 4]], [[12, 0], [6, 6]], taught=trained)
    before, after = (8 / 16, 4 / 16) if knows else (0.9 * 8 / 16, 0.9 * 4 / 16 + 0.1)
    expected = np.log((before + 1 / 16) / (after + 1 / 16))
    assert standardised_gain(said, [(0,)]) == pytest.approx(expected)


def test_clients_who_did_not_evaluate_both_models_do_not_judge():
    trained = np.array([[8, 8], [8, 8], [8, 8]])
    right = np.array([[4, 4], [0, 0], [2, 2]])
    known = np.array([[8, 8], [0, 0], [8, 8]])
    said = said_of(known, right, 2 * right, [0, 0, 1], trained)
    expected = np.log((1 - 4 / 8 + 1 / 16) / (1 - 8 / 8 + 1 / 16))
    assert standardised_gain(said, [(0,)]) == pytest.approx(expected)
    assert standardised_gain(said, [(0,), (5,)]) == pytest.approx(expected)  # of leaf 5 nobody is there
    silent = said_of(0 * known, 0 * right, 0 * right, [0, 0, 1], trained)
    assert standardised_gain(silent, [(0,), (1,)]) is None


def test_when_leaves_differ_much_in_their_classes():
    """Total variation from the mean leaf: 0, and for shares of .5 + d and .5 - d at two leaves d."""
    even = [[10, 10], [20, 20]]
    assert not said_of(even, even, even).is_skewed
    for more, skewed in ((69, False), (71, True)):
        trained = [[more, 100 - more], [100 - more, more]]
        assert said_of(even, even, even, taught=trained).is_skewed is skewed
        assert (more / 100 - 0.5 > WIDE) is skewed
    nobody = np.zeros((0, 2), int)
    assert not said_of(nobody, nobody, nobody).is_skewed


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=2, max_size=6), st.data())
def test_a_model_that_is_right_as_often_gains_nothing_and_names_of_classes_do_not_matter(rows, data):
    held = np.array([[a + 1, b] for a, b in rows])
    right = np.array([[data.draw(st.integers(0, int(n))) for n in row] for row in held])
    after = np.array([[data.draw(st.integers(0, int(n))) for n in row] for row in held])
    parts = [(0,), tuple(range(1, len(held)))]
    assert standardised_gain(said_of(held, right, right), parts) == 0
    gain = standardised_gain(said_of(held, right, after), parts)
    swapped = standardised_gain(said_of(held[:, ::-1], right[:, ::-1], after[:, ::-1]), parts)
    assert gain == pytest.approx(swapped)
    assert standardised_gain(said_of(held, after, right), parts) == pytest.approx(-gain)
