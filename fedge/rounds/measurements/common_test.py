"""Common test set: served models and their means, evaluated at the server.

Clients evaluate on their own windows. Here all models are evaluated on the same windows. So leaves with
different data can be compared, and models no client has (such as the global mean of a personalised method)
get a score. No decision uses it. Computed on the CPU of the server's process, with the same bits on every
engine.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from torch import nn

from fedge.config.sections.train import TrainConfig
from fedge.exchange.evaluate import Evaluation, pool_evaluations
from fedge.leaf.leaf import Leaf
from fedge.process.endings.watchdog import note_progress
from fedge.rounds.measurements.book import RoundBook
from fedge.rounds.measurements.results import CLUSTER, GLOBAL, LEAF, CommonResult
from fedge.rounds.measurements.round_record import clusters_of
from fedge.states.averaging import State, weighted_mean
from fedge.states.distinct import StateCache
from fedge.tasks.configured import task_of
from fedge.training.evaluation import evaluate_parts
from fedge.training.networks.module_state import load_state, tensor_of
from fedge.training.networks.unsaved_state import Unsaved
from fedge.training.schedule import step_kernel

logger = logging.getLogger(__name__)

Examples = tuple[np.ndarray, np.ndarray]
"""x (N, …) as networks take them, and y (N, …)."""


class CommonTest:
    """Evaluates models on the common test set of a run."""

    def __init__(
        self,
        config: TrainConfig,
        network: nn.Module,
        parts: Callable[[int], Iterable[Examples]],
        frozen: Mapping[str, np.ndarray],
        kernel: str = "",
    ) -> None:
        """Store the constants of the run.

        Args:
            config: configuration of the run.
            network: a network of the run to load models into, on the CPU.
            parts: global round → the test set of that round, in parts that fit into memory.
            frozen: frozen entries, which the run's models lack.
            kernel: kernel of the run; empty for that of the options.
        """
        self._config = config
        self._network, self._unsaved = network, Unsaved(network)
        self._parts = parts
        self._frozen = frozen
        self._kernel = step_kernel(config, kernel)

    def note(self, leaves: Sequence[Leaf], book: RoundBook) -> None:
        """Add results to a round's record, with the leaves' clusters from its rows."""
        clusters = clusters_of(leaves, book.records_above)
        cluster_of = {leaf.index: cluster for leaf, cluster in zip(leaves, clusters, strict=True)}
        book.common = self.evaluated(leaves, cluster_of, book.global_round)

    def evaluated(
        self, leaves: Sequence[Leaf], labels: Mapping[int, int], global_round: int
    ) -> list[CommonResult]:
        """Results of the mean of all leaves' served models, of each cluster's mean, and of each leaf's.

        Args:
            leaves: in order; they weigh by training windows, or alike where none has clients.
            labels: leaf → its cluster.
            global_round: 1, 2, …
        """
        evaluate = StateCache(lambda state: self._evaluate(state, global_round))

        def result_of(model: str, number: int | None, members: Sequence[Leaf]) -> CommonResult:
            evaluations = evaluate(mean_of(members))
            total = pool_evaluations(evaluations)
            samples = sum(evaluation.windows for evaluation in evaluations)
            if total is None:
                return CommonResult(model, number, samples, None, None)
            return CommonResult(model, number, samples, total.score, total.loss, total.further)

        clusters = sorted(set(labels.values()))
        members = {c: [leaf for leaf in leaves if labels[leaf.index] == c] for c in clusters}
        mean_of = _Means()
        return [
            result_of(GLOBAL, None, leaves),
            *(result_of(CLUSTER, cluster, members[cluster]) for cluster in clusters),
            *(result_of(LEAF, leaf.index, [leaf]) for leaf in leaves),
        ]

    def _evaluate(self, state: State, global_round: int) -> list[Evaluation]:
        """Evaluations of a model, one per part of the set; empty for a diverged model."""
        self._unsaved.restore()  # of the models evaluated before
        load_state(self._network, {**self._frozen, **state} if self._frozen else state)
        evaluations, task = [], task_of(self._config)
        for x, y in self._parts(global_round):
            note_progress()
            try:
                (outcome,) = evaluate_parts(
                    self._network, tensor_of(x), tensor_of(y), [len(y)], threads=self._config.threads,
                    kernel=self._kernel, task=task,
                )  # fmt: skip
            except FloatingPointError as error:
                logger.warning("global round %d: on the common test set: %s", global_round, error)
                return []
            evaluations.append(Evaluation(outcome.sums, outcome.loss, outcome.samples, task=task))
        return evaluations


class _Means:
    """Mean models of groups of leaves; if all leaves of a group share one model, that model itself."""

    def __init__(self) -> None:
        self._cache: dict[tuple[int, ...], State] = {}

    def __call__(self, leaves: Sequence[Leaf]) -> State:
        served = [leaf.models.served for leaf in leaves]
        if all(state is served[0] for state in served):
            return served[0]
        key = tuple(leaf.index for leaf in leaves)
        if key not in self._cache:
            weights = [float(leaf.weight) for leaf in leaves]  # all 0 if their clients have moved away
            self._cache[key] = weighted_mean(served, weights if any(weights) else [1.0] * len(weights))
        return self._cache[key]
