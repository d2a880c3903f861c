"""The soft family of models: K models, of which every leaf is offered its own mixture.

    offer of leaf e = Σ_k Π_ek w_k,   w_k = Σ_e Π_ek n_e w_e / Σ_e Π_ek n_e

After a warm-up clusters of leaves split and merge, and Π follows from the distances to their centroids, with
a temperature increasing with the dispersion of a leaf's clients; all by one dial λ
(`fedge.clustering.memberships.soft_moves` has the rules).

Source: "Fedge" of satwatbashir/baselines 103bbb85, step by step, its flaws included. At its default λ = .5
the method never finds groups in practice: the largest dispersion must be 3 times the mean, but 1.2 to 1.5 is
observed, so the method is HierFAVG. The cut uses the wrong eigenvector, never separates two leaves, and two
clusters never merge again. `tested-family` does not have these flaws.
"""

import json
from typing import ClassVar

import numpy as np

from fedge.clustering.cloud_part import CloudPart, Family
from fedge.clustering.likeness.evidence import Evidence
from fedge.clustering.memberships import soft_moves as moves

_RULES = ("heuristic", "mh")


class SoftFamily(CloudPart):
    """The family as published.

    Args:
        dial: λ, 0..1; 0 is close to HierFAVG, 1 to one model per leaf.
        rule: "heuristic", or "mh" for Metropolis-Hastings.
        warmup: rounds with one model.
        smoothing: ρ, share of new memberships in each step.
        coupling: β, effect of the dispersion of a leaf's clients on its temperature.
        most: largest number of models.
        sweeps: proposals per step of "mh".
    """

    needs: ClassVar[frozenset[str]] = frozenset({"dispersion"})
    compares: ClassVar[str] = "distance of models"
    told: ClassVar[str] = "Every leaf is served a mixture of models, whose clusters split and merge"
    keeps: ClassVar[str] = "memberships, clusters, the state of its random numbers"

    def __init__(
        self, dial: float = 0.5, rule: str = "heuristic", warmup: int = 5, smoothing: float = 0.5,
        coupling: float = 1.0, most: int = 10, sweeps: int = 3,
    ) -> None:  # fmt: skip
        if rule not in _RULES:
            raise ValueError(f"rule must be {' or '.join(_RULES)}, but is {rule!r}")
        self._dial, self._rule, self._warmup, self._most = moves.dial_at(dial), rule, warmup, most
        self._smoothing, self._coupling, self._sweeps = smoothing, coupling, sweeps

    def group(self, cloud: Evidence) -> Family:
        """Memberships of this step; the models are the means under them."""
        assert cloud.dispersion is not None
        vectors, dispersion = cloud.vectors, np.nan_to_num(cloud.dispersion, nan=np.nanmean(cloud.dispersion))
        members = members_of(cloud)
        if cloud.global_round > self._warmup:
            members = self._update_clusters(cloud, vectors, members, dispersion)
        shares = moves.memberships(
            vectors, moves.centroids(vectors, members), dispersion, self._dial.tau, self._coupling,
            cloud.memory.get("memberships"), self._smoothing,
        )  # fmt: skip
        keep_members(cloud, members)
        cloud.memory["memberships"] = shares
        return Family(shares, facts={"members": members, "dispersion": dispersion.tolist()})

    def _update_clusters(
        self, cloud: Evidence, vectors: np.ndarray, members: moves.Members, dispersion: np.ndarray
    ) -> moves.Members:
        """Clusters after splits and merges."""
        most = min(self._most, len(vectors))
        if self._rule == "heuristic":
            split = moves.split(
                vectors, members, most, moves.exceeds_dispersion(dispersion, self._dial.split)
            )
            return moves.merge(vectors, split, self._dial.merge)
        rng = np.random.default_rng(cloud.seed)
        if "draws" in cloud.memory:
            rng.bit_generator.state = json.loads(bytes(cloud.memory["draws"]))
        proposed = moves.metropolis_hastings(vectors, members, self._dial.alpha, most, self._sweeps, rng)
        cloud.memory["draws"] = np.frombuffer(json.dumps(rng.bit_generator.state).encode(), np.uint8)
        return proposed


def members_of(cloud: Evidence) -> moves.Members:
    """Clusters of the previous step, in order; before the first step, one cluster of all leaves."""
    if "members" not in cloud.memory:
        return [list(range(len(cloud.models)))]
    ends = np.cumsum(np.atleast_1d(cloud.memory["sizes"]))[:-1]
    return [part.tolist() for part in np.split(np.atleast_1d(cloud.memory["members"]), ends)]


def keep_members(cloud: Evidence, members: moves.Members) -> None:
    """Keep clusters for the next step."""
    cloud.memory["members"] = np.concatenate([np.array(cluster) for cluster in members])
    cloud.memory["sizes"] = np.array([len(cluster) for cluster in members])
