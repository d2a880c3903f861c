"""A soft family with splits and merges by a test for differences between leaves.

As `soft-family`, but for the moves of clusters: a cluster is cut by the eigenvector of the *smallest*
eigenvalue of its squared distances, which separates two groups for any dispersions, and only if the deal test
finds a difference between the parts: p of this cut, among all cuts of all ways to deal the same clients to
leaves (`fedge.clustering.deal_test.deals`), at most `level` times the share of all clients under these leaves
(Meinshausen 2008, "Hierarchical testing of variable importance"). Two clusters without a significant
difference merge again. The test compares clients' models from one common start: in round 1, and again after
each probe (`cluster.probe-every`). In between, only the proposed cuts change, with the leaves' models; they
are tested on the same updates, as some of all cuts, so the level holds for all of them together.

Two leaves can therefore be separated, clean groups are found, false groups occur in about `level` of runs at
most, and K decreases again. Memberships, models and the dial's temperature are those of the published family.
"""

from typing import ClassVar

import numpy as np

from fedge.clustering.deal_test.auto import p_of_cut
from fedge.clustering.likeness.evidence import Evidence
from fedge.clustering.memberships import soft_moves as moves
from fedge.methods.soft_family import SoftFamily


class TestedFamily(SoftFamily):
    """The family with tested clusters.

    Args:
        dial: λ, 0..1, of the temperature.
        level: largest p of a cut, above 0.
        smoothing: ρ, share of new memberships in each step.
        coupling: β, effect of the dispersion of a leaf's clients on its temperature.
        most: largest number of models.
    """

    __test__ = False  # no test of pytest's
    needs: ClassVar[frozenset[str]] = frozenset({"dispersion", "updates"})
    compares: ClassVar[str] = "clients' updates of one model, and distance of models"
    told: ClassVar[str] = "Every leaf is served a mixture of models, whose clusters are told by the deal test"

    def __init__(
        self, dial: float = 0.5, level: float = 0.05, smoothing: float = 0.5, coupling: float = 1.0,
        most: int = 10,
    ) -> None:  # fmt: skip
        super().__init__(dial, "heuristic", 0, smoothing, coupling, most)
        self._level = level

    def _update_clusters(
        self, cloud: Evidence, vectors: np.ndarray, members: moves.Members, dispersion: np.ndarray
    ) -> moves.Members:
        """Clusters after splits, and after merges of those without a significant difference."""
        likeness = cloud.likeness
        if likeness is None:
            return members

        def differ(first: list[int], second: list[int]) -> bool:
            leaves = sorted([*first, *second])
            level = self._level * float(np.isin(likeness.leaf_of, leaves).mean())
            try:
                return p_of_cut(likeness, leaves, first, cloud.seed) <= level
            except ValueError:  # too few clients for a test
                return False

        def should_split(cluster: list[int]) -> bool:
            first, second = moves.split_by_eigenvector(vectors, cluster, 0)
            return bool(first and second) and differ(first, second)

        merged: moves.Members = []
        for cluster in members:
            match = next((candidate for candidate in merged if not differ(candidate, cluster)), None)
            if match is None:
                merged.append(list(cluster))
            else:
                match += cluster
        return moves.split(vectors, merged, min(self._most, len(vectors)), should_split, 0)
