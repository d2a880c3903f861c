"""From similarities to clusters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedge.clustering.likeness.similarity import threshold_components
from fedge.clustering.methods.hierarchical import linkage_labels, spectral_labels

# a chain 0 - 1 - 2 of which the ends are unlike, and 3 apart
CHAIN = np.array([[1, 0.9, 0.1, 0], [0.9, 1, 0.8, 0], [0.1, 0.8, 1, 0], [0, 0, 0, 1]])


def matrices(smallest=2):
    """Symmetric matrices of which no two pairs are alike."""

    def build(size_and_seed):
        size, seed = size_and_seed
        values = np.random.default_rng(seed).permutation(size * size).reshape(size, size) / size**2
        return np.triu(values, 1) + np.triu(values, 1).T + np.eye(size)

    return st.tuples(st.integers(smallest, 7), st.integers(0, 2**32 - 1)).map(build)


def test_a_chain_by_linkage():
    """{0 1} meet at 0.9. Leaf 2 is (0.8 + 0.1) / 2 = 0.45 like them on average, 0.1 like the worst."""
    assert linkage_labels(CHAIN, "average", tau=0.45).tolist() == [0, 0, 0, 1]
    assert linkage_labels(CHAIN, "average", tau=0.46).tolist() == [0, 0, 1, 2]
    assert linkage_labels(CHAIN, "complete", tau=0.45).tolist() == [0, 0, 1, 2]
    assert linkage_labels(CHAIN, "complete", tau=0.1).tolist() == [0, 0, 0, 1]
    assert threshold_components(CHAIN, 0.45).tolist() == [0, 0, 0, 1]


def test_a_fixed_number_of_clusters():
    for count, expected in ((1, [0, 0, 0, 0]), (2, [0, 0, 0, 1]), (3, [0, 0, 1, 2]), (4, [0, 1, 2, 3])):
        assert linkage_labels(CHAIN, "average", count=count).tolist() == expected
    assert linkage_labels(np.ones((1, 1)), "average", count=1).tolist() == [0]
    assert linkage_labels(np.ones((2, 2)), "average", count=9).tolist() == [0, 1]


def test_above_every_pair_all_are_alone_and_below_all_are_one():
    assert linkage_labels(CHAIN, "average", tau=0.91).tolist() == [0, 1, 2, 3]
    assert linkage_labels(CHAIN, "average", tau=-5).tolist() == [0, 0, 0, 0]


@given(matrices(), st.sampled_from(["average", "complete"]))
def test_negative_similarities_are_as_good(matrix, linkage):
    for count in range(1, len(matrix) + 1):
        assert (
            linkage_labels(matrix - 7, linkage, count=count).tolist()
            == linkage_labels(matrix, linkage, count=count).tolist()
        )


@given(matrices(), st.sampled_from(["average", "complete"]), st.data())
def test_there_are_as_many_clusters_as_asked_for(matrix, linkage, data):
    count = data.draw(st.integers(1, len(matrix)))
    for labels in (linkage_labels(matrix, linkage, count=count),):
        assert labels.max() + 1 == count
        assert labels[0] == 0


@given(matrices(), st.floats(0, 1))
def test_complete_linkage_joins_no_pair_below_tau(matrix, tau):
    labels = linkage_labels(matrix, "complete", tau=tau)
    together = labels[:, None] == labels
    assert (matrix[together] >= tau - 1e-12).all()


@pytest.mark.parametrize("sizes", [(3, 3), (2, 4), (3, 2, 4)])
def test_spectral_finds_blocks(sizes):
    groups = np.repeat(np.arange(len(sizes)), sizes)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(groups))
    groups = groups[order]
    noise = rng.normal(0, 0.1, (len(groups), len(groups)))
    similarity = np.where(groups[:, None] == groups, 1.0, -1.0) + noise + noise.T
    labels = spectral_labels(similarity, len(sizes))
    assert ((labels[:, None] == labels) == (groups[:, None] == groups)).all()
    assert spectral_labels(similarity * 5 - 100, len(sizes)).tolist() == labels.tolist()


def test_spectral_at_its_ends():
    assert spectral_labels(CHAIN, 1).tolist() == [0, 0, 0, 0]
    assert spectral_labels(CHAIN, 4).tolist() == [0, 1, 2, 3]
    assert spectral_labels(CHAIN, 9).tolist() == [0, 1, 2, 3]
    assert set(spectral_labels(np.ones((5, 5)), 2).tolist()) <= {0, 1}
