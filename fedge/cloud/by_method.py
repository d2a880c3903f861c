"""Groups found by a grouping method, with hysteresis: a change takes effect only if it persists.

Shape letter: S children of the server.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedge.cloud.groups import ComparisonResult, GroupStep, TrialModels
from fedge.cloud.method_memory import RECENT_STEPS, MethodMemory
from fedge.clustering.likeness.evidence import (
    Answers,
    CrossLosses,
    Evidence,
    NotComparable,
    Questions,
    cross_loss_questions,
)
from fedge.clustering.likeness.updates import Likeness
from fedge.clustering.memberships.membership import Membership, events_between
from fedge.clustering.methods.hierarchical import unchanged_grouping
from fedge.clustering.registry import Grouping
from fedge.clustering.signals import loss_matrix
from fedge.config.registers.groupings import SIGNALS
from fedge.config.registers.option import ConfigError
from fedge.config.registers.traits import OWN_TEST
from fedge.config.sections.cluster import ClusterConfig
from fedge.states.averaging import State
from fedge.states.named_states import packed

_RECENT = "recent-"  # prefix of their numbers, among the states


class GroupsByMethod:
    """A `fedge.cloud.groups.Groups` with hysteresis and without trials.

    Attributes:
        membership: current and proposed groups.
    """

    probes_first = False
    fewest = 1
    alone: frozenset[int] = frozenset()
    has_jumped = False
    decides = False

    def __init__(self, config: ClusterConfig) -> None:
        """Start a run."""
        self._config = config
        self.membership = Membership()
        self.recent: deque[CrossLosses] = deque(maxlen=RECENT_STEPS)

    @property
    def labels(self) -> np.ndarray | None:
        """(S,) current groups; None before the first step."""
        return self.membership.labels

    def watch(self, losses: Mapping[int, tuple[int, float]]) -> None:
        """Do nothing: training losses are not used."""

    def forget_losses(self) -> None:
        """Forget losses of earlier steps: clients have moved to other children."""
        self.recent.clear()

    def take_updates(self, likeness: Likeness, seed: int) -> Likeness:
        """The newest updates, unchanged."""
        return likeness

    def ask(self, step: GroupStep, tried: TrialModels) -> Questions:
        """Questions to clients: every model to every client, if the method needs it."""
        compared = step.models if step.probe is None else step.probe.models
        asks = step.memory.needs("cross-losses")
        return cross_loss_questions(compared) if asks else [{} for _ in compared]

    def settle(self, step: GroupStep, answers: Answers | None) -> ComparisonResult:
        """The current groups after the method's result.

        Raises:
            ValueError: the signal is not finite for a leaf, which the message names.
        """
        memory, evidence = step.memory, _evidence(step, answers)
        grouping = self._group(memory, evidence)
        _refuse_negative(self._config.method, grouping.models or (), step.setting.variances)
        memory.kept = memory.kept if grouping.kept is None else grouping.kept
        method_memory = packed(evidence.memory, "memory of the cloud")
        memory.own = step.setting.keep(method_memory) if method_memory else {}
        labels, facts = self._settle_labels(memory, grouping, evidence, step.probe is not None)
        return ComparisonResult(grouping, labels, facts, step.contributions, evidence.common_start)

    def _group(self, memory: MethodMemory, evidence: Evidence) -> Grouping:
        """The method's grouping; the current one and the reason if comparison is impossible."""
        try:
            return memory.method.group(evidence, memory.config, self.labels)
        except NotComparable as reason:
            return unchanged_grouping(evidence, self.labels, str(reason))

    def _settle_labels(
        self, memory: MethodMemory, grouping: Grouping, evidence: Evidence, probed: bool
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """The labels from now on, and the step's facts."""
        membership, config = self.membership, self._config
        before, facts = membership.labels, {**grouping.facts, **_measurement_facts(evidence, probed)}
        if "skipped" in grouping.facts:
            return grouping.labels, facts
        is_served = grouping.takes is not None or grouping.memberships is not None
        labels = membership.settle(grouping.labels, 1 if is_served else config.patience, probed)
        if membership.candidate is not None:
            facts["candidate"] = membership.candidate.tolist()
            facts["agreed"] = membership.agreed
        events = events_between(np.zeros_like(labels) if before is None else before, labels)
        if events and before is not None:
            facts["events"] = events
        if events:  # earlier measurements do not apply to the new groups
            self.recent.clear()
        elif evidence.has_cross_losses and SIGNALS.has(config.signal, OWN_TEST) and not probed:
            self.recent.append(evidence.cross)
        memory.pace.note_comparison(quiet=not events and not membership.is_unsettled)
        return labels, facts

    def forks(self, models: Sequence[State], weights: Sequence[float]) -> list[State | None]:
        """No forks."""
        return [None] * len(models)

    def fold_starts(self, models: Sequence[State], weights: Sequence[float]) -> dict[int, list[State]]:
        """No folds."""
        return {}

    # --- state beyond the process ---------------------------------------------------------------------

    def states(self) -> dict[str, State]:
        """Arrays for the next step, by name."""
        return {f"{_RECENT}{i}": vars(c) for i, c in enumerate(self.recent)}

    def facts(self) -> dict[str, Any]:
        """Other state, as JSON."""
        return {"membership": self.membership.facts()}

    def restore(
        self, likeness: Likeness | None, states: Mapping[str, State], facts: Mapping[str, Any]
    ) -> None:
        """Restore the result of `states` and `facts`."""
        self.membership.restore(facts["membership"])
        self.recent.extend(
            CrossLosses.from_state(state) for name, state in states.items() if name.startswith(_RECENT)
        )

    def refuse_foreign_state(self, children: int) -> None:
        """Raise ValueError if a restored state is for a different number of children."""
        self.membership.refuse_foreign_state(children)
        for losses in self.recent:
            losses.refuse_foreign_state(children)


def _refuse_negative(method: str, models: Sequence[State], variances: Sequence[str]) -> None:
    """Raise ConfigError for a model of a method with a negative variance, by which no client could train."""
    for model in models:
        for name in variances:
            if name in model and (least := model[name].min(initial=0)) < 0:
                raise ConfigError(
                    f"cluster.method {method} must return models with variances of at least 0, but returned "
                    f"{name!r} with {least:.3g}; extrapolate trainable entries only (cloud.parameter_names)"
                )


def _evidence(step: GroupStep, answers: Answers | None) -> Evidence:
    """Evidence for the method, from the probe if there was one."""
    memory, probe, evidence = step.memory, step.probe, step.evidence(answers)
    memory.since_probe = 0 if step.common_start else memory.since_probe + 1
    if probe is None:
        return evidence
    memory.since_probe = 0
    starts = [probe.start] * len(step.contributions)
    return replace(evidence, models=probe.models, starts=starts, common_start=True, recent=())


def _measurement_facts(evidence: Evidence, probed: bool) -> dict[str, Any]:
    """Facts of the step from clients' answers and a probe."""
    facts: dict[str, Any] = {}
    if evidence.has_cross_losses:
        facts["cross_loss"] = _matrix_to_json(loss_matrix(evidence.cross))
    if evidence.answers is not None:
        facts["exchange_bytes"] = evidence.answers.downlink_bytes
    if probed:
        facts["probe"] = True
    return facts


def _matrix_to_json(matrix: np.ndarray) -> list[list[float | None]]:
    """A matrix as JSON; None for unknown entries."""
    return [[float(v) if np.isfinite(v) else None for v in row] for row in matrix]
