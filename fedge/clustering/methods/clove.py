"""CLoVE at the leaves: leaves with similar losses on the cloud's models form one cluster.

Bhatia, Papadis, Kodialam, Lakshman, Chakrabarty 2025, "Clustered federated learning by loss vector
embeddings" (arXiv 2506.22427). The cloud has k models, as in IFCA (`fedge.clustering.methods.ifca`). Each
round

    vectors   L_i = (F_i(θ_1), …, F_i(θ_k)), the mean loss of every model at a leaf's clients
    clusters  k-means of the vectors. Where their number is not known: for K = 2, 3, … a Ward tree is cut into
              K, and a larger K is taken only if its silhouette is more than a tenth better than the best so
              far; then k-means with this K
    models    clusters and models are matched by the smallest sum of losses (Hungarian method); the leaves of
              a cluster train its matched model, and θ_j becomes their weighted mean; an unmatched model stays

where IFCA lets every leaf take its model of least loss. Before the first round leaves are dealt to models at
random, as in nearly all experiments of the authors.

Read in the authors' code (Nokia-Bell-Labs/Loss-Vector-based-Clustered-Federated-Learning at b602090f,
`utils/algorithm_utils.py`): all of the above, with k-means from scikit-learn, the vectors repeated five times
for the silhouette where as many clusters as members are possible, models numbered by their first member after
the random deal, and an end of grouping once everybody has had one model for three rounds. Not read: the
paper's own algorithm and tables. Left out: FINCH in place of k-means, square roots of losses, copies of a
model in mid-run, and members first seen later. Losses are of validation windows unless `losses_on` is
"train", as there. Shape letters: S leaf servers, k models.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedge.clustering.likeness.evidence import Evidence
from fedge.clustering.likeness.similarity import number_by_first_appearance
from fedge.clustering.methods.ifca import leaf_losses
from fedge.clustering.registry import Grouping, Need, method
from fedge.config.sections.cluster import ClusterConfig
from fedge.seeding import Purpose, legacy_stream, numpy_stream
from fedge.states.restore_checks import checked_int, refuse_unequal_facts

_BETTER = 1.10  # by which a silhouette must exceed the best of fewer clusters
_REPEATS = 5  # of each vector, where there are too few for the silhouette of so many clusters


def _pool(_: ClusterConfig) -> frozenset[Need]:
    """Need k models for evaluation by clients."""
    return frozenset({"pool"})


def _refuse_other(kept: Mapping[str, Any], _: ClusterConfig, __: int) -> None:
    """Raise ValueError for a state `clove` cannot have left."""
    refuse_unequal_facts(
        kept, {"rounds": checked_int(kept["rounds"], "cluster steps without a change")}, "kept"
    )


@method(_pool, "losses of the cloud's models", _refuse_other)
def clove(
    evidence: Evidence,
    config: ClusterConfig,
    before: np.ndarray | None,
    *,
    losses_on: str,
    unknown: bool,
    first: str,
    stable: int,
) -> Grouping:
    """Let the leaves of a cluster of loss vectors take one of the cloud's `cluster.count` models.

    Args:
        evidence: evidence with answers.
        config: configuration of the run.
        before: (S,) labels in force, or None.
        losses_on: split of the windows with these losses, for which the cloud asks.
        unknown: whether to estimate the number of clusters, at most `cluster.count`; else it is this number.
        first: assignment of leaves to models before round 1: "random", or by "losses" as later.
        stable: successive rounds without a change of models after which leaves keep theirs; 0: never.
    """
    assert evidence.answers is not None and config.fixed_count is not None  # noqa: PT018
    models, leaves = config.fixed_count, len(evidence.weights)
    losses = leaf_losses(evidence.answers, models, leaves)
    rounds = int(evidence.kept.get("rounds", 0))  # without a change
    facts: dict[str, Any] = {}
    if evidence.taken is None and first == "random":
        taken = draw_models(leaves, models, evidence.seed)
    elif evidence.taken is not None and stable and rounds >= stable:
        taken = evidence.taken
    else:
        taken, facts = _assign_by_vectors(losses, evidence, unknown)
    is_unchanged = evidence.taken is not None and np.array_equal(taken, evidence.taken)
    shown = [[float(loss) if np.isfinite(loss) else None for loss in row] for row in losses]
    facts |= {"taken": taken.tolist(), "losses": shown}
    kept = {"rounds": rounds + 1 if is_unchanged else 0}
    return Grouping(number_by_first_appearance(taken), None, facts, taken, kept)


def _assign_by_vectors(
    losses: np.ndarray, evidence: Evidence, unknown: bool
) -> tuple[np.ndarray, dict[str, Any]]:
    """The model of each leaf (S,) by its loss vector, and facts with the number of clusters.

    A leaf without answers keeps its model; a diverged model counts with the worst loss of any leaf.
    """
    previous = np.zeros(len(losses), np.int64) if evidence.taken is None else evidence.taken
    known = np.flatnonzero(~np.isnan(losses).any(axis=1))
    finite = losses[np.isfinite(losses)]
    if not known.size or not finite.size:
        return previous, {}
    vectors = np.minimum(losses[known], finite.max())
    count = best_count(vectors, losses.shape[1]) if unknown else losses.shape[1]
    clusters = _k_means(vectors, count, evidence.seed)
    taken = previous.copy()
    taken[known] = assign_models(clusters, vectors)[clusters]
    return taken, {"clusters": int(clusters.max()) + 1}


def draw_models(leaves: int, models: int, seed: int) -> np.ndarray:
    """(S,) models drawn alike; a model not drawn goes to a random leaf.

    Models are numbered by their first leaf.
    """
    rng = numpy_stream(seed, Purpose.GROUPS, 0)
    drawn = rng.integers(models, size=leaves)
    for model in range(models):
        if model not in drawn:
            drawn[rng.integers(leaves)] = model
    return number_by_first_appearance(drawn)


def best_count(vectors: np.ndarray, most: int) -> int:
    """The number of clusters with the best silhouette, a larger one only if clearly better.

    Args:
        vectors: (S, k).
        most: possible numbers of clusters, up to the number of vectors.
    """
    from sklearn.cluster import AgglomerativeClustering  # takes a second to load, which few runs need spend
    from sklearn.metrics import silhouette_score

    most = min(most, len(vectors))
    points = np.repeat(vectors, _REPEATS, axis=0) if most >= len(vectors) else vectors
    best_score, chosen = -1.0, 1
    for count in range(2, most + 1):
        labels = AgglomerativeClustering(count, linkage="ward").fit_predict(points)
        score = float(silhouette_score(points, labels))
        if score > best_score * _BETTER:
            best_score, chosen = score, count
    return chosen


def _k_means(vectors: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The cluster (S,) of each vector, 0, 1, … without gaps; fewer where vectors are equal."""
    from sklearn.cluster import KMeans  # as in `best_count`
    from sklearn.exceptions import ConvergenceWarning

    count = min(count, len(vectors))
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # equal vectors are one cluster, as they should be
        draws = legacy_stream(seed, Purpose.GROUPS)
        return number_by_first_appearance(KMeans(count, random_state=draws).fit_predict(vectors))


def assign_models(clusters: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The model of each cluster, each another one, with the smallest sum of losses.

    Args:
        clusters: (S,) 0, 1, …, at most k of them.
        vectors: (S, k).

    >>> vectors = np.array([[1.0, 2.0], [1.0, 3.0], [0.5, 0.9]])
    >>> assign_models(np.array([0, 0, 1]), vectors).tolist()  # 1 + 1 + 0.9, not 2 + 3 + 0.5
    [0, 1]
    """
    sums = np.stack([vectors[clusters == cluster].sum(axis=0) for cluster in range(int(clusters.max()) + 1)])
    models: np.ndarray = linear_sum_assignment(sums)[1]
    return models
