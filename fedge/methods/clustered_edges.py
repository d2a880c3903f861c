"""Clustered edges: after a few rounds with one model, k-means++ groups the leaves once and for all.

    rounds 1 … T_w: HierFAVG; at the end of round T_w labels = k-means++(w_e − w̄), w̄ the weighted mean;
    afterwards the next model of a cluster's leaves is their mean

Of the K initial centres, the first is a random leaf, each next one drawn with probability ∝ D²; Lloyd's steps
follow until nothing changes (at most 100); an empty cluster takes the farthest point of the largest one. K ≥
S gives labels i mod K.

Source: the public code named CHPFL in satwatbashir/baselines 103bbb85. The method differs from the paper of
this name (Song, Li, Jiang, Wei, Guo 2026, "CHPFL: Clustered adaptive hierarchical federated learning for
edge-level personalization"), which groups clients and blends two models at every edge; hence its own name.
"""

from typing import ClassVar

import numpy as np

from fedge.clustering.cloud_part import CloudPart
from fedge.clustering.likeness.evidence import Evidence, squared_distances

_STEPS = 100


class ClusteredEdges(CloudPart):
    """Hard clusters of leaves, found once.

    Args:
        clusters: K, at least 1.
        warmup: T_w, rounds of one model, at least 1.
    """

    compares: ClassVar[str] = "distance from the mean"
    told: ClassVar[str] = "Leaves are grouped once, by k-means++ of how they differ from the mean of all"
    keeps: ClassVar[str] = "the groups, once found"

    def __init__(self, clusters: int = 3, warmup: int = 5) -> None:
        if min(clusters, warmup) < 1:
            raise ValueError(f"clusters and warmup must be at least 1, but are {clusters} and {warmup}")
        self._clusters, self._warmup = clusters, warmup

    def group(self, cloud: Evidence) -> np.ndarray:
        """Labels (S,): one group until the warm-up ends; then those found at its end."""
        if "labels" in cloud.memory:
            return np.asarray(cloud.memory["labels"])
        if cloud.global_round < self._warmup:
            return np.zeros(len(cloud.models), np.int64)
        points = cloud.vectors - (cloud.weight_shares[:, None] * cloud.vectors).sum(axis=0)
        cloud.memory["labels"] = kmeans_labels(points, self._clusters, np.random.default_rng(cloud.seed))
        return np.asarray(cloud.memory["labels"])


def kmeans_labels(points: np.ndarray, clusters: int, rng: np.random.Generator) -> np.ndarray:
    """Labels (N,) of points (N, D) by k-means++ with D² starts."""
    count = len(points)
    if clusters >= count:
        return np.arange(count) % clusters
    centres = points[[int(rng.integers(count))]]
    while len(centres) < clusters:
        nearest = squared_distances(points, centres).min(axis=1)
        chances = nearest / nearest.sum() if nearest.sum() > 0 else np.full(count, 1 / count)
        centres = np.vstack([centres, points[int(rng.choice(count, p=chances))]])
    labels = np.full(count, -1)
    for _ in range(_STEPS):
        distances = squared_distances(points, centres)
        assigned = distances.argmin(axis=1)
        for empty in sorted(set(range(clusters)) - set(assigned.tolist())):
            largest = np.flatnonzero(assigned == np.bincount(assigned, minlength=clusters).argmax())
            assigned[largest[distances[largest, assigned[largest]].argmax()]] = empty
        if np.array_equal(assigned, labels):
            break
        labels = assigned
        centres = np.array([points[labels == k].mean(axis=0) for k in range(clusters)])
    return labels
