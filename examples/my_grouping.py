"""A grouping method: a function of the cloud's evidence. Here agglomerative, cut at the largest gap."""

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from fedge.clustering import Evidence, Grouping, method
from fedge.config.sections.cluster import ClusterConfig


def needs(_: ClusterConfig) -> frozenset[str]:
    """Request the leaves' initial models, for the updates."""
    return frozenset({"starts"})


@method(needs, compares="directions of updates")
def largest_gap(evidence: Evidence, config: ClusterConfig, before: np.ndarray | None) -> Grouping:
    """Merge leaves by the cosine of their updates; stop before the largest step in distance."""
    updates = [
        np.concatenate([(model[n] - start[n]).astype(np.float64).ravel() for n in evidence.parameter_names])
        for model, start in zip(evidence.models, evidence.starts, strict=True)
    ]
    unit = np.stack([update / max(float(np.sqrt((update**2).sum())), 1e-12) for update in updates])
    similarity = np.array([[float((one * other).sum()) for other in unit] for one in unit])
    if len(unit) < 3:  # no gap between one distance
        return Grouping(np.zeros(len(unit), dtype=np.int64), similarity)
    distances = 1 - similarity[np.triu_indices(len(unit), k=1)]
    tree = linkage(np.maximum(distances, 0), "average")
    gap = int(np.argmax(np.diff(tree[:, 2])))
    labels = fcluster(tree, tree[gap, 2], "distance")
    return Grouping(labels, similarity, {"gap": float(tree[gap + 1, 2] - tree[gap, 2])})
