"""Results of trials: the gain of a change of groups, by clients' losses on other leaves' models.

The gain of a change, in log loss, is the mean over its parts of the mean over their clients of

    gain = log(loss, present) − log(loss, proposed)

so that one departing leaf counts as much as the many remaining. A split or a move must gain more than
`cluster.min-gain`; a merge may lose as much, because fewer clusters are simpler. If leaves differ much in
their classes, a split or a move must gain as much for people with the classes of all leaves instead, and
lose no more than that in log loss (`fedge.clustering.memberships.mixture`). Questions and answers:
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
        clients: number of clients that evaluated both models.
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


def change_gain(change: ClusterChange, said: StrangerLosses, min_gain: float) -> TrialResult | None:
    """Gain of a change in the clients' answers; None if no client has evaluated both models."""
    if change.kind == "merge":
        found = _result_of_merge(change, said)
        return None if found is None else replace(found, useful=found.gain >= -min_gain)
    found = _gained(said.present - said.proposed, said.leaf_of, _judges(change))
    if found is None:
        return None
    by_class = None if said.by_class is None else standardised_gain(said.by_class, _judges(change))
    useful = found.gain > min_gain if by_class is None else by_class > min_gain and found.gain > -min_gain
    return replace(found, useful=useful, standardised=by_class)


def _judges(change: ClusterChange) -> tuple[tuple[int, ...], ...]:
    """The parts of a split or move whose clients judge it."""
    return (change.movers,) if is_simple_move(change) else change.after


def _result_of_merge(change: ClusterChange, said: StrangerLosses) -> TrialResult | None:
    """Gain of a merge: by forks of the mean of all, or with the model of one of its clusters.

    If clusters have become alike since they were split, for example because the cause is gone, the mean of
    their models may be worse than one of them. Clients of the model's own cluster gain nothing.
    """
    found = [_gained(said.present - said.proposed, said.leaf_of, change.before)]
    for home in change.before:
        model = said.clusters[said.labels[home[0]]]
        falls = np.where(np.isin(said.leaf_of, home), 0.0, said.present - model)
        served = _gained(falls, said.leaf_of, change.before)
        if served is not None and all(part is not None for part in served.parts):
            found.append(replace(served, home=home))
    known = [gained for gained in found if gained is not None]
    return max(known, key=lambda gained: gained.gain, default=None)


def _gained(falls: np.ndarray, leaf_of: np.ndarray, parts: Sequence[tuple[int, ...]]) -> TrialResult | None:
    """Mean fall of log loss over parts of leaves, each part counting alike; None if all are unknown.

    Args:
        falls: (K,) its decrease at each client; NaN where unknown.
        leaf_of: (K,) the leaf of each client.
        parts: parts of leaves.
    """
    of_parts = [falls[np.isin(leaf_of, part)] for part in parts]
    known = [part[np.isfinite(part)] for part in of_parts]
    means = [float(part.mean()) if part.size else None for part in known]
    there = [mean for mean in means if mean is not None]
    if not there:
        return None
    gain, every = float(np.mean(there)), np.concatenate(known)
    return TrialResult(gain, tuple(means), float((every > 0).mean()), int(every.size), False)


def misplaced(change: ClusterChange, said: StrangerLosses, min_gain: float) -> list[int]:
    """Leaves of a split that the other part would serve better; a part is never emptied.

    A cut that is right overall may have a leaf on the wrong side. All of its clients must lose less on the
    other side, by `_CLEARLY` × `min_gain` on average: the cut follows from the updates of all clients, and a
    doubtful leaf can move later.
    """
    if change.kind != "split" or len(change.after) != 2:
        return []
    left = {leaf: len(part) for part in change.after for leaf in part}
    found = []
    for part in change.after:
        remaining = len(part)
        for leaf in part:
            gains = (said.proposed - said.neighbour)[said.leaf_of == leaf]
            gains = gains[np.isfinite(gains)]
            if remaining > 1 and gains.size and gains.mean() > _CLEARLY * min_gain and (gains > 0).all():
                found.append(leaf)
                remaining -= 1
    return [leaf for leaf in found if left[leaf] > 1]


def is_doubted(change: ClusterChange, said: StrangerLosses, gained: TrialResult, min_gain: float) -> bool:
    """Whether forks of a useful split should train further before the decision.

    They should if a part loses, or if a leaf seems to be on the wrong side: after one round, the reason may
    be a lack of training. And if class shares explain more than half of the gain, or losses show none: a
    model of few classes learns these sooner than another learns all.
    """
    if change.kind != "split" or not gained.useful:
        return False
    loses = any(part is not None and part < 0 for part in gained.parts)
    by_class = gained.standardised
    explained = by_class is not None and (by_class < gained.gain / 2 or gained.gain <= min_gain)
    return loses or explained or bool(misplaced(change, said, min_gain))


def groups_after_moves(
    said: StrangerLosses, labels: np.ndarray, blocked: Sequence[int], min_gain: float
) -> np.ndarray:
    """Groups (S,) after each leaf's move to the cluster with the best model for its clients.

    A leaf stays unless another cluster's model loses less at each of its clients than a model of strangers of
    its own cluster, and on average by more than `min_gain` in log loss. Only clusters evaluated by its
    clients are possible.

    Args:
        said: the answers.
        labels: (S,) in force.
        blocked: leaves with another proposed change, of themselves or their clusters.
        min_gain: least fall of log loss.
    """
    after = labels.copy()
    closed = set(labels[list(blocked)].tolist())
    for leaf in range(len(labels)):
        mine, best = said.leaf_of == leaf, min_gain
        for cluster in () if labels[leaf] in closed else range(len(said.clusters)):
            falls = (said.present - said.clusters[cluster])[mine]
            falls = falls[np.isfinite(falls)]
            is_other = cluster not in closed and cluster != labels[leaf]
            if is_other and falls.size and (falls > 0).all() and falls.mean() > best:
                after[leaf], best = cluster, float(falls.mean())
    return after


def merged(
    said: StrangerLosses, labels: np.ndarray, blocked: Sequence[int], min_gain: float
) -> list[tuple[int, int]]:
    """Pairs of clusters with equally good models at each other's clients, within `min_gain`.

    The pair with the smallest loss first; a cluster is in one pair at most.

    Args:
        said: the answers.
        labels: (S,) in force.
        blocked: leaves of clusters with another proposed change.
        min_gain: excess loss allowed to a neighbour's model, in either direction.
    """
    closed = set(labels[list(blocked)].tolist())
    excess: dict[tuple[int, int], float] = {}
    for cluster in range(len(said.clusters)):
        mine = labels[said.leaf_of] == cluster
        for other in range(len(said.clusters)):
            more = _mean_known((said.clusters[other] - said.present)[mine])
            if other != cluster and more is not None:
                excess[cluster, other] = more
    both = {
        (a, b): max(excess[a, b], excess[b, a])
        for a, b in excess
        if a < b and (b, a) in excess and a not in closed and b not in closed
    }
    pairs: list[tuple[int, int]] = []
    for pair, more in sorted(both.items(), key=lambda item: (item[1], item[0])):
        if more < min_gain and not any(set(pair) & set(taken) for taken in pairs):
            pairs.append(pair)
    return pairs


def _mean_known(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None
