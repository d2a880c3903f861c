"""The cloud step of a global round, in stages: leaf models → evidence → clusters → one model per cluster.

    CloudRound      the leaves are training
    ReceivedModels  the cloud has their models, and may request a probe
    OpenStep        the cloud has questions for their clients, and waits for the answers
    CloudStep       findings and offers

Each stage returns the next one, so none can be skipped or come too early. Shape letter: S leaf servers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedge.cloud.families import offers_of_family
from fedge.cloud.groups import ChildModels, ComparisonResult, GroupStep, TrialModels
from fedge.cloud.memory import CloudMemory
from fedge.cloud.probe import Probe
from fedge.cloud.settings import CloudSetting
from fedge.cloud.starts import usable
from fedge.clustering.cadence import is_split_due
from fedge.clustering.likeness.evidence import Answers, Evidence, Questions
from fedge.clustering.likeness.updates import Updates
from fedge.clustering.memberships.strangers import Folds
from fedge.clustering.registry import Grouping
from fedge.exchange.evaluate import DESCRIBED
from fedge.leaf.strategies.aggregation import Contribution, group_means, mean_of
from fedge.states.averaging import State
from fedge.states.named_states import unpacked


@dataclass(frozen=True)
class CloudStep:
    """Findings and offers of one cloud step.

    Attributes:
        signal: the signal compared; "off" if clustering is disabled and all leaves form one cluster.
        labels: (S,) cluster of each leaf, numbered by first appearance.
        similarity: (S, S), or None when nothing was compared.
        tau: the threshold.
        common_start: whether all leaves started the global round, or the probe, from the same model.
        offers: cluster model of each leaf, or None for a leaf alone in its cluster; empty in the record of
            a round.
        method: grouping method.
        facts: further findings, as JSON: candidate, events, tests, …; `compared` is False if no comparison
            was due.
        trials: starting model of each leaf's fork until the next cloud step, for a trial of other groups;
            None for no fork. Empty in the record of a round.
        folds: leaf → starting models of the forks for judging it on its own (`fedge.leaf.folds`). Empty in
            the record of a round.
        memberships: Π (S, K), share of each of K models in each leaf's offer; None for hard clusters.
    """

    signal: str
    labels: np.ndarray
    similarity: np.ndarray | None
    tau: float
    common_start: bool
    offers: list[State | None]
    method: str = "components"
    facts: Mapping[str, Any] = field(default_factory=dict)
    trials: Sequence[State | None] = ()
    folds: Mapping[int, Sequence[State]] = field(default_factory=dict)
    memberships: np.ndarray | None = None


@dataclass(frozen=True)
class CloudRound:
    """A global round, from its start to the end of the leaf rounds.

    Attributes:
        setting: settings of the run.
        memory: memory of earlier steps; changes when this one is finished.
        starts: per leaf its initial model; None where the method needs none: they may be large.
        began: (S,) of `fedge.cloud.starts.number_starts`.
        updates: takes in clients' updates from one start in the first leaf round; None if not needed.
        first: the run's initial model; None if not needed.
    """

    setting: CloudSetting
    memory: CloudMemory
    starts: Sequence[State] | None = field(repr=False)
    began: np.ndarray
    updates: Updates | None = None
    first: State | None = field(default=None, repr=False)

    @property
    def common_start(self) -> bool:
        """Whether all leaves started the round from the same model."""
        return not self.began.any()

    @property
    def alone(self) -> frozenset[int]:
        """The leaves for which the cloud requests folds."""
        return self.memory.groups.alone

    def probed_updates(self, start: State, global_round: int) -> Updates | None:
        """Receiver of the updates of a probe from one start, or None if not needed."""
        if not self.memory.needs("updates"):
            return None
        return Updates(start, self.setting.parameter_names, global_round)

    def take_updates(self, updates: Updates | None) -> None:
        """Record clients' updates from one start, if there are any, for this step or later ones."""
        if updates is not None and len(updates):
            self.memory.likeness = self.memory.groups.take_updates(updates.likeness(), self.setting.seed)

    def receive(
        self,
        brought: Sequence[Contribution],
        global_round: int = 1,
        losses: Mapping[int, tuple[int, float]] | None = None,
        dispersion: np.ndarray | None = None,
    ) -> "ReceivedModels":
        """Receive the leaves after their leaf rounds.

        Args:
            brought: per leaf the model at the end of its leaf rounds.
            global_round: 1, 2, …
            losses: client → its leaf and its training loss in this round, for trained clients.
            dispersion: (S,) of `Evidence.dispersion`; None if not needed.
        """
        self.memory.groups.watch(losses or {})
        return ReceivedModels(brought, global_round, self, dispersion)


@dataclass(frozen=True)
class ReceivedModels(ChildModels):
    """A cloud step after the leaves' models have arrived; arguments as for `CloudRound.receive`."""

    cloud_round: CloudRound
    dispersion: np.ndarray | None = None

    def evidence(self, answers: Answers | None = None) -> Evidence:
        """Evidence for the method.

        Args:
            answers: to the questions of this step; None before they are asked.
        """
        cloud_round, memory = self.cloud_round, self.cloud_round.memory
        truth = cloud_round.setting.truth
        groups = None if truth is None else np.array(truth(self.global_round), dtype=np.int64)
        needs, labels = memory.method.needs(memory.config), memory.groups.labels
        starts = usable(cloud_round.starts, cloud_round.began, needs, labels)
        return Evidence(
            self.models, starts, self.weights, cloud_round.setting.parameter_names,
            cloud_round.common_start, answers, groups, self.global_round, cloud_round.setting.seed,
            tuple(memory.groups.recent), None if memory.pool is None else memory.pool.taken, memory.likeness,
            memory.kept, () if memory.pool is None else memory.pool.models,
            labels, self.dispersion, unpacked(memory.own),
        )  # fmt: skip

    def comparison(self, probe: Probe | None) -> GroupStep:
        """The step's input for finding groups."""
        cloud_round, has_updates = self.cloud_round, probe is not None or self.cloud_round.updates is not None
        return GroupStep(
            self.contributions, self.global_round, cloud_round.memory, cloud_round.setting, probe,
            cloud_round.common_start, has_updates, self.evidence,
        )  # fmt: skip

    def probe_start(self) -> State | None:
        """Starting model of the leaves' probe before this step; None for no probe."""
        memory, cloud_round = self.cloud_round.memory, self.cloud_round
        first_due = cloud_round.setting.asks_all and memory.likeness is None and memory.needs("updates")
        if not memory.can_compare(len(self.models)):
            return None
        if not first_due and not memory.is_probe_due(cloud_round.common_start):
            return None
        return self.cloud_round.first if memory.groups.probes_first else mean_of(self.contributions)

    def open(
        self,
        probe: Probe | None = None,
        forks: Sequence[State | None] = (),
        folds: Mapping[int, Folds] | None = None,
    ) -> "OpenStep":
        """Continue with or without a probe, and update the cloud's own models, if the method has any.

        Args:
            probe: probe made from `probe_start`, if there was one.
            forks: trained fork of each leaf, from `CloudStep.trials`; empty or None for none.
            folds: leaf → client → model trained without this client, for leaves in `CloudRound.alone`.
        """
        self.cloud_round.take_updates(self.cloud_round.updates if probe is None else probe.updates)
        pool = self.cloud_round.memory.pool
        if pool is not None:
            pool.average(self.models, self.weights)
            pool.keep_states(self.cloud_round.setting.keep)
        return OpenStep(self, probe, self._questions(probe, TrialModels(forks, folds)))

    def _questions(self, probe: Probe | None, tried: TrialModels) -> Questions:
        """Questions to clients: per leaf, role → model; empty for no question."""
        memory, models = self.cloud_round.memory, self.models
        if memory.pool is not None:
            return memory.pool.questions(len(models))
        if not memory.can_compare(len(models)):
            return [{} for _ in models]
        if memory.config.enabled and memory.method.ask is not None:
            return memory.method.ask(self.evidence()) or [{} for _ in models]
        if memory.needs("description"):
            config, is_first = memory.config, memory.groups.labels is None
            split_round = config.arguments("method")["split_round"]
            due = is_split_due(self.global_round, split_round, config.every, is_first)
            described: dict[str, State] = {DESCRIBED: mean_of(self.contributions)} if due else {}
            return [described for _ in models]
        return memory.groups.ask(self.comparison(probe), tried)


@dataclass(frozen=True)
class OpenStep:
    """A cloud step with questions for clients.

    Attributes:
        received: the previous stage.
        probe: the probe, or None.
        questions: per leaf, role → model for clients to evaluate; all empty for no question.
    """

    received: ReceivedModels
    probe: Probe | None
    questions: Questions = field(repr=False)

    def finish(self, answers: Answers | None = None) -> CloudStep:
        """Group S leaf models and build the offers.

        Args:
            answers: to `questions`, if there were any.

        Raises:
            ValueError: the signal is not finite for a leaf, which the message names.
        """
        memory, models = self.received.cloud_round.memory, self.received.models
        config = memory.config
        settled = (
            memory.groups.settle(self.received.comparison(self.probe), answers)
            if memory.compares
            else self._skip_comparison()
        )
        labels, facts, grouping = settled.labels, settled.facts, settled.found
        offers, offer_facts = _make_offers(self.received, settled)
        facts |= offer_facts
        if memory.pool is not None:
            assert grouping.takes is not None
            if grouping.models is not None:
                memory.pool.models = list(grouping.models)
                memory.pool.keep_states(self.received.cloud_round.setting.keep)
            offers = list(memory.pool.take(grouping.takes))
        return CloudStep(
            signal=(memory.method.compares or config.signal) if config.enabled else "off",
            labels=labels,
            similarity=grouping.similarity,
            tau=config.tau,
            common_start=settled.common_start,
            offers=offers,
            method=config.method if config.enabled else "off",
            facts=facts,
            trials=memory.groups.forks(models, self.received.weights),
            folds=memory.groups.fold_starts(models, self.received.weights),
            memberships=grouping.memberships,
        )

    def _skip_comparison(self) -> ComparisonResult:
        """The current clusters; a single one if clustering is disabled."""
        cloud_round, contributions = self.received.cloud_round, self.received.contributions
        memory, common_start = cloud_round.memory, cloud_round.common_start
        facts: dict[str, Any] = {}
        labels = np.zeros(len(contributions), dtype=np.int64)
        if memory.config.enabled:
            present = memory.groups.labels
            assert present is not None  # a step can skip the comparison only after one has compared
            memory.pace.note_rest()
            labels, facts = present, {"compared": False}
        return ComparisonResult(Grouping(labels, None), labels, facts, contributions, common_start)


def _make_offers(
    received: ReceivedModels, settled: ComparisonResult
) -> tuple[list[State | None], dict[str, Any]]:
    """Each leaf's group model or mixture (None for no offer), and facts of the offers."""
    rule, keep, grouping = received.cloud_round.memory.rule, received.cloud_round.setting.keep, settled.found
    if grouping.memberships is not None:
        return offers_of_family(
            grouping.memberships, grouping.models, settled.contributions, rule, received.global_round, keep
        )
    if rule is None:
        have_clients = [contribution.weight > 0 for contribution in received.contributions]
        return group_means(settled.labels, settled.contributions, have_clients), {}
    return rule.offers(settled.labels, settled.contributions, received.global_round, keep)
