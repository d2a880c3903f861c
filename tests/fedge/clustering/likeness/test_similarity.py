import inspect

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csgraph

from fedge.clustering.likeness.similarity import (
    connected_components,
    cosine_similarity,
    last_layer,
    number_by_first_appearance,
    threshold_components,
    weight_clustering,
)

HEADS = hnp.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.just(4)),
    elements=st.floats(-10, 10).map(lambda v: round(v, 3)),
)


def model(*head):
    """A model whose last layer has these weights, as a 1-row matrix."""
    return {
        "body.weight": np.ones((5, 5)),
        "head.weight": np.array([head], dtype=np.float32),
        "head.bias": np.ones(1),
    }


def angle(degrees):
    return model(np.cos(np.radians(degrees)), np.sin(np.radians(degrees)))


def test_by_hand():
    """Heads (3, 4), (4, 3), (4, −3): cosines 24/25 = 0.96, 0/25 = 0, 7/25 = 0.28; tau 0.7 joins the first
    two.
    """
    labels, similarity, tau = weight_clustering([model(3, 4), model(4, 3), model(4, -3)])
    np.testing.assert_allclose(similarity, [[1, 0.96, 0], [0.96, 1, 0.28], [0, 0.28, 1]], atol=1e-15)
    assert labels.tolist() == [0, 0, 1]
    assert tau == 0.7
    assert (labels.dtype, similarity.dtype) == (np.int64, np.float64)


def test_the_published_signature():
    """The call of earlier reports and its defaults; the arguments it kept for callers change nothing."""
    parameters = inspect.signature(weight_clustering).parameters
    assert {name: p.default for name, p in parameters.items()} == {
        "server_weights_list": inspect.Parameter.empty,
        "global_weights": None,
        "reference_imgs": None,
        "round_num": 0,
        "tau": 0.7,
        "stability_history": None,
    }
    models = [angle(0), angle(30), angle(80)]
    plain = weight_clustering(models)
    odd = weight_clustering(models, {"x": np.full(3, np.nan)}, object(), 17, 0.7, [])
    assert plain[0].tolist() == odd[0].tolist()
    assert plain[1].tobytes() == odd[1].tobytes()


def test_the_history_gets_a_copy_of_the_labels():
    history = [np.array([9])]
    labels, _, _ = weight_clustering([angle(0), angle(90)], stability_history=history)
    assert [h.tolist() for h in history] == [[9], [0, 1]]
    labels[0] = 5
    assert history[1].tolist() == [0, 1]


def test_opposite_weights_agree():
    labels, similarity, _ = weight_clustering([model(3, 4), model(-3, -4)], tau=1.0)
    assert similarity.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert labels.tolist() == [0, 0]


def test_an_edge_needs_at_least_tau():
    """The cosine of (1, 0) and (3, 4) is 3/5; tau = 0.6 joins, the next float above does not."""
    models = [model(1, 0), model(3, 4)]
    assert weight_clustering(models, tau=0.6)[0].tolist() == [0, 0]
    assert weight_clustering(models, tau=np.nextafter(0.6, 1))[0].tolist() == [0, 1]


def test_above_one_everyone_is_alone_and_at_minus_one_nobody_is():
    assert weight_clustering([angle(0)] * 3, tau=1.0)[0].tolist() == [0, 0, 0]
    assert weight_clustering([angle(0)] * 3, tau=np.nextafter(1, 2))[0].tolist() == [0, 1, 2]
    assert weight_clustering([angle(0), angle(90)], tau=-1.0)[0].tolist() == [0, 0]


def test_a_chain_is_one_cluster():
    """Directions 0°, 40°, 80°: neighbours have cosine 0.766 ≥ 0.7, the ends 0.174; they meet through the
    middle.
    """
    labels, similarity, _ = weight_clustering([angle(0), angle(80), angle(40)])
    assert similarity[0, 1] == pytest.approx(np.cos(np.radians(80)), abs=1e-6)
    assert labels.tolist() == [0, 0, 0]
    assert weight_clustering([angle(0), angle(80)])[0].tolist() == [0, 1]


def test_labels_count_up_in_order_of_appearance():
    assert number_by_first_appearance(np.array([7, 2, 7, 0, 2])).tolist() == [0, 1, 0, 2, 1]
    labels, _, _ = weight_clustering([angle(90), angle(0), angle(90), angle(45), angle(0)], tau=0.9)
    assert labels.tolist() == [0, 1, 0, 2, 1]


def test_only_the_last_matrix_counts():
    """Biases and what comes before differ; a list of arrays, as Flower's get_weights gives, is read alike."""
    one, other = model(1, 2), model(1, 2)
    other["body.weight"] = -np.ones((5, 5))
    other["head.bias"] = np.array([-50.0])
    assert weight_clustering([one, other])[1][0, 1] == 1.0
    assert last_layer(list(one.values())) is one["head.weight"]
    convolution = np.ones((2, 3, 4))
    assert last_layer([np.ones((2, 2)), convolution, np.ones(2)]) is convolution


def test_a_zero_vector_is_like_no_other():
    _, similarity, _ = weight_clustering([model(0, 0), model(1, 0), model(0, 0)])
    assert similarity.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_a_single_leaf():
    labels, similarity, _ = weight_clustering([angle(10)])
    assert (labels.tolist(), similarity.tolist()) == ([0], [[1.0]])


@given(HEADS, st.floats(0.05, 1.0), st.randoms(use_true_random=False))
def test_the_order_of_the_leaves_does_not_matter(heads, tau, rng):
    order = list(range(len(heads)))
    rng.shuffle(order)
    labels, similarity, _ = weight_clustering([model(*h) for h in heads], tau=tau)
    moved_labels, moved_similarity, _ = weight_clustering([model(*heads[i]) for i in order], tau=tau)
    assert moved_similarity.tolist() == similarity[np.ix_(order, order)].tolist()
    together = labels[:, None] == labels
    assert ((moved_labels[:, None] == moved_labels) == together[np.ix_(order, order)]).all()


@given(HEADS)
def test_the_matrix_is_symmetric_between_0_and_1_with_ones_on_the_diagonal(heads):
    _, similarity, _ = weight_clustering([model(*h) for h in heads])
    assert (similarity == similarity.T).all()
    assert (np.diag(similarity) == 1).all()
    assert (similarity >= 0).all()
    assert (similarity <= 1).all()


@given(HEADS, st.floats(-100, 100).filter(lambda f: abs(f) > 0.01))
def test_neither_scale_nor_sign_of_a_model_matters(heads, factor):
    before = np.abs(cosine_similarity(list(heads)))
    after = np.abs(cosine_similarity([heads[0] * factor, *heads[1:]]))
    np.testing.assert_allclose(before, after, atol=1e-12)


@given(HEADS)
def test_copies_are_exactly_1_alike(heads):
    assume(np.abs(heads[0]).max() > 0)
    assert cosine_similarity([heads[0], heads[0].copy(), -heads[0]]).tolist() == [
        [1, 1, -1],
        [1, 1, -1],
        [-1, -1, 1],
    ]


def test_the_same_sum_whatever_the_machine_gives_to_blas():
    """Σ a·b of two long vectors as NumPy's own pairwise sum has it; BLAS would split it by threads."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 120_001))
    expected = float((a * b).sum()) / np.sqrt(float((a * a).sum()) * float((b * b).sum()))
    assert cosine_similarity([a, b])[0, 1] == expected


def test_components_are_cut_at_the_threshold():
    similarity = np.array([[1, 0.5, 0.2], [0.5, 1, 0.5], [0.2, 0.5, 1]])
    assert threshold_components(similarity, 0.5).tolist() == [0, 0, 0]
    assert threshold_components(similarity, 0.51).tolist() == [0, 1, 2]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_name_the_leaf(value):
    with pytest.raises(
        ValueError, match=r"^leaf 1 has non-finite weights; its training diverged, lower train.lr$"
    ):
        weight_clustering([angle(0), model(value, 1), angle(0)])


def test_models_that_cannot_be_compared_are_refused():
    with pytest.raises(ValueError, match="needs at least one leaf model, got none"):
        weight_clustering([])
    with pytest.raises(ValueError, match="leaf 1 has 3 values where leaf 0 has 2; models must be alike"):
        weight_clustering([model(1, 2), model(1, 2, 3)])
    with pytest.raises(ValueError, match="without any array of two or more axes"):
        weight_clustering([{"bias": np.ones(3)}])


@given(
    hnp.arrays(bool, st.integers(1, 12).map(lambda n: (n, n)), elements=st.sampled_from([True] + [False] * 9))
)
def test_components_are_those_that_scipy_finds(edges: np.ndarray) -> None:
    """One direction of an edge suffices, and long chains are followed to their end."""
    _, theirs = csgraph.connected_components(edges, directed=False)
    ours = connected_components(edges)
    assert number_by_first_appearance(ours).tolist() == number_by_first_appearance(theirs).tolist()
    assert all(ours[least] == least for least in ours)


def test_a_chain_is_one_component() -> None:
    """The worst case: every step reaches one node further."""
    assert connected_components(np.eye(50, k=1, dtype=bool)).tolist() == [0] * 50
