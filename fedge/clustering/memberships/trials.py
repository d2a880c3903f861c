"""Results of trials: the gain of a change of groups, by clients' losses on other leaves' models.

The gain of a change, in log loss, is the mean over its parts of the mean over their clients of

    gain = log(loss, present) − log(loss, proposed)

so one departing leaf counts as much as the many remaining. A split or a move must gain more than
`cluster.min-gain`; a merge may lose as much, because fewer clusters are simpler. If leaves differ much in
their classes, a split or a move must gain as much for people with the classes of all leaves instead, and lose
no more in log loss (`fedge.clustering.memberships.mixture`). Questions and answers:
`fedge.clustering.memberships.strangers`. Shape letters: S leaf servers, K clients.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedge.clustering.memberships.mixture import standardised_gain
from fedge.clustering.memberships.proposals import ClusterChange
from fedge.clustering.memberships.strangers import StrangerLosses, is_simple_move

_CLEARLY = 4  # times min_gain, by which a leaf must do better on the other side of a cut


@dataclass(frozen=True)
class TrialResult:
    """Result of a trial of one change.

    Attributes:
        gain: fall of log loss, with equal weight for each part; 0.1 is about 10 %.
        parts: the same for each part; None for a part without answers.
        better: share of the clients with a falling loss.
        clients: number of clients with evaluations of both models.
        useful: whether the change should be made.
        home: the cluster whose model serves the others of a merge unchanged; empty where forks do better.
        standardised: by how much the log of the error falls for people with the classes of all leaves; None
            where leaves hardly differ in these.
    """

    gain: float
    parts: tuple[float | None, ...]
    better: float
    clients: int
    useful: bool
    home: tuple[int, ...] = ()
    standardised: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The result as JSON."""
        facts = {**asdict(self), "parts": list(self.parts)}
        return {name: fact for name, fact in facts.items() if name != "standardised" or fact is not None}


def change_gain(change: ClusterChange, losses: StrangerLosses, min_gain: float) -> TrialResult | None:
    """Gain of a change in the clients' answers; None if no client has evaluated both models."""
    if change.kind == "merge":
        result = _result_of_merge(change, losses)
        return None if result is None else replace(result, useful=result.gain >= -min_gain)
    result = _mean_gain(losses.present - losses.proposed, losses.leaf_of, _judging_parts(change))
    if result is None:
        return None
    by_class = None if losses.by_class is None else standardised_gain(losses.by_class, _judging_parts(change))
    useful = result.gain > min_gain if by_class is None else by_class > min_gain and result.gain > -min_gain
    return replace(result, useful=useful, standardised=by_class)


def _judging_parts(change: ClusterChange) -> tuple[tuple[int, ...], ...]:
    """The parts of a split or move whose clients judge it."""
    return (change.movers,) if is_simple_move(change) else change.after


def _result_of_merge(change: ClusterChange, losses: StrangerLosses) -> TrialResult | None:
    """Gain of a merge: by forks of the mean of all, or with the model of one of its clusters.

    If clusters have become alike since they were split, for example because the cause is gone, the mean of
    their models may be worse than one of them. Clients of the model's own cluster gain nothing.
    """
    candidates = [_mean_gain(losses.present - losses.proposed, losses.leaf_of, change.before)]
    for home in change.before:
        model = losses.clusters[losses.labels[home[0]]]
        falls = np.where(np.isin(losses.leaf_of, home), 0.0, losses.present - model)
        served = _mean_gain(falls, losses.leaf_of, change.before)
        if served is not None and all(part is not None for part in served.parts):
            candidates.append(replace(served, home=home))
    results = [result for result in candidates if result is not None]
    return max(results, key=lambda result: result.gain, default=None)


def _mean_gain(
    falls: np.ndarray, leaf_of: np.ndarray, parts: Sequence[tuple[int, ...]]
) -> TrialResult | None:
    """Mean fall of log loss over parts of leaves, each part counting alike; None if all are unknown.

    Args:
        falls: (K,) its decrease at each client; NaN where unknown.
        leaf_of: (K,) the leaf of each client.
        parts: parts of leaves.
    """
    of_parts = [falls[np.isin(leaf_of, part)] for part in parts]
    known = [part[np.isfinite(part)] for part in of_parts]
    means = [float(part.mean()) if part.size else None for part in known]
    known_means = [mean for mean in means if mean is not None]
    if not known_means:
        return None
    gain, known_falls = float(np.mean(known_means)), np.concatenate(known)
    return TrialResult(gain, tuple(means), float((known_falls > 0).mean()), int(known_falls.size), False)


def misplaced_leaves(change: ClusterChange, losses: StrangerLosses, min_gain: float) -> list[int]:
    """Leaves of a split better served by the other part; a part is never emptied.

    A cut may be right overall, yet have a leaf on the wrong side. All of its clients must lose less on the
    other side, by `_CLEARLY` × `min_gain` on average: the cut follows from the updates of all clients, and a
    doubtful leaf can move later.
    """
    if change.kind != "split" or len(change.after) != 2:
        return []
    part_size = {leaf: len(part) for part in change.after for leaf in part}
    leaves = []
    for part in change.after:
        remaining = len(part)
        for leaf in part:
            gains = (losses.proposed - losses.neighbour)[losses.leaf_of == leaf]
            gains = gains[np.isfinite(gains)]
            if remaining > 1 and gains.size and gains.mean() > _CLEARLY * min_gain and (gains > 0).all():
                leaves.append(leaf)
                remaining -= 1
    return [leaf for leaf in leaves if part_size[leaf] > 1]


def needs_longer_trial(
    change: ClusterChange, losses: StrangerLosses, result: TrialResult, min_gain: float
) -> bool:
    """Whether forks of a useful split should train further before the decision.

    They should if a part loses, or if a leaf seems to be on the wrong side: after one round, the reason may
    be a lack of training. And if class shares explain more than half of the gain, or losses show none: a
    model of few classes learns these sooner than another learns all.
    """
    if change.kind != "split" or not result.useful:
        return False
    loses = any(part is not None and part < 0 for part in result.parts)
    by_class = result.standardised
    explained = by_class is not None and (by_class < result.gain / 2 or result.gain <= min_gain)
    return loses or explained or bool(misplaced_leaves(change, losses, min_gain))


def groups_after_moves(
    losses: StrangerLosses, labels: np.ndarray, blocked: Sequence[int], min_gain: float
) -> np.ndarray:
    """Groups (S,) after each leaf's move to the cluster with the best model for its clients.

    A leaf stays unless another cluster's model loses less at each of its clients than a model of strangers of
    its own cluster, and on average by more than `min_gain` in log loss. Only clusters evaluated by its
    clients are possible.

    Args:
        losses: the answers.
        labels: (S,) in force.
        blocked: leaves with another proposed change, of themselves or their clusters.
        min_gain: least fall of log loss.
    """
    new_labels = labels.copy()
    closed = set(labels[list(blocked)].tolist())
    for leaf in range(len(labels)):
        at_leaf, best = losses.leaf_of == leaf, min_gain
        for cluster in () if labels[leaf] in closed else range(len(losses.clusters)):
            falls = (losses.present - losses.clusters[cluster])[at_leaf]
            falls = falls[np.isfinite(falls)]
            is_other = cluster not in closed and cluster != labels[leaf]
            if is_other and falls.size and (falls > 0).all() and falls.mean() > best:
                new_labels[leaf], best = cluster, float(falls.mean())
    return new_labels


def mergeable_pairs(
    losses: StrangerLosses, labels: np.ndarray, blocked: Sequence[int], min_gain: float
) -> list[tuple[int, int]]:
    """Pairs of clusters with equally good models at each other's clients, within `min_gain`.

    The pair with the smallest loss first; a cluster is in one pair at most.

    Args:
        losses: the answers.
        labels: (S,) in force.
        blocked: leaves of clusters with another proposed change.
        min_gain: excess loss allowed to a neighbour's model, in either direction.
    """
    closed = set(labels[list(blocked)].tolist())
    excess: dict[tuple[int, int], float] = {}
    for cluster in range(len(losses.clusters)):
        in_cluster = labels[losses.leaf_of] == cluster
        for other in range(len(losses.clusters)):
            increase = _mean_known((losses.clusters[other] - losses.present)[in_cluster])
            if other != cluster and increase is not None:
                excess[cluster, other] = increase
    both = {
        (a, b): max(excess[a, b], excess[b, a])
        for a, b in excess
        if a < b and (b, a) in excess and a not in closed and b not in closed
    }
    pairs: list[tuple[int, int]] = []
    for pair, increase in sorted(both.items(), key=lambda item: (item[1], item[0])):
        if increase < min_gain and not any(set(pair) & set(chosen) for chosen in pairs):
            pairs.append(pair)
    return pairs


def _mean_known(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None
