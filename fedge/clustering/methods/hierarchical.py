"""Methods of `cluster.method` from a similarity matrix to clusters.

`components` joins by a threshold, as published. `agglomerative` joins the two most similar clusters again and
again (Briggs et al. 2020, FL+HC); `spectral` cuts where little similarity is lost (Ng, Jordan and Weiss
2001). A threshold or a given number decides how many clusters there are; if the deal test decides
(`fedge.clustering.deal_test.auto`), these methods are not called. Shape letter: S leaf servers.
"""

from collections.abc import Callable

import numpy as np

from fedge.clustering.likeness.evidence import Evidence, NotComparable
from fedge.clustering.likeness.similarity import number_by_first_appearance, threshold_components
from fedge.clustering.registry import Grouping, Need, method
from fedge.clustering.signals import needs_of, similarity_of
from fedge.config.sections.cluster import ClusterConfig


def _needs(config: ClusterConfig) -> frozenset[Need]:
    """Needs of the signal, or those of the deal test."""
    return frozenset({"updates"}) if config.deals else needs_of(config.signal)


@method(_needs)
def components(evidence: Evidence, config: ClusterConfig, before: np.ndarray | None) -> Grouping:
    """Join leaves with a similarity of at least `cluster.tau`, and all joined to them (contract C5)."""
    return _group_by_signal(evidence, config, before, lambda s: threshold_components(s, config.tau))


@method(_needs)
def agglomerative(
    evidence: Evidence, config: ClusterConfig, before: np.ndarray | None, *, linkage: str
) -> Grouping:
    """Join clusters bottom-up by their mean or worst pair, to `cluster.count` or above `cluster.tau`."""
    return _group_by_signal(
        evidence, config, before, lambda s: linkage_labels(s, linkage, config.fixed_count, config.tau)
    )


@method(_needs)
def spectral(evidence: Evidence, config: ClusterConfig, before: np.ndarray | None) -> Grouping:
    """Cut by the leading eigenvectors of the similarity into `cluster.count` clusters."""
    assert config.fixed_count is not None
    count = config.fixed_count
    return _group_by_signal(evidence, config, before, lambda s: spectral_labels(s, count))


def _group_by_signal(
    evidence: Evidence,
    config: ClusterConfig,
    before: np.ndarray | None,
    labels_of: Callable[[np.ndarray], np.ndarray],
) -> Grouping:
    """The clusters of the configured signal; the present ones if unavailable."""
    try:
        similarity = similarity_of(config.signal, evidence, config.arguments("signal"))
    except NotComparable as reason:
        return unchanged_grouping(evidence, before, str(reason))
    return Grouping(labels_of(similarity), similarity)


def linkage_labels(
    similarity: np.ndarray, linkage_: str, count: int | None = None, tau: float = 0.0
) -> np.ndarray:
    """Labels (S,) of bottom-up clustering.

    Args:
        similarity: (S, S), symmetric; the diagonal is not looked at.
        linkage_: "average" or "complete": two clusters are as alike as their mean or their worst pair.
        count: clusters, at most S; None: by `tau`.
        tau: clusters at least this alike are joined.
    """
    from scipy.cluster.hierarchy import linkage  # `components` needs none of SciPy
    from scipy.spatial.distance import squareform

    size = len(similarity)
    if size == 1:
        return np.zeros(1, dtype=np.int64)
    highest = similarity[~np.eye(size, dtype=bool)].max()
    distances = highest - similarity
    np.fill_diagonal(distances, 0.0)
    tree = linkage(squareform(distances, checks=False), linkage_)  # (S-1, 4): whom each step joins, how far
    steps = int((tree[:, 2] <= highest - tau).sum()) if count is None else max(size - count, 0)
    members = {leaf: [leaf] for leaf in range(size)}
    for step, (one, other) in enumerate(tree[:steps, :2].astype(int)):
        members[size + step] = members.pop(one) + members.pop(other)
    labels = np.empty(size, dtype=np.int64)
    for cluster, leaves in members.items():
        labels[leaves] = cluster
    return number_by_first_appearance(labels)


def spectral_labels(similarity: np.ndarray, count: int) -> np.ndarray:
    """Labels (S,) of spectral clustering into `count` clusters, at most S.

    Similarities are shifted to begin at 0 and normalised by degree; each leaf goes to its dominant
    eigenvector, found by a pivoted QR decomposition, so nothing is drawn at random.

    Args:
        similarity: (S, S), symmetric; the diagonal is not looked at.
        count: clusters.

    Source: Damle, Minden and Ying 2019, Simple, direct and efficient multi-way spectral clustering.
    """
    from scipy.linalg import eigh, qr

    size = len(similarity)
    if count == 1 or size <= count:
        return np.zeros(size, dtype=np.int64) if count == 1 else np.arange(size)
    diagonal = np.eye(size, dtype=bool)
    weights = np.where(diagonal, 0.0, similarity - similarity[~diagonal].min())
    roots = np.sqrt(np.maximum(weights.sum(axis=1), np.finfo(np.float64).eps))
    normalised = weights / (roots[:, None] * roots)
    _, vectors = eigh(normalised, subset_by_index=(size - count, size - 1))
    _, _, pivots = qr(vectors.T, pivoting=True, mode="economic")
    u, _, v = np.linalg.svd(vectors[pivots[:count]].T)
    return number_by_first_appearance(np.abs(vectors @ (u @ v)).argmax(axis=1))


def unchanged_grouping(evidence: Evidence, before: np.ndarray | None, reason: str) -> Grouping:
    """The clusters in force, or one cluster if there are none yet, and why there is nothing new.

    `before` is (S,) int64, or None before the first clusters.
    """
    labels = np.zeros(len(evidence.models), dtype=np.int64) if before is None else before
    return Grouping(labels, None, {"skipped": reason})
