import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.cloud import CloudAggregator
from fedge.clustering import weight_clustering
from fedge.config import ClusterConfig

NAMES = ("body", "head")


def state(head, body=0.0, count=0):
    """Return a model: two trainable entries and a BatchNorm pair."""
    return {
        "body": np.array([[body]], np.float32),
        "head": np.array([head], np.float32),
        "running_var": np.array([1.0 + count], np.float32),
        "num_batches": np.array(count),
    }


def cloud(**settings):
    return CloudAggregator(ClusterConfig(**settings), NAMES)


def step_of(aggregator, starts, models, weights):
    aggregator.begin_round(starts)
    return aggregator.step(models, weights)


START = state([1, 1])


@given(st.integers(1, 20), st.integers(1, 7), st.integers(1, 60))
def test_due_rounds(start_round, every, round_):
    due = [r for r in range(1, 61) if cloud(start_round=start_round, every=every).is_due(r)]
    assert due == list(range(start_round, 61, every))


def test_by_hand():
    """Leaves 0 and 2 point one way, 1 another. Weights 10, 99, 30: (10·(1, 0) + 30·(0.8, 0.6)) / 40 = (0.85,
    0.45).

    The bodies: (10·4 + 30·8) / 40 = 7. The running variances 2 and 4: (10·2 + 30·4) / 40 = 3.5. The counter
    is leaf 0's.
    """
    models = [state([1, 0], 4, 1), state([0, -1], 5, 2), state([0.8, 0.6], 8, 3)]
    step = step_of(cloud(tau=0.7), [START] * 3, models, [10, 99, 30])
    assert step.labels.tolist() == [0, 1, 0]
    assert (step.signal, step.tau, step.common_start) == ("weights", 0.7, True)
    np.testing.assert_allclose(step.similarity, [[1, 0, 0.8], [0, 1, 0.6], [0.8, 0.6, 1]], atol=1e-7)
    offer = step.offers[0]
    np.testing.assert_allclose(offer["head"], [[0.85, 0.45]], rtol=1e-6)
    assert offer["body"].tolist() == [[7.0]]
    assert offer["running_var"].tolist() == [3.5]
    assert offer["num_batches"].tolist() == 1
    assert {n: a.dtype for n, a in offer.items()} == {n: a.dtype for n, a in models[0].items()}
    assert step.offers[2] is offer
    assert step.offers[1] is None


def test_the_matrix_is_the_published_one():
    rng = np.random.default_rng(1)
    models = [state(rng.normal(size=4), i) for i in range(4)]
    step = step_of(cloud(tau=0.4), [START] * 4, models, [1] * 4)
    labels, similarity, _ = weight_clustering([{n: m[n] for n in NAMES} for m in models], tau=0.4)
    assert step.labels.tolist() == labels.tolist()
    assert step.similarity.tobytes() == similarity.tobytes()


def test_a_leaf_alone_is_offered_nothing():
    step = step_of(cloud(tau=1.5), [START] * 2, [state([1, 0]), state([1, 0])], [1, 1])
    assert step.labels.tolist() == [0, 1]
    assert step.offers == [None, None]
    assert step_of(cloud(), [START], [state([1, 0])], [1]).offers == [None]


def test_without_clustering_all_leaves_are_one_cluster():
    """(1·(1, 0) + 3·(0, 1)) / 4 = (0.25, 0.75), however unlike the leaves are."""
    step = step_of(cloud(enabled=False), [START] * 2, [state([1, 0]), state([0, 1])], [1, 3])
    assert (step.signal, step.similarity) == ("off", None)
    assert step.labels.tolist() == [0, 0]
    for offer in step.offers:
        assert offer["head"].tolist() == [[0.25, 0.75]]


def test_the_update_signal_compares_what_changed():
    """From start (1, 1): leaf 0 moved by (1, 0), leaf 1 by (−2, 0), leaf 2 by (0.8, 0.6); signed cosines −1,
    0.8, −0.8.

    BatchNorm statistics moved differently and take no part.
    """
    models = [state([2, 1], count=1), state([-1, 1], count=2), state([1.8, 1.6], count=3)]
    step = step_of(cloud(signal="update", tau=0.7), [START] * 3, models, [1, 1, 1])
    np.testing.assert_allclose(step.similarity, [[1, -1, 0.8], [-1, 1, -0.8], [0.8, -0.8, 1]], atol=1e-6)
    assert step.labels.tolist() == [0, 1, 0]
    assert (step.signal, step.common_start) == ("update", True)


def test_the_update_signal_counts_all_trainable_entries_from_each_leafs_own_start():
    """Leaf 0 from body 0: moved (body 1, head 0); leaf 1 from body 5: moved (body 1, head (1, 0)); cosine
    1/√2.
    """
    starts = [state([1, 1], 0), state([1, 1], 5)]
    step = step_of(cloud(signal="update"), starts, [state([1, 1], 1), state([2, 1], 6)], [1, 1])
    assert step.similarity[0, 1] == pytest.approx(np.sqrt(0.5))
    assert step.common_start is False


def test_common_start_compares_values_not_objects():
    copies = [state([1, 1]), state([1, 1])]
    assert step_of(cloud(), copies, [state([1, 0])] * 2, [1, 1]).common_start is True
    copies[1]["num_batches"] = np.array(1)
    assert step_of(cloud(), copies, [state([1, 0])] * 2, [1, 1]).common_start is False


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=5), st.integers(0, 2**32 - 1))
def test_an_offer_lies_between_its_members(weights, seed):
    rng = np.random.default_rng(seed)
    models = [state(rng.normal(size=2)) for _ in weights]
    step = step_of(cloud(tau=0.5), [START] * len(models), models, weights)
    for leaf, offer in enumerate(step.offers):
        members = [
            m["head"] for m, label in zip(models, step.labels, strict=True) if label == step.labels[leaf]
        ]
        assert (offer is None) == (len(members) == 1)
        if offer is not None:
            assert (offer["head"] <= np.max(members, axis=0) + 1e-6).all()
            assert (offer["head"] >= np.min(members, axis=0) - 1e-6).all()


def test_models_are_left_alone():
    models = [state([1, 0]), state([1, 0.1])]
    before = [{n: a.copy() for n, a in m.items()} for m in models]
    step_of(cloud(), [START] * 2, models, [1, 2])
    for model, copy in zip(models, before, strict=True):
        assert all((model[n] == copy[n]).all() for n in model)


@pytest.mark.parametrize("signal", ["weights", "update"])
def test_a_leaf_that_is_not_finite_is_named(signal):
    with pytest.raises(ValueError, match="leaf 1 has non-finite weights"):
        step_of(cloud(signal=signal), [START] * 2, [state([1, 0]), state([np.nan, 0])], [1, 1])
