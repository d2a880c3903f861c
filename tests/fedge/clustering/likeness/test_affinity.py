"""The social relations model on cross-losses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.clustering.likeness.affinity import affinity_of, client_relationships, effects, mean_by_leaf
from fedge.clustering.likeness.evidence import CrossLosses


def pairs(matrix):
    return matrix[~np.eye(len(matrix), dtype=bool)]


def test_by_least_squares():
    """The closed form is the least-squares fit of mean, actors and partners to the cells off the diagonal."""
    rng = np.random.default_rng(0)
    size = 5
    matrix = rng.normal(size=(size, size))
    rows, columns = np.nonzero(~np.eye(size, dtype=bool))
    design = np.zeros((len(rows), 2 * size))
    design[np.arange(len(rows)), rows] = 1
    design[np.arange(len(rows)), size + columns] = 1
    fitted = design @ np.linalg.lstsq(design, pairs(matrix), rcond=None)[0]
    actor, relationship = effects(matrix)
    np.testing.assert_allclose(pairs(relationship), pairs(matrix) - fitted, atol=1e-12)
    assert actor.sum() == pytest.approx(0, abs=1e-12)
    assert np.diag(relationship).tolist() == [0] * size


@given(st.integers(4, 7), st.integers(0, 2**32 - 1))
def test_models_and_clients_that_are_better_or_harder_make_no_relationship(size, seed):
    rng = np.random.default_rng(seed)
    quality, difficulty, whatever = rng.normal(size=(3, size))
    matrix = quality[:, None] + difficulty + np.diag(whatever)
    actor, relationship = effects(matrix)
    np.testing.assert_allclose(relationship, 0, atol=1e-10)
    np.testing.assert_allclose(actor, quality - quality.mean(), atol=1e-10)


def test_three_leaves_have_no_mutual_relationship():
    matrix = np.random.default_rng(1).normal(size=(3, 3))
    np.testing.assert_allclose(affinity_of(matrix), 0, atol=1e-12)


def test_two_groups_by_hand():
    """Log loss 0 within {0 1} and {2 3}, 3 between. Every row and column has mean 2, so nothing is actor or
    partner: relationships are −2 within and 1 between, affinities 2 and −1.
    """
    group = np.array([0, 0, 1, 1])
    matrix = np.where(group[:, None] == group, 0.0, 3.0)
    expected = np.where(group[:, None] == group, 2.0, -1.0)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(affinity_of(matrix), expected, atol=1e-12)


def test_many_matrices_at_once_are_each_alone():
    many = np.random.default_rng(2).normal(size=(3, 5, 5))
    actor, relationship = effects(many)
    for at, matrix in enumerate(many):
        np.testing.assert_allclose(actor[at], effects(matrix)[0], atol=1e-12)
        np.testing.assert_allclose(relationship[at], effects(matrix)[1], atol=1e-12)
        np.testing.assert_allclose(affinity_of(many)[at], affinity_of(matrix), atol=1e-12)


def cross(seed=3, size=4, per_leaf=3):
    rng = np.random.default_rng(seed)
    leaf_of = np.repeat(np.arange(size), per_leaf)
    return CrossLosses(rng.uniform(0.1, 3, (size, len(leaf_of))), np.full(len(leaf_of), 10), leaf_of)


def test_the_scale_of_a_model_or_a_client_does_not_matter():
    """Logarithms turn factors into terms, which the model takes out."""
    found = cross()
    rng = np.random.default_rng(4)
    factors = rng.uniform(0.2, 5, (4, 1)) * rng.uniform(0.2, 5, (1, 12))
    scaled = CrossLosses(found.losses * factors, found.windows, found.leaf_of)
    np.testing.assert_allclose(client_relationships(scaled), client_relationships(found), atol=1e-10)


def test_what_a_model_does_at_its_own_clients_does_not_matter():
    found = cross()
    own = np.arange(4)[:, None] == found.leaf_of
    memorised = CrossLosses(np.where(own, 1e-6, found.losses), found.windows, found.leaf_of)
    assert client_relationships(memorised).tolist() == client_relationships(found).tolist()
    assert (client_relationships(found)[own] == 0).all()


def test_clients_add_up_to_their_leaves():
    """The mean over a leaf's clients has no actors or partners left: it is its own relationship."""
    found = cross()
    by_leaf = mean_by_leaf(client_relationships(found), found.leaf_of)
    np.testing.assert_allclose(effects(by_leaf)[1], by_leaf, atol=1e-12)
    direct = effects(mean_by_leaf(np.log(found.losses), found.leaf_of))[1]
    np.testing.assert_allclose(by_leaf, direct, atol=1e-12)


def test_a_loss_of_zero_is_finite():
    found = cross()
    assert np.isfinite(
        client_relationships(CrossLosses(found.losses * 0, found.windows, found.leaf_of))
    ).all()
