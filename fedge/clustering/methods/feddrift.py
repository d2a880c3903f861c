"""FedDrift at the leaves: a leaf with falling accuracy gets its own model; equally good models merge.

Jothimurugesan, Hsieh, Wang, Joshi, Gibbons 2023, "Federated Learning under Distributed Concept Drift"
(AISTATS; arXiv 2206.00799). The cloud has at most k models. Once in a *time step*, t = 1, 2, …

    1  leaves whose isolation is over come back among the others
    2  every other leaf takes the best model in use, m* = argmax_m acc(θ_m), on its windows of now
    3  it has drifted if its acc of the step before exceeds acc(θ_m*) by more than δ: it gets a model of its
       own, a copy of θ_m*, and trains it in isolation for W time steps
    4  models in use are compared: A_ij = accuracy of θ_i at the leaves of model j; D_ij = max(A_ii − A_ij,
       A_jj − A_ji, 0); complete linkage, cut at δ'; merged models become their mean, weighted by leaves and
       time steps of each

and in all rounds between a model is the weighted mean of the models trained from it by its leaves. All begin
with one model.

Read in the authors' code (microsoft/FedDrift, `fedml_api/distributed/fedavg_ens/FedAvgEnsDataLoader.py`,
class `SoftClusterState`, method `cluster_hierarchical` with distance "A" and clusters "C"): all of the above;
where k models have been in use, the one unused for longest is taken, one of several at random, and none if
all are in use now. Defaults there: δ' = δ, 0.04 to 0.20 by data set, W = 1, 200 rounds a time step. Not read:
the paper's algorithms and tables, and where accuracies of the first time step come from; here they are those
at the first cloud step, without drift in that step. Differences: leaves train on their present windows, not
on all earlier ones; A is measured on present windows, and on validation windows; a cloud step follows a round
of training, so models have seen a round of new data before the search for drift. A leaf without an answering
client keeps its model. Left out: one model for each leaf at the start ("F"), and FedDrift-Eager. Shape
letters: S leaf servers, k models.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from fedge.clustering.likeness.evidence import Answers, Evidence
from fedge.clustering.likeness.similarity import number_by_first_appearance
from fedge.clustering.methods.ifca import role
from fedge.clustering.registry import Grouping, Need, method
from fedge.config.sections.cluster import ClusterConfig
from fedge.seeding import Purpose, numpy_stream
from fedge.states.averaging import State, weighted_mean
from fedge.states.restore_checks import (
    checked_int,
    checked_ints,
    checked_list,
    checked_number,
    refuse_unequal_facts,
)


def _pool(_: ClusterConfig) -> frozenset[Need]:
    """Need k models for evaluation by clients."""
    return frozenset({"pool"})


def _refuse_other(kept: Mapping[str, Any], config: ClusterConfig, leaves: int) -> None:
    """Raise ValueError for a state `feddrift` cannot have left."""
    models = config.fixed_count or 0
    checked: dict[str, Any] = {
        name: checked_int(kept[name], f"{name} of feddrift") for name in ("cloud_steps", "time")
    }
    checked["accuracy"] = [
        None if entry is None else checked_number(entry, "an accuracy")
        for entry in checked_list(kept["accuracy"], "accuracies", leaves)
    ]
    checked["isolated"] = [
        [checked_int(leaf, "an isolated leaf", below=leaves), checked_int(model, "its model", below=models),
         checked_int(until, "the time step of its return")]
        for leaf, model, until in checked_list(kept["isolated"], "isolated leaves", width=3)
    ]  # fmt: skip
    checked["uses"] = [
        checked_ints(entry, "uses of a model", leaves) for entry in checked_list(kept["uses"], "uses", models)
    ]
    checked["last"] = checked_ints(kept["last"], "time steps of models' last use", models, -1)
    refuse_unequal_facts(kept, checked, "kept")


@method(_pool, "accuracies of the cloud's models", _refuse_other)
def feddrift(
    evidence: Evidence,
    config: ClusterConfig,
    before: np.ndarray | None,
    *,
    delta: float,
    merge: float,
    isolation: int,
    step: int,
) -> Grouping:
    """Give leaves with falling accuracy their own models, and merge equally good models.

    Args:
        evidence: evidence with answers and the cloud's `cluster.count` models.
        config: configuration of the run.
        before: (S,) labels in force, or None.
        delta: δ, fall in accuracy (0..1) counted as drift.
        merge: δ', loss in accuracy up to which models merge; 0: as `delta`.
        isolation: W, time steps of training alone for a drifted leaf.
        step: cloud steps in a time step.
    """
    assert evidence.answers is not None and config.fixed_count is not None  # noqa: PT018
    leaves = len(evidence.weights)
    if evidence.taken is None:
        return Grouping(np.zeros(leaves, np.int64), None, {}, np.zeros(leaves, np.int64))
    state = _State(evidence, config.fixed_count)
    facts: dict[str, Any] = {}
    if (state.cloud_steps - 1) % step:
        taken = evidence.taken
    else:
        accuracies = leaf_accuracies(evidence.answers, config.fixed_count, leaves)
        taken, facts = state.regroup(accuracies, delta, merge or delta, isolation)
    facts |= {"taken": taken.tolist()}
    return Grouping(
        number_by_first_appearance(taken), None, facts, taken, state.to_json(), models=state.models
    )


class _State:
    """State between two cloud steps.

    Attributes:
        cloud_steps: so far, with this one.
        time: time steps before this one.
        taken: (S,) model of each leaf.
        accuracy: (S,) of the time step before; NaN where unknown.
        isolated: leaf → (its model, the time step of its return).
        uses: (k, S) in how many time steps a leaf has had a model.
        last: (k,) time step in which a model was in use last; −1 for never.
        models: θ_1 … θ_k.
    """

    def __init__(self, evidence: Evidence, count: int) -> None:
        assert evidence.taken is not None
        leaves, kept = len(evidence.taken), evidence.kept
        self._seed, self.taken = evidence.seed, evidence.taken.copy()
        self.cloud_steps, self.time = int(kept.get("cloud_steps", 0)) + 1, int(kept.get("time", 0))
        self.accuracy = np.array(kept.get("accuracy", [None] * leaves), dtype=np.float64)
        self.isolated = {int(leaf): (int(m), int(t)) for leaf, m, t in kept.get("isolated", [])}
        self.uses = np.array(kept.get("uses", [[1] * leaves, *[[0] * leaves] * (count - 1)]))
        self.last = np.array(kept.get("last", [0, *[-1] * (count - 1)]))
        self.models: list[State] = list(evidence.pool)

    def to_json(self) -> dict[str, Any]:
        return {
            "cloud_steps": self.cloud_steps,
            "time": self.time,
            "accuracy": [None if np.isnan(a) else float(a) for a in self.accuracy],
            "isolated": [[leaf, model, until] for leaf, (model, until) in sorted(self.isolated.items())],
            "uses": self.uses.tolist(),
            "last": self.last.tolist(),
        }

    def regroup(
        self, accuracies: np.ndarray, delta: float, merge: float, isolation: int
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Carry out a time step; return the model (S,) of each leaf and facts of the step.

        Args:
            accuracies: (S, k) of each model at each leaf; NaN rows where unknown.
            delta, merge, isolation: as in `feddrift`.
        """
        self.time += 1
        self.isolated = {leaf: entry for leaf, entry in self.isolated.items() if entry[1] > self.time}
        in_use = [m for m in range(len(self.models)) if self.uses[m].any() and not self._is_isolated(m)]
        free = [leaf for leaf in range(len(self.taken)) if leaf not in self.isolated]
        known = [leaf for leaf in free if in_use and np.isfinite(accuracies[leaf]).any()]
        best = {leaf: in_use[int(accuracies[leaf, in_use].argmax())] for leaf in known}
        for leaf in known:
            self.taken[leaf] = best[leaf]
        self.last[np.unique(self.taken)] = self.time
        drifted = []
        for leaf in known:
            newest = accuracies[leaf, best[leaf]]
            if self.accuracy[leaf] - newest > delta:
                new_model = self._find_free_model()
                if new_model is not None:
                    self.models[new_model], self.taken[leaf], self.last[new_model] = (
                        self.models[best[leaf]], new_model, self.time,
                    )  # fmt: skip
                    self.isolated[leaf] = (new_model, self.time + isolation)
                    drifted.append(leaf)
            self.accuracy[leaf] = newest
        for leaf, model in enumerate(self.taken):
            self.uses[model, leaf] += 1
        # a model given again is no longer the one whose accuracies are known
        compared = [m for m in in_use if not self._is_isolated(m)]
        merged = self._merge(compared, accuracies, merge)
        return self.taken, {"drifted": drifted, "merged": merged}

    def _is_isolated(self, model: int) -> bool:
        """Whether a leaf trains this model alone."""
        return any(isolated == model for isolated, _ in self.isolated.values())

    def _find_free_model(self) -> int | None:
        """A free model, or None if all are in use."""
        never_used = np.flatnonzero(self.last < 0)
        if never_used.size:
            return int(never_used[0])
        oldest = np.flatnonzero(self.last == self.last.min())
        chosen = int(numpy_stream(self._seed, Purpose.GROUPS, 1, self.time).choice(oldest))
        if self.last[chosen] == self.time:
            return None
        self.uses[chosen] = 0
        return chosen

    def _merge(self, compared: Sequence[int], accuracies: np.ndarray, limit: float) -> list[list[int]]:
        """Merge models equally good at each other's leaves; return them, the remaining one first.

        A model without leaves of known accuracy is not compared.
        """
        leaves_of = {
            m: np.flatnonzero((self.taken == m) & np.isfinite(accuracies).all(axis=1)) for m in compared
        }
        comparable = [m for m in compared if leaves_of[m].size]
        if len(comparable) < 2:
            return []
        mean = np.array([[accuracies[leaves_of[j], i].mean() for j in comparable] for i in comparable])
        distances = distances_between(mean)
        tree = linkage(squareform(distances, checks=False), "complete")
        cluster = fcluster(tree, limit, "distance")
        merged = []
        for joined in np.unique(cluster):
            base, *others = [m for m, c in zip(comparable, cluster, strict=True) if c == joined]
            for other in others:
                weights = [float(self.uses[base].sum()), float(self.uses[other].sum())]
                self.models[base] = weighted_mean([self.models[base], self.models[other]], weights)
                self.uses[base] += self.uses[other]
                self.uses[other], self.last[other] = 0, -1
                self.taken[self.taken == other] = base
            if others:
                merged.append([base, *others])
        return merged


def distances_between(accuracies: np.ndarray) -> np.ndarray:
    """(M, M): loss of accuracy of one model at the other's leaves, compared with the other itself.

    Args:
        accuracies: (M, M) of model i at the leaves of model j.

    >>> distances_between(np.array([[0.9, 0.5], [0.8, 0.7]])).round(1).tolist()  # .9 − .5, .7 − .8
    [[0.0, 0.4], [0.4, 0.0]]
    """
    own_accuracy = accuracies.diagonal()
    worse = own_accuracy[:, None] - accuracies
    distances: np.ndarray = np.maximum(np.maximum(worse, worse.T), 0.0)
    np.fill_diagonal(distances, 0.0)
    return distances


def leaf_accuracies(answers: Answers, count: int, leaves: int) -> np.ndarray:
    """(S, k) each model's share of right windows at a leaf; NaN where unknown."""
    unknown = np.full(len(answers.windows), np.nan)
    right = np.stack([answers.accuracies.get(role(c), unknown) for c in range(count)], axis=1)  # (K, k)
    known = np.isfinite(right).all(axis=1)
    result = np.full((leaves, count), np.nan)
    for leaf in range(leaves):
        answering = (answers.leaf_of == leaf) & known
        if answering.any():
            result[leaf] = np.average(right[answering], axis=0, weights=answers.windows[answering])
    return result
