"""Losses of other leaves' models at clients: the evidence for trials of cluster changes.

A decision for unseen clients needs a model's loss on people outside its training. Per leaf its clients
evaluate, on validation windows, in one exchange,

    present     the mean of the *other* leaves' models in their leaf's cluster
    proposed    the mean of the *other* leaves' forks in the cluster proposed for it
    neighbour   if a cluster may be split, the mean of the forks of the other part
    cluster-k   the mean of every other cluster's models (`MOST_MODELS` models at most, drawn)
    without-u   for a leaf alone now or by the proposal: the common model trained by its clients other than u,
                for lack of other leaves; for one round if alone now, for as many as forks train if by the
                proposal

`fedge.clustering.memberships.trials` computes gains. Shape letters: S leaf servers, K clients, C classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedge.clustering.likeness.evidence import Answers
from fedge.clustering.memberships.mixture import ByClass
from fedge.clustering.memberships.proposals import ClusterChange
from fedge.states.averaging import State, weighted_mean

PROPOSED, PRESENT, NEIGHBOUR = "trial-proposed", "trial-present", "trial-neighbour"  # roles
MOST_MODELS = 16  # models per client and exchange
_SMALLEST_LOSS = 1e-12  # of which a logarithm is taken

Folds = Mapping[int, State]
"""Client → the common model trained by the other clients of its leaf; clients may share one."""


def cluster_role(cluster: int) -> str:
    """The role under which a cluster's mean is evaluated at the clients of others."""
    return f"cluster-{cluster}"


def fold_role(client: int) -> str:
    """The role of the model made without a client (and without those of its fold)."""
    return f"without-{client}"


@dataclass(frozen=True)
class StrangerQuestions:
    """Models and planned changes from which the questions to clients follow.

    Attributes:
        labels: (S,) groups in force.
        models: per leaf its model.
        weights: per leaf its number of training windows.
        on_trial: changes to be decided.
        forks: per leaf its trained fork, or None.
        folds: leaf → its folds, for present or future lone leaves.
        order: per leaf the other clusters in the order in which they are asked about; empty to ask of none.
        taught: (clients, C) training windows of each class, by partition id; None if unknown.
    """

    labels: np.ndarray
    models: Sequence[State] = field(repr=False)
    weights: Sequence[float]
    on_trial: Sequence[ClusterChange]
    forks: Sequence[State | None] = field(repr=False)
    folds: Mapping[int, Folds] = field(repr=False)
    order: Sequence[Sequence[int]]
    taught: np.ndarray | None = None


def questions(asking: StrangerQuestions) -> list[dict[str, State]]:
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
        neighbours = cluster_neighbours(asking.labels, leaf)
        needs_folds = not neighbours or (change is not None and change.after_of(leaf) == (leaf,))
        if neighbours:
            roles[PRESENT] = means.of_models(neighbours)
        if needs_folds:
            folds = asking.folds.get(leaf, {})
            first = {id(state): client for client, state in sorted(folds.items(), reverse=True)}
            roles |= {fold_role(client): folds[client] for client in sorted(first.values())}
        if change is not None:
            roles |= _trial_models(change, leaf, asking, means)
        for cluster in order:
            if len(roles) < MOST_MODELS:
                members = tuple(int(other) for other in np.flatnonzero(asking.labels == cluster))
                roles[cluster_role(cluster)] = means.of_models(members)
        asked.append(roles)
    return asked


def _trial_models(
    change: ClusterChange, leaf: int, asking: StrangerQuestions, means: "_Means"
) -> dict[str, State]:
    """The models of a change, for comparison with the present one at one of its leaves."""
    if is_simple_move(change):
        if leaf not in change.movers:
            return {}
        home = tuple(other for other in change.after_of(leaf) if other not in change.movers)
        return {PROPOSED: means.of_models(home)}
    roles: dict[str, State] = {}
    companions = tuple(other for other in change.after_of(leaf) if other != leaf)
    if companions:
        roles[PROPOSED] = means.of_forks(companions)
    if change.kind == "split" and len(change.after) == 2:
        (sibling,) = (part for part in change.after if leaf not in part)
        roles[NEIGHBOUR] = means.of_forks(sibling)
    return roles


class _Means:
    """Means of leaves' models, each computed once, so equal questions are one object."""

    def __init__(self, asking: StrangerQuestions) -> None:
        self._asking = asking
        self._cache: dict[tuple[bool, tuple[int, ...]], State] = {}

    def of_models(self, leaves: tuple[int, ...]) -> State:
        return self._mean(leaves, False)

    def of_forks(self, leaves: tuple[int, ...]) -> State:
        """The mean of forks; of the model itself for a leaf without one, because the leaf would be alone."""
        return self._mean(leaves, True)

    def _mean(self, leaves: tuple[int, ...], forked: bool) -> State:
        key = (forked, leaves)
        if key not in self._cache:
            asking, states = self._asking, []
            for leaf in leaves:
                fork = asking.forks[leaf] if forked and asking.forks else None
                states.append(asking.models[leaf] if fork is None else fork)
            self._cache[key] = weighted_mean(states, [asking.weights[leaf] for leaf in leaves])
        return self._cache[key]


def cluster_neighbours(labels: np.ndarray, leaf: int) -> tuple[int, ...]:
    """The other leaves in a leaf's cluster; `labels` is (S,) int64."""
    return tuple(int(other) for other in np.flatnonzero(labels == labels[leaf]) if other != leaf)


def is_simple_move(change: ClusterChange) -> bool:
    """Whether leaves only join clusters whose other leaves mostly stay, so that no forks need training."""
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
        by_class: right answers of the present and the proposed model, where leaves differ much in their
            classes; else None.
    """

    leaf_of: np.ndarray
    present: np.ndarray
    proposed: np.ndarray
    neighbour: np.ndarray
    clusters: np.ndarray
    labels: np.ndarray
    by_class: ByClass | None = None


def stranger_losses(answers: Answers, asking: StrangerQuestions) -> StrangerLosses:
    """Evidence in clients' answers to `questions`."""
    unknown = np.full(len(answers.leaf_of), np.nan)

    def log(losses: np.ndarray) -> np.ndarray:
        logs: np.ndarray = np.log(np.maximum(losses, _SMALLEST_LOSS))
        return logs

    fold_roles = _fold_roles(answers, asking.folds)
    in_force_alone = [not cluster_neighbours(asking.labels, int(leaf)) for leaf in answers.leaf_of]
    to_be_alone = {cluster[0] for change in asking.on_trial for cluster in change.after if len(cluster) == 1}
    roles = [
        [fold if is_alone else role for fold, is_alone in zip(fold_roles, flags, strict=True)]
        for role, flags in (
            (PRESENT, in_force_alone),
            (PROPOSED, [int(leaf) in to_be_alone for leaf in answers.leaf_of]),
        )
    ]
    present, proposed = (
        log(_answers_by_role(answers.losses, client_roles, unknown)) for client_roles in roles
    )
    neighbour, *clusters = (
        log(answers.losses.get(role, unknown))
        for role in (NEIGHBOUR, *(cluster_role(k) for k in range(int(asking.labels.max()) + 1)))
    )
    by_class = _predictions_by_class(answers, roles[0], roles[1], asking.taught)
    return StrangerLosses(
        answers.leaf_of, present, proposed, neighbour, np.stack(clusters), asking.labels, by_class
    )


def _answers_by_role(
    answers: Mapping[str, np.ndarray], roles: Sequence[str], unknown: np.ndarray
) -> np.ndarray:
    """Answer (K, …) of each client about the model of its role; `unknown` where there is none."""
    return np.stack([answers.get(role, unknown)[i] for i, role in enumerate(roles)])


def _predictions_by_class(
    answers: Answers, present: Sequence[str], proposed: Sequence[str], taught: np.ndarray | None
) -> ByClass | None:
    """Correct predictions of two models, a role per client each; None if leaves hardly differ in classes."""
    if not answers.confusions or taught is None or not taught.size:
        return None
    clients, classes = len(answers.clients), taught.shape[1]
    unknown = np.zeros((clients, classes, classes), dtype=np.int64)
    before, after = (_answers_by_role(answers.confusions, roles, unknown) for roles in (present, proposed))
    windows = np.minimum(before.sum(axis=2), after.sum(axis=2))  # of those who evaluated both
    evaluated_both = windows.any(axis=1)[:, None]
    correct = [
        np.where(evaluated_both, np.diagonal(confusion, axis1=1, axis2=2), 0) for confusion in (before, after)
    ]
    predictions = ByClass(answers.leaf_of, taught[answers.clients], windows, correct[0], correct[1])
    return predictions if predictions.is_skewed else None


def _fold_roles(answers: Answers, folds: Mapping[int, Folds]) -> list[str]:
    """Role per client (K,) of the model made by the others of its leaf; "" where there is none."""
    roles = [""] * len(answers.leaf_of)
    for leaf, of_client in folds.items():
        first = {id(state): client for client, state in sorted(of_client.items(), reverse=True)}
        for client, state in of_client.items():
            position = np.flatnonzero(answers.clients == client)
            if position.size and answers.leaf_of[position[0]] == leaf:
                roles[position[0]] = fold_role(first[id(state)])
    return roles
