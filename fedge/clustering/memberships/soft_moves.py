"""How a soft family of models changes: its dial, memberships, and how clusters of leaves split and merge.

    dial λ in [0, 1]:  α₀ = 10^(−3 + 5λ), τ₀ = 10^(1 − 2λ), θ_split = 1 + 4(1 − λ), θ_merge = .05 + .95(1 − λ)
    memberships:       Π_e = softmax_k(−d²_ek / τ_e), d²_ek = |w_e − c_k|² over the mean of its row,
                       τ_e = τ₀ (1 + β ζ_e), ζ_e = the dispersion of leaf e over the mean of all
    heuristic:         a cluster splits while its largest over its mean dispersion is above θ_split; the two
                       nearest centroids merge while their squared distance over the mean of pairs is below
                       θ_merge
    Metropolis-Hastings: splits and merges are proposed and taken with min(1, exp Δ), Δ of
                       K ln α₀ + Σ_k ln Γ(n_k) − ½ Σ_e |w_e − mean of its cluster|²

Source: the public code satwatbashir/baselines 103bbb85 (fedge_core.py), step by step, its random draws
included. There the cut is by the eigenvector of the *largest* eigenvalue of a matrix of squared distances,
which is of one sign and orders leaves from central to outlying; two groups appear in the vector of the
*smallest*, the most negative one (`split_by_eigenvector`). Shape letters: S leaves, P parameters, K models,
M members.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedge.clustering.likeness.evidence import squared_distances

Members = list[list[int]]
_LEAST = 1e-8  # of divisors


@dataclass(frozen=True)
class Dial:
    """Settings by one number; λ is cut to 0..1.

    Attributes:
        alpha: α₀ of the prior.
        tau: τ₀, temperature.
        split: θ_split.
        merge: θ_merge.
    """

    alpha: float
    tau: float
    split: float
    merge: float


def dial_at(value: float) -> Dial:
    """The settings at λ.

    >>> dial_at(0.5)
    Dial(alpha=0.31622776601683794, tau=1.0, split=3.0, merge=0.525)
    """
    clipped = min(max(value, 0.0), 1.0)
    return Dial(
        10 ** (-3 + 5 * clipped), 10 ** (1 - 2 * clipped), 1 + 4 * (1 - clipped), 0.05 + 0.95 * (1 - clipped)
    )


def centroids(vectors: np.ndarray, members: Members) -> np.ndarray:
    """Plain means (K, P) of members' models, vectors (S, P)."""
    return np.array([vectors[cluster].mean(axis=0) for cluster in members])


def memberships(
    vectors: np.ndarray,
    centres: np.ndarray,
    dispersion: np.ndarray,
    tau: float,
    coupling: float = 1.0,
    before: np.ndarray | None = None,
    smoothing: float = 0.5,
) -> np.ndarray:
    """Π (S, K), rows sum to 1.

    Args:
        vectors: (S, P), the leaves' models.
        centres: (K, P).
        dispersion: (S,), at least 0.
        tau: τ₀ above 0.
        coupling: β, softening by a leaf's dispersion.
        before: Π of the step before, mixed in if it has as many models; None for none.
        smoothing: share ρ of the new memberships in this mixture.
    """
    distances = squared_distances(vectors, centres)
    distances = distances / np.maximum(distances.mean(axis=1, keepdims=True), _LEAST)
    temperatures = tau * (1 + coupling * dispersion / max(float(dispersion.mean()), _LEAST))
    scores = -distances / temperatures[:, None]
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    if before is not None and before.shape == shares.shape:
        shares = (1 - smoothing) * before + smoothing * shares
        shares /= shares.sum(axis=1, keepdims=True)
    return np.asarray(shares)


def split_by_eigenvector(
    vectors: np.ndarray, cluster: Sequence[int], eigenvector: int = -1
) -> tuple[list[int], list[int]]:
    """A cluster in two: leaves with an entry of an eigenvector above its median, and the others.

    Args:
        vectors: (S, P).
        cluster: M leaves.
        eigenvector: of the squared distances between members, by ascending eigenvalues: -1 the largest,
            as published; 0 the smallest, where positive entries are one part.

    Returns:
        Two parts; one may be empty. The sign of an eigenvector is free, so they may change places.
    """
    points = vectors[list(cluster)]
    entries = np.linalg.eigh(squared_distances(points, points))[1][:, eigenvector]
    threshold = np.median(entries) if eigenvector == -1 else 0.0
    above = [leaf for leaf, entry in zip(cluster, entries, strict=True) if entry > threshold]
    return above, [leaf for leaf in cluster if leaf not in above]


def split(
    vectors: np.ndarray,
    members: Members,
    most: int,
    should_split: Callable[[list[int]], bool],
    eigenvector: int = -1,
) -> Members:
    """Clusters after all splits; the first part takes a cluster's place, the second comes last.

    Args:
        vectors: (S, P).
        members: members of each cluster.
        most: clusters.
        should_split: tells whether a cluster of at least two leaves is to be cut.
        eigenvector: as in `split_by_eigenvector`.
    """
    clusters = [list(cluster) for cluster in members]
    i = 0
    while i < len(clusters) and len(clusters) < min(most, len(vectors)):
        parts = (
            split_by_eigenvector(vectors, clusters[i], eigenvector)
            if len(clusters[i]) > 1 and should_split(clusters[i])
            else ([], [])
        )
        if all(parts):
            clusters[i] = parts[0]
            clusters.append(parts[1])
            i = 0
        else:
            i += 1
    return clusters


def exceeds_dispersion(dispersion: np.ndarray, threshold: float) -> Callable[[list[int]], bool]:
    """Whether a cluster's largest over its mean dispersion (S,) is above a threshold: the published rule."""

    def should_split(cluster: list[int]) -> bool:
        values = dispersion[cluster]
        return bool(values.max() / max(float(values.mean()), _LEAST) > threshold)

    return should_split


def merge(vectors: np.ndarray, members: Members, threshold: float) -> Members:
    """Clusters (of vectors (S, P)) after all merges of the two nearest; with two the ratio is 1: never."""
    clusters = [list(cluster) for cluster in members]
    while len(clusters) > 1:
        centres = centroids(vectors, clusters)
        one, other = np.triu_indices(len(clusters), 1)
        pairs = squared_distances(centres, centres)[one, other]
        nearest = int(pairs.argmin())
        if not pairs[nearest] / max(float(pairs.mean()), _LEAST) < threshold:
            break
        clusters = _merge_pair(clusters, int(one[nearest]), int(other[nearest]))
    return clusters


def _merge_pair(members: Members, one: int, other: int) -> Members:
    clusters = [list(cluster) for cluster in members]
    clusters[one] += clusters.pop(other)
    return clusters


def metropolis_hastings(
    vectors: np.ndarray, members: Members, alpha: float, most: int, sweeps: int, rng: np.random.Generator
) -> Members:
    """Clusters after `sweeps` proposals, each a split with probability (most − K)/most, else a merge.

    A cluster is chosen by its scatter, two to merge by 1/(d² + 1). Proposals' own probabilities are left out,
    as in the public code, so this is no sampler of the posterior.

    Args:
        vectors: (S, P).
        members: members of each cluster.
        alpha: α₀.
        most: largest number of clusters, at least 1.
        sweeps: number of proposals.
        rng: source of draws.
    """
    for _ in range(sweeps):
        splits = rng.random() < (most - len(members)) / most
        propose = _split_by_chance if splits else _merge_by_chance
        proposed = propose(vectors, members, rng)
        if proposed is not None:
            gain = _log_posterior(vectors, proposed, alpha) - _log_posterior(vectors, members, alpha)
            if rng.random() < math.exp(min(gain, 0.0)):
                members = proposed
    return members


def _split_by_chance(vectors: np.ndarray, members: Members, rng: np.random.Generator) -> Members | None:
    candidates = [index for index, cluster in enumerate(members) if len(cluster) > 1]
    scatter = np.array([_scatter(vectors, members[index]) for index in candidates])
    if not candidates or scatter.sum() <= 0:
        return None
    index = candidates[int(rng.choice(len(candidates), p=scatter / scatter.sum()))]
    first, second = split_by_eigenvector(vectors, members[index])
    if not first or not second:
        return None
    return [*members[:index], first, *members[index + 1 :], second]


def _merge_by_chance(vectors: np.ndarray, members: Members, rng: np.random.Generator) -> Members | None:
    if len(members) < 2:
        return None
    centres = centroids(vectors, members)
    one, other = np.triu_indices(len(members), 1)
    closeness = 1 / (squared_distances(centres, centres)[one, other] + 1)
    pair = int(rng.choice(len(closeness), p=closeness / closeness.sum()))
    return _merge_pair(members, int(one[pair]), int(other[pair]))


def _scatter(vectors: np.ndarray, cluster: Sequence[int]) -> float:
    points = vectors[list(cluster)]
    return float(((points - points.mean(axis=0)) ** 2).sum())


def _log_posterior(vectors: np.ndarray, members: Members, alpha: float) -> float:
    prior = len(members) * math.log(alpha) + sum(math.lgamma(len(cluster)) for cluster in members)
    return prior - 0.5 * sum(_scatter(vectors, cluster) for cluster in members)
