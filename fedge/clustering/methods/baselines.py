"""Baselines: published methods of grouping leaves, and two that know the true groups.

All are values of `cluster.method`; configs/baselines/ sets them up as published, with leaves in place of
clients. They compare leaves' *updates*: the change of the trainable entries in a global round. Shape letter:
S leaf servers.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from fedge.clustering.cadence import is_split_due
from fedge.clustering.likeness.evidence import Evidence, NotComparable
from fedge.clustering.likeness.similarity import number_by_first_appearance
from fedge.clustering.methods.hierarchical import unchanged_grouping
from fedge.clustering.registry import Grouping, Need, method
from fedge.config.sections.cluster import ClusterConfig
from fedge.seeding import Purpose, legacy_stream, numpy_stream
from fedge.states.restore_checks import checked_bool, checked_list, checked_number, refuse_unequal_facts

_GROUPED = "grouped"  # in the kept facts: whether a postponed grouping has been made
AUTO = "auto"  # a limit set by a rule
_STILL, _PULL, _APART = 0.1, 6.0, 0.1  # of CFL: eps1 / largest norm, eps2 / eps1, the angle between the parts


def needs_one_start(_: ClusterConfig) -> frozenset[Need]:
    """Need one model with which all leaves began: their updates are compared."""
    return frozenset({"starts", "one-start"})


def _cluster_start(_: ClusterConfig) -> frozenset[Need]:
    """Need one model with which the leaves of a cluster began: updates are compared within clusters."""
    return frozenset({"starts", "cluster-start"})


@method(compares="nothing")
def alone(evidence: Evidence, config: ClusterConfig, before: np.ndarray | None) -> Grouping:
    """Leave every leaf alone: no models are averaged."""
    return Grouping(np.arange(len(evidence.models)), None)


@method(compares="nothing")
def oracle(evidence: Evidence, config: ClusterConfig, before: np.ndarray | None) -> Grouping:
    """The groups planted by a scenario: the optimum of any grouping."""
    return Grouping(number_by_first_appearance(_true_groups(evidence)), None)


@method(compares="nothing")
def random(evidence: Evidence, config: ClusterConfig, before: np.ndarray | None) -> Grouping:
    """Groups of the true groups' sizes, their members drawn once per seed: the effect of sizes alone."""
    shuffled = numpy_stream(evidence.seed, Purpose.GROUPS).permutation(_true_groups(evidence))
    return Grouping(number_by_first_appearance(shuffled), None)


def _true_groups(evidence: Evidence) -> np.ndarray:
    """The true groups, which the configuration guarantees."""
    assert evidence.truth is not None
    return evidence.truth


def _refuse_other_norms(kept: Mapping[str, Any], _: ClusterConfig, leaves: int) -> None:
    """Raise ValueError for a state `cfl` cannot have left."""
    largest = [
        checked_number(norm, "a norm", 0) for norm in checked_list(kept["largest"], "largest norms", leaves)
    ]
    refuse_unequal_facts(kept, {"largest": largest}, "kept")


def _refuse_other_note(kept: Mapping[str, Any], _: ClusterConfig, __: int) -> None:
    """Raise ValueError for a state that no method with one grouping, perhaps postponed, leaves."""
    refuse_unequal_facts(kept, {_GROUPED: checked_bool(kept[_GROUPED], "whether groups are made")}, "kept")


@method(_cluster_start, "update", _refuse_other_norms)
def cfl(
    evidence: Evidence,
    config: ClusterConfig,
    before: np.ndarray | None,
    *,
    still_below: float | str,
    pull_above: float | str,
) -> Grouping:
    """Cut a cluster in two once its mean update is small while single leaves' updates are still large.

    With updates u_j and weights w_j, cluster C is cut if |Σ_C w_j u_j| / Σ_C w_j < eps1 and
    max_C |u_j| > eps2, into the two parts between which the largest cosine of two updates is smallest
    (single linkage finds them). All leaves begin in one cluster; clusters never join; a part may be cut
    again at the next cloud step.

    Source: Sattler, Müller, Samek 2020, "Clustered Federated Learning: Model-Agnostic Distributed
    Multitask Optimization Under Privacy Constraints", algorithms 1 and 2. The authors' code cuts by complete
    linkage instead, only clusters of three or more and after round 20, with eps1 = 0.4 and eps2 = 1.6, which
    depend on model and data.

    `still-below = "auto"`: eps1 is a tenth of the largest norm so far of the mean update of a cluster, or of
    its ancestors. `pull-above = "auto"`: eps2 = 6 eps1, and with the largest cosine α between the two parts
    √((1 − α) / 2) must be above 0.1. Source: how the code of FedDrift sets CFL up beside itself
    (Jothimurugesan et al. 2023, github.com/microsoft/FedDrift, `FedAvgEnsDataLoader.py`, `cluster_cfl`), with
    one largest norm for all clusters, complete linkage and unweighted means; a cut restarts a model there.
    """
    labels = np.zeros(len(evidence.models), np.int64) if before is None else before.copy()
    largest = np.array(evidence.kept.get("largest", np.zeros(len(labels))))
    gram = inner_products(evidence)
    similarity = cosines_of(gram)
    weights = np.asarray(evidence.weights, np.float64)
    norms = []
    for cluster in range(int(labels.max()) + 1):
        members = np.flatnonzero(labels == cluster)
        within, share = gram[np.ix_(members, members)], weights[members] / weights[members].sum()
        mean_norm = float(np.sqrt(max(0.0, share @ within @ share)))
        max_norm = float(np.sqrt(within.diagonal().max()))
        norms.append([mean_norm, max_norm])
        largest[members] = largest[members].max(initial=mean_norm)
        still, pull = _limits_of_cfl(still_below, pull_above, float(largest[members[0]]))
        if len(members) > 1 and mean_norm < still and max_norm > pull:
            alike = similarity[np.ix_(members, members)]
            second = _split_in_two(alike)
            across = float(alike[np.ix_(second, ~second)].max())
            if pull_above != AUTO or np.sqrt((1 - across) / 2) > _APART:
                labels[members[second]] = labels.max() + 1
    facts, kept = {"norms": norms}, {"largest": largest.tolist()}
    return Grouping(number_by_first_appearance(labels), similarity, facts, kept=kept)


def _limits_of_cfl(below: float | str, above: float | str, largest: float) -> tuple[float, float]:
    """Eps1 and eps2 for a cluster with a mean update of norm `largest` at most."""
    still = _STILL * largest if isinstance(below, str) else below
    return still, _PULL * still if isinstance(above, str) else above


def _split_in_two(similarity: np.ndarray) -> np.ndarray:
    """The second of the two least similar parts, as a mask over leaves."""
    from sklearn.cluster import AgglomerativeClustering  # takes a second to load, which few runs need spend

    parts = AgglomerativeClustering(2, metric="precomputed", linkage="single").fit_predict(1 - similarity)
    second: np.ndarray = parts != parts[0]
    return second


@method(needs_one_start, "update", _refuse_other_note)
def flhc(
    evidence: Evidence, config: ClusterConfig, before: np.ndarray | None, *, split_round: int, cut: str
) -> Grouping:
    """Average all leaves until round `split_round`, then group them once by their updates.

    Groups are joined bottom-up while their mean cosine is above tau (average linkage). With `cut="gap"`
    joining ends before the largest step in distance. The last step ends at 1, the distance of updates without
    anything in common: if the last step is the largest, all leaves are one cluster.

    Source: Briggs, Fan, Andras 2020, "Federated Learning with Hierarchical Clustering of Local Updates to
    Improve Training on Non-IID Data" (FL+HC), which tries several distances and linkages, this among them,
    with a threshold chosen for the data. The rule of `cut="gap"` is ours: independent of the data set.
    """
    if not _groups_now(evidence, split_round, config.every, before is None):
        return _keep_groups(evidence, before)
    try:
        similarity = cosines_of(inner_products(evidence))
    except NotComparable as reason:
        return _postpone(evidence, before, reason)
    if len(similarity) == 1:
        return Grouping(np.zeros(1, np.int64), similarity)
    from sklearn.cluster import AgglomerativeClustering  # as in `_split_in_two`

    tau = widest_merge_gap(similarity) if cut == "gap" else config.tau
    tree = AgglomerativeClustering(
        None, metric="precomputed", linkage="average", distance_threshold=max(0.0, 1 - tau)
    )
    labels = number_by_first_appearance(tree.fit_predict(1 - similarity))
    return Grouping(
        labels, similarity, {"gap_at": tau} if cut == "gap" else {}, kept=_postponed_note(evidence)
    )


def widest_merge_gap(similarity: np.ndarray) -> float:
    """The similarity in the middle of the widest gap between one joining of groups and the next.

    Groups are joined bottom-up by their mean similarity. After the last joining comes the similarity 0 of
    leaves with nothing in common; groups with a smaller similarity are not joined.

    Args:
        similarity: (S, S) cosines of at least two leaves.
    """
    distances = 1 - similarity
    np.fill_diagonal(distances, 0.0)
    heights = np.append(linkage(squareform(distances, checks=False), "average")[:, 2], 1.0)
    widest = int(np.diff(heights).argmax())
    return 1 - float(heights[widest] + heights[widest + 1]) / 2


@method(needs_one_start, "update", _refuse_other_note)
def kmeans(
    evidence: Evidence, config: ClusterConfig, before: np.ndarray | None, *, split_round: int
) -> Grouping:
    """Average all leaves until round `split_round`; group them then, once, by k-means on their updates.

    k = `count`. Points are placed by their inner products, which keeps all distances: a leaf is then S
    numbers instead of a model, and k-means of them is k-means of the updates.

    Source: the grouping of CHPFL (Song et al. 2026, "CHPFL: Clustered adaptive hierarchical federated
    learning for edge-level personalization"), k-means++ (Arthur and Vassilvitskii 2007) on model updates;
    there clients are dealt to edge servers, here leaves to clusters.
    """
    if not _groups_now(evidence, split_round, config.every, before is None):
        return _keep_groups(evidence, before)
    try:
        gram = inner_products(evidence)
    except NotComparable as reason:
        return _postpone(evidence, before, reason)
    values, vectors = np.linalg.eigh(gram)
    points = vectors * np.sqrt(np.maximum(values, 0.0))
    assert config.fixed_count is not None
    from sklearn.cluster import KMeans  # as in `_split_in_two`

    draws = legacy_stream(evidence.seed, Purpose.GROUPS)
    labels = KMeans(min(config.fixed_count, len(points)), n_init=10, random_state=draws).fit_predict(points)
    return Grouping(number_by_first_appearance(labels), cosines_of(gram), kept=_postponed_note(evidence))


def _groups_now(evidence: Evidence, split_round: int, every: int, is_first: bool) -> bool:
    """Whether groups are made in this cloud step: the first in or after round `split_round`, or one after it.

    A step in which leaves do not begin from one model makes none, and says so: the next one is asked again.
    """
    is_overdue = evidence.global_round >= split_round and evidence.kept.get(_GROUPED) is False
    return is_overdue or is_split_due(evidence.global_round, split_round, every, is_first)


def _postpone(evidence: Evidence, before: np.ndarray | None, reason: NotComparable) -> Grouping:
    """Keep the groups, because leaves cannot be compared in the grouping step; the next step tries again."""
    return replace(unchanged_grouping(evidence, before, str(reason)), kept={_GROUPED: False})


def _postponed_note(evidence: Evidence) -> dict[str, bool] | None:
    """Note of a postponed grouping, once made, for `Grouping.kept`; None if it was not postponed."""
    return {_GROUPED: True} if _GROUPED in evidence.kept else None


def _keep_groups(evidence: Evidence, before: np.ndarray | None) -> Grouping:
    """Keep the groups; before there are any, all leaves are one."""
    return Grouping(np.zeros(len(evidence.models), np.int64) if before is None else before, None)


def inner_products(evidence: Evidence) -> np.ndarray:
    """The (S, S) inner products of the leaves' updates, in float64, entry by entry of the model.

    Raises:
        ValueError: an update is not finite (the leaf is named).
    """
    assert evidence.starts is not None
    count = len(evidence.models)
    gram = np.zeros((count, count))
    for name in evidence.parameter_names:
        updates = [
            np.subtract(model[name], start[name], dtype=np.float64)
            for model, start in zip(evidence.models, evidence.starts, strict=True)
        ]
        for i, update in enumerate(updates):
            if not np.isfinite(update).all():
                raise ValueError(f"leaf {i} has non-finite weights; its training diverged, lower train.lr")
            gram[i, : i + 1] += [float((update * other).sum()) for other in updates[: i + 1]]
    return gram + np.tril(gram, -1).T


def cosines_of(gram: np.ndarray) -> np.ndarray:
    """Cosines from inner products, (S, S) both; 0 for zero vectors, 1 on the diagonal."""
    norms = np.sqrt(np.outer(gram.diagonal(), gram.diagonal()))
    cosines = np.divide(gram, norms, out=np.zeros_like(gram), where=norms > 0)
    np.fill_diagonal(cosines, 1.0)
    clipped: np.ndarray = np.clip(cosines, -1.0, 1.0)
    return clipped
