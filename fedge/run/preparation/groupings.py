"""A grouping or signal of the user's, tried on generated models of leaves before the run starts.

Shape letter: S leaf servers.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from fedge.clustering.likeness.evidence import Evidence, NotComparable
from fedge.clustering.registry import Need, method_named
from fedge.clustering.signals import needs_of, similarity_of
from fedge.config.config import Config
from fedge.config.registers.groupings import GROUPINGS, SIGNALS
from fedge.config.registers.option import ConfigError
from fedge.config.registers.traits import BY_SIGNAL
from fedge.states.averaging import State
from fedge.states.named import Memory, packed, unpacked

_AT_HAND = frozenset({"starts", "one-start", "cluster-start"})  # of the evidence; the rest comes from clients


def tries_grouping(config: Config) -> bool:
    """Whether a run has a grouping or signal of the user's that generated models are enough for."""
    cluster = config.cluster
    if not cluster.enabled or config.asynchrony.is_on or config.hierarchy.tiers > 2:
        return False
    if GROUPINGS.is_own(cluster.method):
        is_own = method_named(cluster).ask is None
    else:
        is_own = GROUPINGS.has(cluster.method, BY_SIGNAL) and SIGNALS.is_own(cluster.signal)
    return is_own and _needs(config) <= _AT_HAND


def _needs(config: Config) -> frozenset[Need]:
    """Evidence that the user's grouping or signal requests."""
    cluster = config.cluster
    own = GROUPINGS.is_own(cluster.method)
    return method_named(cluster).needs(cluster) if own else needs_of(cluster.signal)


def refuse_grouping_that_fails(
    config: Config, state: State, names: Sequence[str], clients: Sequence[int]
) -> None:
    """Raise ConfigError if the user's grouping or signal fails in two steps on generated models.

    Args:
        config: of the run; `tries_grouping` is true of it.
        state: a model of the run's kind.
        names: its trainable entries, in layer order.
        clients: training clients per leaf.
    """
    cluster = config.cluster
    with suppress(NotComparable):
        if GROUPINGS.is_own(cluster.method):
            _group_twice(config, [_evidence(config, state, names, clients, number) for number in (1, 2)])
        else:
            evidence = _evidence(config, state, names, clients, 1)
            similarity_of(cluster.signal, evidence, cluster.arguments("signal"))


def _group_twice(config: Config, rounds: Sequence[Evidence]) -> None:
    """Group in two rounds, the second with the labels and the memory of the first."""
    cluster = config.cluster
    method, labels = method_named(cluster), None
    memory: Memory = {}
    kept: Mapping[str, Any] = {}
    for evidence in rounds:
        seen = replace(evidence, before=labels, kept=kept, memory=memory)
        found = method.group(seen, cluster, labels)
        labels, kept = found.labels, kept if found.kept is None else found.kept
        try:
            memory = unpacked(packed(seen.memory, "memory of the cloud"))
        except (TypeError, FloatingPointError) as error:
            raise ConfigError(f"cluster.method {cluster.method}: {error}; mend it") from error


def _evidence(
    config: Config, state: State, names: Sequence[str], clients: Sequence[int], global_round: int
) -> Evidence:
    """Evidence of a round: leaves have trained models from one start, each another way."""
    rng = np.random.default_rng(global_round)

    def trained() -> State:
        return {name: _moved(array, rng) for name, array in state.items()}

    return Evidence(
        [trained() for _ in clients],
        [state] * len(clients) if _needs(config) else None,
        [10.0 * each for each in clients],
        tuple(names),
        truth=None if config.scenario == "none" else np.zeros(len(clients), dtype=np.int64),
        global_round=global_round,
        seed=config.seed,
    )


def _moved(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """An entry of a model after some training; whole numbers stay."""
    if array.dtype.kind != "f":
        return array
    return (array + 0.01 * rng.standard_normal(array.shape)).astype(array.dtype)
