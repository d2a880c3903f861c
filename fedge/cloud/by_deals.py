"""Groups found by the deal test. Shape letter: S children of the server."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedge.cloud.groups import ComparisonResult, GroupStep, TrialModels
from fedge.cloud.tested_groups import DealtGroups
from fedge.clustering.deal_test import reach
from fedge.clustering.deal_test.deals import leaf_similarity
from fedge.clustering.likeness.evidence import Answers, CrossLosses, Questions
from fedge.clustering.likeness.updates import Likeness
from fedge.clustering.memberships.membership import events_between
from fedge.clustering.registry import Grouping
from fedge.config.sections.cluster import ClusterConfig
from fedge.states.averaging import State


class GroupsByDeals:
    """The `fedge.cloud.groups.Groups` interface to `fedge.cloud.tested_groups`.

    Attributes:
        dealt: current groups, and proposed changes.
    """

    probes_first = True
    fewest = reach.FEWEST_LEAVES
    recent: Sequence[CrossLosses] = ()

    def __init__(self, config: ClusterConfig) -> None:
        """Start a run."""
        self.dealt = DealtGroups(config)

    @property
    def labels(self) -> np.ndarray | None:
        """(S,) current groups; None before the first step."""
        return self.dealt.proposals.labels

    @property
    def alone(self) -> frozenset[int]:
        """Children on their own, now or after a change on trial."""
        return self.dealt.alone

    @property
    def has_jumped(self) -> bool:
        """Whether jumps in training losses reveal new data at a child's clients."""
        return self.dealt.has_jumped

    @property
    def decides(self) -> bool:
        """Whether changes are on trial."""
        return bool(self.dealt.proposals.on_trial)

    def watch(self, losses: Mapping[int, tuple[int, float]]) -> None:
        """Record the training losses of a round: client → (its child, its loss)."""
        self.dealt.watch(
            {client: loss for client, (_, loss) in losses.items()},
            {client: child for client, (child, _) in losses.items()},
        )

    def forget_losses(self) -> None:
        """Do nothing: no losses are kept."""

    def take_updates(self, likeness: Likeness, seed: int) -> Likeness | None:
        """Record updates from the run's first model; returns those on which the result is based."""
        self.dealt.record_updates(likeness, seed)
        return self.dealt.likeness

    def ask(self, step: GroupStep, tried: TrialModels) -> Questions:
        """Questions of the changes on trial."""
        draw_key, taught = (step.setting.seed, step.global_round), step.setting.taught
        return self.dealt.ask(step.models, step.weights, tried.forks, tried.folds or {}, draw_key, taught)

    def settle(self, step: GroupStep, answers: Answers | None) -> ComparisonResult:
        """The current groups after the trials of the step."""
        dealt, memory, probe, children = self.dealt, step.memory, step.probe, len(step.contributions)
        memory.since_probe = 0 if step.common_start or probe is not None else memory.since_probe + 1
        facts: dict[str, Any] = dealt.result() if step.has_updates or dealt.is_open else {}
        if step.has_updates and dealt.too_few:
            facts["skipped"] = dealt.too_few
        before = dealt.proposals.labels
        labels, trial_facts = dealt.settle(answers, children)
        facts |= trial_facts | dealt.proposed()
        if answers is not None:
            facts["exchange_bytes"] = answers.downlink_bytes
        if probe is not None:
            facts["probe"] = True
        if dealt.has_jumped:
            facts["jumped"] = dealt.jumped
        events = events_between(np.zeros_like(labels) if before is None else before, labels)
        if events and before is not None:
            facts["events"] = events
        memory.pace.note_comparison(quiet=not events and not dealt.proposals.is_unsettled)
        similarity = None
        if dealt.likeness is not None and "tests" in facts:
            similarity = leaf_similarity(dealt.likeness.cosines, dealt.likeness.leaf_of, children)
        updated = zip(step.contributions, *dealt.cluster_models(step.models, step.weights), strict=True)
        contributions = [
            replace(contribution, state=state, weight=weight) for contribution, state, weight in updated
        ]
        return ComparisonResult(
            Grouping(labels, similarity, facts), labels, facts, contributions, step.common_start
        )

    def forks(self, models: Sequence[State], weights: Sequence[float]) -> list[State | None]:
        """Starting model of each child's fork until the next step; None for no fork."""
        return self.dealt.forks(models, weights)

    def fold_starts(self, models: Sequence[State], weights: Sequence[float]) -> dict[int, list[State]]:
        """Child → starting models of its folds until the next step."""
        return self.dealt.fold_starts(models, weights)

    # --- state beyond the process ---------------------------------------------------------------------

    def states(self) -> dict[str, State]:
        """Empty: the server stores the updates."""
        return {}

    def facts(self) -> dict[str, Any]:
        """State as JSON."""
        return {"dealt": self.dealt.facts()}

    def restore(
        self, likeness: Likeness | None, states: Mapping[str, State], facts: Mapping[str, Any]
    ) -> None:
        """Restore the result of `facts`."""
        self.dealt.restore(likeness, facts["dealt"])

    def refuse_foreign_state(self, children: int) -> None:
        """Raise ValueError if a restored state is for a different number of children."""
        self.dealt.refuse_foreign_state(children)
