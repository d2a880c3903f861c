"""The cloud step: leaf models → similarity → clusters → one model per cluster, offered to its leaves.

Called by `fedge.strategy` between global rounds. Shape letter: S leaf servers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedge.aggregation import State, weighted_mean
from fedge.clustering import cosine_similarity, threshold_components, weight_clustering
from fedge.config import ClusterConfig


@dataclass(frozen=True)
class CloudStep:
    """What one cloud step found and offers.

    Attributes:
        signal: what was compared; "off" when clustering is disabled and all leaves form one cluster.
        labels: (S,) cluster of each leaf, numbered by first appearance.
        similarity: (S, S), or None when nothing was compared.
        tau: the threshold in force.
        common_start: whether all leaves began the global round from one model.
        offers: per leaf the cluster's model, or None for a leaf that is alone in its cluster; empty in the
            record of a round.
    """

    signal: str
    labels: np.ndarray
    similarity: np.ndarray | None
    tau: float
    common_start: bool
    offers: list[State | None]


class CloudAggregator:
    """Clusters the leaves' models and averages each cluster, weighted by training windows."""

    def __init__(self, config: ClusterConfig, parameter_names: Sequence[str]) -> None:
        """Keep the rules of the cloud step.

        Args:
            config: when to cluster, by which signal and threshold.
            parameter_names: the trainable entries of a state, in layer order (not BatchNorm statistics).
        """
        self._config = config
        self._parameter_names = tuple(parameter_names)
        self._starts: list[State] | None = None
        self._common_start = True

    def begin_round(self, starts: Sequence[State]) -> None:
        """See the models with which the leaves begin a global round; kept only if updates are compared.

        Raw weights need no start, and models may be large.
        """
        compares_updates = self._config.enabled and self._config.signal == "update"
        self._starts = list(starts) if compares_updates else None
        self._common_start = _all_equal(starts)

    def is_due(self, global_round: int) -> bool:
        """Tell whether a cloud step follows global round `global_round` (1, 2, …)."""
        since_start = global_round - self._config.start_round
        return since_start >= 0 and since_start % self._config.every == 0

    def step(self, models: Sequence[State], weights: Sequence[float]) -> CloudStep:
        """Compare S leaf models and build the offers; `begin_round` has seen this round's starts.

        Args:
            models: per leaf the model it ended its leaf rounds with.
            weights: per leaf its number of training windows.

        Raises:
            ValueError: what is compared is not finite in a leaf (the leaf is named).
        """
        labels, similarity = self._groups(models)
        offers: list[State | None] = [None] * len(models)
        for cluster in range(int(labels.max()) + 1):
            members = [int(leaf) for leaf in np.flatnonzero(labels == cluster)]
            if len(members) > 1:
                mean = weighted_mean([models[m] for m in members], [weights[m] for m in members])
                for member in members:
                    offers[member] = mean
        signal = self._config.signal if self._config.enabled else "off"
        return CloudStep(signal, labels, similarity, self._config.tau, self._common_start, offers)

    def _groups(self, models: Sequence[State]) -> tuple[np.ndarray, np.ndarray | None]:
        """Return labels (S,) and the similarity (S, S) they come from."""
        parameters = [{name: model[name] for name in self._parameter_names} for model in models]
        if not self._config.enabled:
            return np.zeros(len(models), dtype=np.int64), None
        if self._config.signal == "weights":
            labels, similarity, _ = weight_clustering(list(parameters), tau=self._config.tau)
            return labels, similarity
        assert self._starts is not None
        updates = [
            _flat(model) - _flat({n: start[n] for n in model})
            for model, start in zip(parameters, self._starts, strict=True)
        ]
        similarity = cosine_similarity(updates)
        return threshold_components(similarity, self._config.tau), similarity


def _flat(state: State) -> np.ndarray:
    """Return all entries as one float64 vector."""
    return np.concatenate([array.astype(np.float64).ravel() for array in state.values()])


def _all_equal(states: Sequence[State]) -> bool:
    """Tell whether all states hold the same bits (or are one object)."""
    first = states[0]
    return all(s is first or all(np.array_equal(s[name], first[name]) for name in first) for s in states[1:])
