"""Losses of other leaves' models at clients: the evidence by which changes of clusters are tried.

A decision for unseen clients needs a model's loss on people outside its training. Per leaf its clients
evaluate, on validation windows, in one exchange,

    present     the mean of the *other* leaves' models in their leaf's cluster
    proposed    the mean of the *other* leaves' forks in the cluster that is proposed for it
    neighbour   where a cluster is to come apart, the mean of the forks of the other part
    cluster-k   the mean of every other cluster's models (`MOST_MODELS` models at most, which are drawn)
    without-u   for a leaf that is or would be alone: its other clients' training of the common model, without
                client u: as there is no other leaf, other clients of the leaf are the strangers' teachers; in
                one round where it is alone, in as many as forks train where it would be

A change is worth, in log loss, the mean over its parts of the mean over their clients,

    gain = log(loss, present) − log(loss, proposed)

so that one departing leaf counts as much as the many remaining. A split or a move must gain more than
`cluster.min-gain`; a merge may lose as much, because fewer clusters are simpler. Shape letters: S leaf
servers, K clients.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedge.clustering.evidence import Answers
from fedge.clustering.proposals import Change
from fedge.states.averaging import State, weighted_mean

PROPOSED, PRESENT, NEIGHBOUR = "trial-proposed", "trial-present", "trial-neighbour"  # roles
MOST_MODELS = 16  # models per client and exchange
_CLEARLY = 4  # times min_gain, by which a leaf must do better on the other side of a cut
_SMALLEST_LOSS = 1e-12  # of which a logarithm is taken

Folds = Mapping[int, State]
"""Client → what the other clients of its leaf have made of the common model; clients may share one."""


def cluster_role(cluster: int) -> str:
    """The role under which a cluster's mean is evaluated at the clients of others."""
    return f"cluster-{cluster}"


def fold_role(client: int) -> str:
    """The role of the model made without a client (and without those of its fold)."""
    return f"without-{client}"


@dataclass(frozen=True)
class Asking:
    """Question about one change.

    Attributes:
        labels: (S,) groups in force.
        models: per leaf its model.
        weights: per leaf its number of training windows.
        on_trial: changes to be decided.
        forks: per leaf its trained fork, or None.
        folds: leaf → its folds, for present or future lone leaves.
        order: per leaf the other clusters in the order in which they are asked about; empty to ask of none.
    """

    labels: np.ndarray
    models: Sequence[State] = field(repr=False)
    weights: Sequence[float]
    on_trial: Sequence[Change]
    forks: Sequence[State | None] = field(repr=False)
    folds: Mapping[int, Folds] = field(repr=False)
    order: Sequence[Sequence[int]]


def questions(asking: Asking) -> list[dict[str, State]]:
    """Per leaf the models for evaluation by its clients, by role; at most `MOST_MODELS` each."""
    means = _Means(asking)
    change_of = {leaf: change for change in asking.on_trial for leaf in change.leaves}
    asked: list[dict[str, State]] = []
    for leaf in range(len(asking.labels)):
        roles: dict[str, State] = {}
        change, order = change_of.get(leaf), asking.order[leaf]
        if change is None and not order:
            asked.append(roles)
            continue
        old = others(asking.labels, leaf)
        alone = not old or (change is not None and change.after_of(leaf) == (leaf,))
        if old:
            roles[PRESENT] = means.of_models(old)
        if alone:
            folds = asking.folds.get(leaf, {})
            first = {id(state): client for client, state in sorted(folds.items(), reverse=True)}
            roles |= {fold_role(client): folds[client] for client in sorted(first.values())}
        if change is not None:
            roles |= _of_trial(change, leaf, asking, means)
        for cluster in order:
            if len(roles) < MOST_MODELS:
                members = tuple(int(other) for other in np.flatnonzero(asking.labels == cluster))
                roles[cluster_role(cluster)] = means.of_models(members)
        asked.append(roles)
    return asked


def _of_trial(change: Change, leaf: int, asking: Asking, means: "_Means") -> dict[str, State]:
    """The models of a change, for comparison with the present one at one of its leaves."""
    if is_simple_move(change):
        if leaf not in change.movers:
            return {}
        home = tuple(other for other in change.after_of(leaf) if other not in change.movers)
        return {PROPOSED: means.of_models(home)}
    roles: dict[str, State] = {}
    new = tuple(other for other in change.after_of(leaf) if other != leaf)
    if new:
        roles[PROPOSED] = means.of_forks(new)
    if change.kind == "split" and len(change.after) == 2:
        (sibling,) = (part for part in change.after if leaf not in part)
        roles[NEIGHBOUR] = means.of_forks(sibling)
    return roles


class _Means:
    """Means of leaves' models, each worked out once: equal questions are one object."""

    def __init__(self, asking: Asking) -> None:
        self._asking = asking
        self._known: dict[tuple[bool, tuple[int, ...]], State] = {}

    def of_models(self, leaves: tuple[int, ...]) -> State:
        return self._mean(leaves, False)

    def of_forks(self, leaves: tuple[int, ...]) -> State:
        """The mean of forks; of the model itself for a leaf without one, because the leaf would be alone."""
        return self._mean(leaves, True)

    def _mean(self, leaves: tuple[int, ...], forked: bool) -> State:
        key = (forked, leaves)
        if key not in self._known:
            asking, states = self._asking, []
            for leaf in leaves:
                fork = asking.forks[leaf] if forked and asking.forks else None
                states.append(asking.models[leaf] if fork is None else fork)
            self._known[key] = weighted_mean(states, [asking.weights[leaf] for leaf in leaves])
        return self._known[key]


def others(labels: np.ndarray, leaf: int) -> tuple[int, ...]:
    """The other leaves in a leaf's cluster; `labels` is (S,) int64."""
    return tuple(int(other) for other in np.flatnonzero(labels == labels[leaf]) if other != leaf)


def is_simple_move(change: Change) -> bool:
    """Whether leaves only go to clusters with mostly unchanged leaves: nothing need be trained anew."""
    movers = set(change.movers)
    return change.kind == "move" and all(
        sum(leaf not in movers for leaf in cluster) > len(cluster) / 2 for cluster in change.after
    )


# --- answers of clients ------------------------------------------------------------------------------


@dataclass(frozen=True)
class StrangerLosses:
    """Log losses (K,) of models of strangers at every client; NaN where unknown.

    Attributes:
        leaf_of: (K,) the leaf of each client.
        present, proposed, neighbour: by role; a leaf alone is judged by its folds.
        clusters: (C, K) of each cluster's mean at clients of the others.
        labels: (S,) groups in force.
    """

    leaf_of: np.ndarray
    present: np.ndarray
    proposed: np.ndarray
    neighbour: np.ndarray
    clusters: np.ndarray
    labels: np.ndarray


def stranger_losses(answers: Answers, asking: Asking) -> StrangerLosses:
    """Evidence in clients' answers to `questions`."""
    unknown = np.full(len(answers.leaf_of), np.nan)

    def log(role: str) -> np.ndarray:
        logs: np.ndarray = np.log(np.maximum(answers.losses.get(role, unknown), _SMALLEST_LOSS))
        return logs

    alone = _without_oneself(answers, asking.folds, log)
    leaf_of = answers.leaf_of
    present, proposed = log(PRESENT), log(PROPOSED)
    in_force_alone = np.array([not others(asking.labels, int(leaf)) for leaf in leaf_of], dtype=bool)
    to_be_alone = {cluster[0] for change in asking.on_trial for cluster in change.after if len(cluster) == 1}
    present = np.where(in_force_alone, alone, present)
    proposed = np.where(np.isin(leaf_of, list(to_be_alone)), alone, proposed)
    clusters = np.stack([log(cluster_role(k)) for k in range(int(asking.labels.max()) + 1)])
    return StrangerLosses(leaf_of, present, proposed, log(NEIGHBOUR), clusters, asking.labels)


def _without_oneself(answers: Answers, folds: Mapping[int, Folds], log: Any) -> np.ndarray:
    """(K,) loss of each client of a leaf with folds, by the model made without the client."""
    found = np.full(len(answers.leaf_of), np.nan)
    for leaf, of_client in folds.items():
        first = {id(state): client for client, state in sorted(of_client.items(), reverse=True)}
        for client, state in of_client.items():
            at = np.flatnonzero(answers.clients == client)
            if at.size and answers.leaf_of[at[0]] == leaf:
                found[at[0]] = log(fold_role(first[id(state)]))[at[0]]
    return found


@dataclass(frozen=True)
class TrialResult:
    """Result of a trial of one change.

    Attributes:
        gain: by how much log loss falls, each part counting alike; 0.1 is about 10 %.
        parts: the same of each part; None where nobody has answered.
        better: share of the clients with a falling loss.
        clients: how many evaluated both.
        useful: whether the change is to be made.
        home: the cluster whose model serves the others of a merge unchanged; empty where forks do better.
    """

    gain: float
    parts: tuple[float | None, ...]
    better: float
    clients: int
    useful: bool
    home: tuple[int, ...] = ()


def result_of(change: Change, said: StrangerLosses, min_gain: float) -> TrialResult | None:
    """Gain of a change in the clients' answers; None if no client has evaluated both models."""
    if change.kind == "merge":
        found = _result_of_merge(change, said)
        return None if found is None else replace(found, useful=found.gain >= -min_gain)
    found = _gained(said.present - said.proposed, said.leaf_of, _judges(change))
    return None if found is None else replace(found, useful=found.gain > min_gain)


def _judges(change: Change) -> tuple[tuple[int, ...], ...]:
    """The parts of a split or move with judging clients."""
    return (change.movers,) if is_simple_move(change) else change.after


def _result_of_merge(change: Change, said: StrangerLosses) -> TrialResult | None:
    """Gain of a merge: by forks of the mean of all, or with the model of one of its clusters.

    Where clusters have come to be alike since they were parted, as when the cause is over, the mean of their
    models may be worse than one of them. Clients of the model's own cluster gain nothing.
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
        parts: of leaves.
    """
    of_parts = [falls[np.isin(leaf_of, part)] for part in parts]
    known = [part[np.isfinite(part)] for part in of_parts]
    means = [float(part.mean()) if part.size else None for part in known]
    there = [mean for mean in means if mean is not None]
    if not there:
        return None
    gain, every = float(np.mean(there)), np.concatenate(known)
    return TrialResult(gain, tuple(means), float((every > 0).mean()), int(every.size), False)


def misplaced(change: Change, said: StrangerLosses, min_gain: float) -> list[int]:
    """Leaves of a split better served by the other part; a part is never emptied.

    A cut right on the whole may have a leaf on the wrong side. All of its clients must say so, and by
    `_CLEARLY` × `min_gain` on average: its place follows from the updates of all clients, and a doubtful leaf
    can move later.
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


def is_doubted(change: Change, said: StrangerLosses, gained: TrialResult, min_gain: float) -> bool:
    """Whether forks of a useful split should train further before the decision.

    They should if a part loses, or if a leaf seems to be on the wrong side: after one round, the reason may
    be a lack of training.
    """
    loses = any(part is not None and part < 0 for part in gained.parts)
    return change.kind == "split" and gained.useful and (loses or bool(misplaced(change, said, min_gain)))


def moved(said: StrangerLosses, labels: np.ndarray, blocked: Sequence[int], min_gain: float) -> np.ndarray:
    """Groups (S,) after each leaf's move to the cluster with the best model for its clients.

    A leaf stays unless another cluster's model loses less at each of its clients than a model of strangers of
    its own cluster, and on average by more than `min_gain` in log loss. Only clusters evaluated by its
    clients are possible.

    Args:
        said: the answers.
        labels: (S,) in force.
        blocked: leaves with another proposed change, of themselves or their clusters.
        min_gain: by how much log loss must fall.
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
        min_gain: by how much more a neighbour's model may lose, in either direction.
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
