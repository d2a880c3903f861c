"""Similarities of leaves, one signal after the other."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.clustering.likeness.evidence import Answers, CrossLosses, Evidence, leaf_role
from fedge.clustering.likeness.similarity import cosine_similarity
from fedge.clustering.signals import NotComparable, loss_matrix, needs_of, relationships_among, similarity_of
from fedge.config.registers.groupings import SIGNALS

NAN = float("nan")


def state(head, body=0.0):
    return {
        "body": np.array([[body]], np.float32),
        "head": np.array([head], np.float32),
        "steps": np.array(3),
    }


def of_models(models, starts=None, common_start=True):
    return Evidence(models, starts, [1] * len(models), ("body", "head"), common_start)


def of_losses(losses, leaf_of, windows=None, recent=()):
    losses = np.array(losses, float)
    windows = np.full(losses.shape[1], 10) if windows is None else np.array(windows)
    answers = Answers({leaf_role(i): row for i, row in enumerate(losses)}, windows, np.array(leaf_of))
    return Evidence([{}] * len(losses), None, [1] * len(losses), (), answers=answers, recent=recent)


def test_update_head_by_hand():
    """Heads moved by (1, 0) and (0, 2), bodies both by 5, which only `update` sees: 25 / (√26 √29)."""
    start = state([1, 1])
    evidence = of_models([state([2, 1], 5), state([1, 3], 5)], [start, start])
    assert similarity_of("update-head", evidence)[0, 1] == 0
    assert similarity_of("update", evidence)[0, 1] == pytest.approx(25 / np.sqrt(26 * 29))


@pytest.mark.parametrize("signal", ["update", "update-head"])
def test_updates_from_different_starts_are_not_compared(signal):
    evidence = of_models([state([2, 1])] * 2, [state([1, 1]), state([0, 1])], common_start=False)
    with pytest.raises(NotComparable, match="did not start from one model"):
        similarity_of(signal, evidence)


def test_loss_matrix_by_hand():
    """Leaf 0 has clients of 10 and 30 windows with losses 1 and 2: (10 + 60) / 40; NaN for no answer."""
    losses = np.array([[1.0, 2.0, NAN], [4.0, 4.0, 1.0]])
    cross = CrossLosses(losses, np.array([10, 30, 5]), np.array([0, 0, 1]))
    np.testing.assert_array_equal(loss_matrix(cross), [[1.75, NAN], [4, NAN]])


def test_cross_loss_by_hand():
    """Own losses 1 and 2; at each other's clients 3 and 2: excess 3 − 2 = 1 and 2 − 1 = 1, mean 1."""
    assert similarity_of("cross-loss", of_losses([[1, 3], [2, 2]], [0, 1])).tolist() == [[0, -1], [-1, 0]]


def test_rows_by_hand():
    """Leaves 0 and 1 are bad at leaf 2's clients, leaf 2 at theirs; excess rows (0 0 4), (0 0 4), (3 3 0)."""
    losses = [[1, 1, 5], [1, 1, 5], [4, 4, 1]]
    found = similarity_of("cross-loss-rows", of_losses(losses, [0, 1, 2]))
    np.testing.assert_allclose(found, [[1, 1, -1], [1, 1, -1], [-1, -1, 1]])


def test_affinity_of_two_groups():
    """Four leaves of one client, losses 1 within and e³ between: affinities 2 and −1, as in its own test."""
    group = np.array([0, 1, 0, 1])
    losses = np.exp(np.where(group[:, None] == group, 0.0, 3.0))
    expected = np.where(group[:, None] == group, 2.0, -1.0)
    np.fill_diagonal(expected, 0)
    np.testing.assert_allclose(similarity_of("affinity", of_losses(losses, range(4))), expected, atol=1e-12)


def test_affinity_is_the_mean_over_recent_steps():
    rng = np.random.default_rng(0)
    leaf_of = np.repeat(np.arange(4), 2)
    steps = [of_losses(rng.uniform(0.5, 3, (4, 8)), leaf_of) for _ in range(3)]
    each = [similarity_of("affinity", step) for step in steps]
    last = Evidence(**{**vars(steps[2]), "recent": (steps[0].cross, steps[1].cross)})
    np.testing.assert_allclose(similarity_of("affinity", last), np.mean(each, axis=0), atol=1e-12)


def test_three_leaves_have_no_affinity():
    assert similarity_of("affinity", of_losses(np.ones((3, 3)), range(3))).tolist() == [[0] * 3] * 3


def test_a_client_that_is_silent_does_not_count():
    """Its column is left out; a client that has answered before still counts by that."""
    rng = np.random.default_rng(1)
    leaf_of = np.repeat(np.arange(4), 3)
    losses = rng.uniform(0.5, 3, (4, 12))
    silent = losses.copy()
    silent[:, 4] = NAN
    without = np.arange(12) != 4
    alone = relationships_among(of_losses(losses[:, without], leaf_of[without]), range(4))
    found = relationships_among(of_losses(silent, leaf_of), range(4))
    assert found[0].tolist() == alone[0].tolist()
    assert found[1].tolist() == alone[1].tolist()
    before = of_losses(losses, leaf_of).cross
    assert relationships_among(of_losses(silent, leaf_of, recent=(before,)), range(4))[0].shape == (4, 12)


def test_a_subset_of_leaves_is_numbered_anew():
    rng = np.random.default_rng(2)
    leaf_of = np.repeat(np.arange(6), 2)
    losses = rng.uniform(0.5, 3, (6, 12))
    some = [1, 2, 4, 5]
    keep = np.isin(leaf_of, some)
    expected = of_losses(losses[some][:, keep], np.searchsorted(some, leaf_of[keep]))
    found = relationships_among(of_losses(losses, leaf_of), some)
    assert found[0].tolist() == relationships_among(expected, range(4))[0].tolist()


@pytest.mark.parametrize("signal", ["cross-loss", "cross-loss-rows", "affinity"])
def test_a_leaf_without_answers_is_named(signal):
    losses = np.ones((4, 4))
    losses[:, 2] = NAN
    with pytest.raises(NotComparable, match="no client of leaf 2 has evaluated"):
        similarity_of(signal, of_losses(losses, range(4)))


def test_roles_that_nobody_answered_are_unknown():
    evidence = of_losses(np.ones((2, 2)), [0, 1])
    assert evidence.answers is not None
    bare = Answers({}, evidence.answers.windows, evidence.answers.leaf_of)
    assert np.isnan(Evidence([{}] * 2, None, [1, 1], (), answers=bare).cross.losses).all()


@given(st.integers(4, 6), st.integers(0, 2**32 - 1))
def test_similarities_are_symmetric(size, seed):
    rng = np.random.default_rng(seed)
    losses = of_losses(rng.uniform(0.1, 3, (size, 2 * size)), np.repeat(np.arange(size), 2))
    start = state([0, 0])
    models = of_models([state(rng.normal(size=2), rng.normal()) for _ in range(size)], [start] * size)
    for name in SIGNALS.names:
        found = similarity_of(name, losses if "cross-losses" in needs_of(name) else models)
        assert found.shape == (size, size)
        np.testing.assert_allclose(found, found.T, atol=1e-12)


def test_updates_are_compared_two_at_a_time():
    """Beyond what is given, six leaves need no more than three: two updates in float64 and a product."""
    rng = np.random.default_rng(0)
    model_bytes, peaks = 4 * 300_000, []
    for leaves in (3, 6):
        models = [
            {"body": rng.random(299_000, np.float32), "head": rng.random((10, 100), np.float32)}
            for _ in range(leaves + 1)
        ]
        evidence = of_models(models[1:], [models[0]] * leaves)
        tracemalloc.start()
        found = similarity_of("update", evidence)
        peaks.append(tracemalloc.get_traced_memory()[1] / model_bytes)
        tracemalloc.stop()
    updates = [
        np.concatenate([(model[name].astype(float) - models[0][name]).ravel() for name in model])
        for model in models[1:]
    ]
    assert np.array_equal(found, cosine_similarity(updates))
    assert max(peaks) < 8.5
