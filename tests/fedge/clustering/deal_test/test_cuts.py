"""Cuts of leaves in two: sums and spreads, by hand and against brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.clustering.deal_test.cuts import (
    between_leaves,
    log_explained,
    mean_apart,
    null_spread,
    refine_cut,
    remove_directions,
    similarity_weight,
    sums_between,
    without_client_effects,
)


def test_the_share_explained_by_hand():
    """Six clients, two leaves of three at right angles to each other: nothing is left within.

    Cosines 1 within and 0 between; distances 1 − cosine of a pair, of which a client has 3 · 1 in all.
    """
    leaf_of = np.repeat([0, 1], 3)
    similarity = np.equal.outer(leaf_of, leaf_of).astype(float)
    assert explained(similarity, leaf_of) > 10
    half = 0.5 + 0.5 * similarity  # the same at half of the angle
    assert explained(half, leaf_of) > 10


@given(st.integers(3, 5), st.integers(0, 2**32))
def test_the_share_explained_is_that_of_distances_written_out(clients, seed):
    """Without effects of clients, of equal parts: squared distances within, over what chance would leave.

    Chance leaves each part its number of pairs times the mean, over its clients: K − 2 halves of the mean.
    """
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(2 * clients, 6))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    similarity = vectors @ vectors.T
    leaf_of = np.repeat([0, 1], clients)
    pairs = ~np.eye(2 * clients, dtype=bool)
    spread = mean_apart(similarity)
    apart = spread - without_client_effects(similarity)  # distances less effects, in their spread's unit
    within = sum(
        apart[np.ix_(leaf_of == leaf, leaf_of == leaf)][pairs[:clients, :clients]].sum() / 2 / clients
        for leaf in (0, 1)
    )
    assert explained(similarity, leaf_of) == pytest.approx(-np.log(within / ((clients - 1) * spread)))


def explained(similarity, leaf_of):
    """Logarithm of the share that the cut of leaf 0 from leaf 1 explains."""
    pairs = without_client_effects(similarity)[None]
    between = sums_between(between_leaves(pairs, leaf_of[None], 2), np.array([[True, False]]))
    inside, apart = np.array([(leaf_of == 0).sum()]), np.array([mean_apart(similarity)])
    return log_explained(between, apart, inside, len(leaf_of))[0, 0, 0]


@given(st.integers(5, 9), st.integers(0, 2**32))
def test_the_spread_of_the_null_in_closed_form(clients, seed):
    """Against all subsets of k clients."""
    rng = np.random.default_rng(seed)
    pairs = without_client_effects(rng.normal(size=(clients, clients)))
    assert np.abs(pairs.sum(axis=0)).max() < 1e-9
    spread = null_spread(pairs[None])[0]
    for k in range(2, clients - 1):
        sums = []
        for number in range(2**clients):
            side = (number >> np.arange(clients)) & 1 == 1
            if side.sum() == k:
                sums.append(pairs[np.ix_(side, ~side)].sum())
        assert np.std(sums) == pytest.approx(spread[k], rel=1e-6)
    assert np.isinf(spread[[0, 1, clients - 1, clients]]).all()


def test_a_cut_that_single_leaves_make_better():
    """Two groups of three leaves of two clients, a leaf of each on the wrong side: both are put right."""
    leaf_of, side = np.repeat(np.arange(6), 2), np.array([True, True, True, False, False, False])
    pairs = without_client_effects(np.equal.outer(side[leaf_of], side[leaf_of]).astype(float))[None]
    wrong = np.array([True, True, False, True, False, False])
    assert refine_cut(pairs, leaf_of, wrong).tolist() in (side.tolist(), (~side).tolist())
    assert refine_cut(pairs, leaf_of, side).tolist() == side.tolist()


def test_directions_in_which_others_differ_count_less_by_hand():
    """Clients 0 and 1 differ along the first axis, 0 and 2 along the second; clients 3 and 4 along the first.

    Of 3 and 4 less their mean, ±(1, 0), the kernel is ((1, −1), (−1, 1)) and its mean diagonal 1: along the
    first axis 2 / (2 + 1) of all squares goes, along the second nothing.
    """
    vectors = np.array([[0.6, 0.0, 0.8], [-0.6, 0.0, 0.8], [0.6, 0.8, 0.0], [1.0, 0, 0], [-1.0, 0, 0]])
    similarity = vectors @ vectors.T
    mine = np.arange(3)
    assert remove_directions(similarity, mine, []).tolist() == similarity[:3, :3].tolist()
    assert remove_directions(similarity, mine, [np.array([3])]).tolist() == similarity[:3, :3].tolist()
    found = remove_directions(similarity, mine, [np.array([3, 4])])
    assert found[0, 1] == pytest.approx(1 - 1.2**2 / 3 / 2)
    assert found[0, 2] == pytest.approx(1 - (0.8**2 + 0.8**2) / 2)
    assert np.diag(found) == pytest.approx(1)


@given(st.integers(0, 2**32))
def test_less_directions_is_the_ridge_written_out_in_vectors(seed):
    """Order of clients aside: distances under I − Yᵀ (Y Yᵀ + λ I)⁻¹ Y."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(9, 5))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    mine, beside = np.array([0, 4, 7]), [np.array([1, 2, 3]), np.array([5, 6, 8])]
    others = np.concatenate([vectors[group] - vectors[group].mean(axis=0) for group in beside])
    within = others @ others.T
    ridge = np.trace(within) / 6 * np.eye(6)
    metric = np.eye(5) - others.T @ np.linalg.inv(within + ridge) @ others
    differ = vectors[mine][:, None] - vectors[mine]
    expected = 1 - np.einsum("abi,ij,abj->ab", differ, metric, differ) / 2
    assert remove_directions(vectors @ vectors.T, mine, beside) == pytest.approx(expected)


@given(st.integers(0, 2**32))
def test_weight_is_the_variance_between_groups_over_that_within_written_out_in_vectors(seed):
    """Sums of squares about means, over degrees of freedom 2 and 7; times the group's share of the last."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(10, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    groups = [np.array([0, 4, 7, 9]), np.array([1, 2, 3]), np.array([5, 6, 8])]
    within = [np.square(vectors[group] - vectors[group].mean(axis=0)).sum() for group in groups]
    between = np.square(vectors - vectors.mean(axis=0)).sum() - sum(within)
    found = similarity_weight(vectors @ vectors.T, groups[0], groups[1:])
    assert found == pytest.approx(between / 2 / (sum(within) / 7) * within[0] / sum(within))


@given(st.integers(0, 2**32))
def test_weight_does_not_change_with_the_deal_of_any_group(seed):
    rng = np.random.default_rng(seed)
    similarity = np.corrcoef(rng.normal(size=(9, 5)))
    groups = [np.arange(4), np.arange(4, 7), np.arange(7, 9)]
    dealt = [rng.permutation(group) for group in groups]
    weights = [similarity_weight(similarity, each[0], each[1:]) for each in (groups, dealt)]
    assert weights[0] == pytest.approx(weights[1], rel=1e-12)


def test_a_similarity_in_which_clients_of_groups_do_not_differ_has_no_weight():
    groups = [np.arange(3), np.arange(3, 6)]
    assert similarity_weight(np.ones((6, 6)), groups[0], groups[1:]) == 0.0
