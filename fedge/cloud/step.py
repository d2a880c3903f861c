"""The cloud step of a global round, in stages: leaf models → evidence → clusters → one model per cluster.

    CloudRound   the leaves have begun; they train
    Meeting      they have come to the cloud, which may want a probe of them
    Hearing      the cloud asks their clients, and goes on with the answers
    CloudStep    findings and offers

Each stage gives the next, so nothing can be asked for before it is due, nor forgotten. A stage is gone
through once. Shape letter: S leaf servers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from fedge.cloud.dealt import DealtGroups
from fedge.cloud.families import offers_of_family
from fedge.cloud.memory import CloudMemory
from fedge.cloud.rule import RuleMaker
from fedge.cloud.starts import usable
from fedge.clustering import trial
from fedge.clustering.cadence import splits_now
from fedge.clustering.deals import leaf_similarity
from fedge.clustering.evidence import Answers, Evidence, NotComparable, Questions, all_to_all
from fedge.clustering.hierarchical import skipped
from fedge.clustering.membership import events_between
from fedge.clustering.registry import Grouping
from fedge.clustering.signals import loss_matrix
from fedge.clustering.strangers import Folds
from fedge.clustering.updates import Updates
from fedge.config.groupings import SIGNALS
from fedge.config.traits import OWN_TEST
from fedge.exchange.evaluate import DESCRIBED
from fedge.leaf.aggregation import Contribution, group_means, mean_of
from fedge.states.averaging import State, cluster_means
from fedge.states.named import packed, unpacked


@dataclass(frozen=True)
class CloudStep:
    """Findings and offers of one cloud step.

    Attributes:
        signal: the one compared; "off" when clustering is disabled and all leaves form one cluster.
        labels: (S,) cluster of each leaf, numbered by first appearance.
        similarity: (S, S), or None when nothing was compared.
        tau: the threshold in force.
        common_start: whether all leaves began the global round, or the probe, from one model.
        offers: per leaf the cluster's model, or None for a leaf that is alone in its cluster; empty in the
            record of a round.
        method: how the leaves were grouped.
        facts: further findings, as JSON: candidate, events, tests, …;
            `compared` is False where no comparison was due.
        trials: per leaf the model with which a fork of it is to train until the next cloud step, for a trial
            of other groups; None for no fork. Empty in the record of a round.
        folds: leaf → the models with which the forks are to train that judge it as a leaf alone
            (`fedge.leaf.folds`). Empty in the record of a round.
        memberships: Π (S, K), how much of each of K models each leaf was offered; None for hard clusters.
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
class Probe:
    """A leaf round that all leaves made from one model, for comparison only.

    Attributes:
        start: the model.
        models: per leaf the trained one.
        updates: that clients made of it; None where nobody needs them.
    """

    start: State
    models: Sequence[State]
    updates: Updates | None = None


@dataclass(frozen=True)
class CloudSetting:
    """Settings that stay the same through a run.

    Attributes:
        parameter_names: the trainable entries of a state, in layer order (not BatchNorm statistics).
        seed: root of the run's random streams.
        truth: global round → (S,) the groups that a scenario has planted; None without one.
        keep: decides where the cloud's own models lie.
        asks_all: whether all clients make a probe, since some take no part in the first leaf round, or train
            on several times as many windows as others, so that its updates are not to be compared.
        even_windows: on which each client trains in a probe of the run's first model; 0 for all that it has.
        rule: how models of a group become one; None for their mean.
    """

    parameter_names: tuple[str, ...]
    seed: int = 0
    truth: Callable[[int], Sequence[int]] | None = None
    keep: Callable[[State], State] = lambda state: state
    asks_all: bool = False
    even_windows: int = 0
    rule: RuleMaker | None = None


@dataclass(frozen=True)
class CloudRound:
    """A global round of which the cloud has seen the starts.

    Attributes:
        setting: of the run.
        memory: of the steps before; changes when this one is finished.
        common_start: whether all leaves began the round from one model.
        starts: per leaf the model with which it began; None where the method needs none: they may be large.
        updates: takes in clients' updates from one start in the first leaf round; None if not needed.
        first: the model that the run began with; None where nobody needs it.
        began: (S,) of `fedge.cloud.starts.began_alike`.
    """

    setting: CloudSetting
    memory: CloudMemory
    common_start: bool
    starts: Sequence[State] | None = field(repr=False)
    updates: Updates | None = None
    first: State | None = field(default=None, repr=False)
    began: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def alone(self) -> frozenset[int]:
        """The leaves whose folds the cloud asks for."""
        return frozenset() if self.memory.dealt is None else self.memory.dealt.alone

    def probed_updates(self, start: State, global_round: int) -> Updates | None:
        """Receiver of the updates of a probe from one start, or None where nobody needs them."""
        if not self.memory.needs("updates"):
            return None
        return Updates(start, self.setting.parameter_names, global_round)

    def meet(
        self,
        brought: Sequence[Contribution],
        global_round: int = 1,
        losses: Mapping[int, tuple[int, float]] | None = None,
        dispersion: np.ndarray | None = None,
    ) -> "Meeting":
        """Receive the leaves after their leaf rounds.

        Args:
            brought: per leaf the model that it ended its leaf rounds with.
            global_round: 1, 2, …
            losses: client → its leaf and its training loss in this round, of those that trained.
            dispersion: (S,) of `Evidence.dispersion`; None where nobody needs it.
        """
        if self.memory.dealt is not None:
            of_client = losses or {}
            self.memory.dealt.watch(
                {client: loss for client, (_, loss) in of_client.items()},
                {client: leaf for client, (leaf, _) in of_client.items()},
            )
        return Meeting(self, brought, global_round, dispersion)


@dataclass(frozen=True)
class Meeting:
    """The leaves' models are at the cloud; arguments as in `CloudRound.meet`."""

    begun: CloudRound
    brought: Sequence[Contribution]
    global_round: int
    dispersion: np.ndarray | None = None

    @property
    def models(self) -> list[State]:
        """Per leaf its model."""
        return [each.state for each in self.brought]

    @property
    def weights(self) -> list[float]:
        """Per leaf its number of training windows."""
        return [each.weight for each in self.brought]

    def evidence(self, answers: Answers | None = None) -> Evidence:
        """Evidence that the method may use.

        Args:
            answers: to the questions of this step; None before they are asked.
        """
        begun, memory = self.begun, self.begun.memory
        truth = begun.setting.truth
        groups = None if truth is None else np.array(truth(self.global_round), dtype=np.int64)
        needs, labels = memory.method.needs(memory.config), memory.membership.labels
        starts = usable(begun.starts, begun.began, needs, labels)
        return Evidence(
            self.models, starts, self.weights, begun.setting.parameter_names,
            begun.common_start, answers, groups, self.global_round, begun.setting.seed,
            tuple(memory.recent), None if memory.pool is None else memory.pool.taken, memory.likeness,
            memory.kept, () if memory.pool is None else memory.pool.models,
            labels, self.dispersion, unpacked(memory.own),
        )  # fmt: skip

    def probe_start(self) -> State | None:
        """The model from which leaves are to make a probe before this step, or None for no probe."""
        memory, begun = self.begun.memory, self.begun
        first_due = begun.setting.asks_all and memory.likeness is None and memory.needs("updates")
        if not memory.can_compare(len(self.models)):
            return None
        if not first_due and not memory.is_probe_due(begun.common_start):
            return None
        return mean_of(self.brought) if memory.dealt is None else self.begun.first

    def hear(
        self,
        probe: Probe | None = None,
        forks: Sequence[State | None] = (),
        folds: Mapping[int, Folds] | None = None,
    ) -> "Hearing":
        """Go on with or without a probe; the cloud's own models follow the leaves' training of them.

        Args:
            probe: made from `probe_start`, if there was one.
            forks: per leaf its part of `CloudStep.trials`, as trained; empty or None for none.
            folds: leaf → its clients' models without each other, of those in `CloudRound.alone`.
        """
        memory = self.begun.memory
        updates = self.begun.updates if probe is None else probe.updates
        if updates is not None and len(updates):
            memory.likeness = updates.likeness()
            if memory.dealt is not None:
                memory.dealt.hear_updates(memory.likeness, self.begun.setting.seed)
                memory.likeness = memory.dealt.likeness
        pool = memory.pool
        if pool is not None:
            pool.average(self.models, self.weights)
            pool.keep_states(self.begun.setting.keep)
        return Hearing(self, probe, self._questions(probe, forks, folds or {}))

    def _questions(
        self, probe: Probe | None, forks: Sequence[State | None], folds: Mapping[int, Folds]
    ) -> Questions:
        """Questions to clients: per leaf, role → model; empty for nothing."""
        memory, models = self.begun.memory, self.models
        if memory.pool is not None:
            return memory.pool.questions(len(models))
        if not memory.can_compare(len(models)):
            return [{} for _ in models]
        if memory.config.enabled and memory.method.ask is not None:
            return memory.method.ask(self.evidence()) or [{} for _ in models]
        if memory.needs("description"):
            present = memory.membership.labels
            due = splits_now(self.global_round, memory.config, is_first=present is None)
            described: dict[str, State] = {DESCRIBED: mean_of(self.brought)} if due else {}
            return [described for _ in models]
        if memory.dealt is not None:
            where = (self.begun.setting.seed, self.global_round)
            return memory.dealt.ask(models, self.weights, forks, folds, where)
        compared = models if probe is None else probe.models
        one_start = self.begun.common_start or probe is not None
        asked = all_to_all(compared) if memory.asks_losses(one_start) else [{} for _ in models]
        candidate, present = memory.membership.candidate, memory.membership.labels
        if any(fork is not None for fork in forks):
            assert candidate is not None
            assert present is not None
            tried = trial.questions(candidate, present, forks, models, self.weights)
            asked = [known | new for known, new in zip(asked, tried, strict=True)]
        return asked


@dataclass(frozen=True)
class Hearing:
    """The cloud asks clients.

    Attributes:
        met: the stage before.
        probe: made before, or None.
        questions: for clients: per leaf, role → model; all empty for none.
    """

    met: Meeting
    probe: Probe | None
    questions: Questions = field(repr=False)

    def finish(self, answers: Answers | None = None) -> CloudStep:
        """Group S leaf models and build the offers.

        Args:
            answers: to `questions`, if there were any.

        Raises:
            ValueError: the signal is not finite in a leaf (the leaf is named).
        """
        brought, memory = self.met.brought, self._memory
        models, weights = self.met.models, self.met.weights
        config, common_start = memory.config, self.met.begun.common_start
        if memory.dealt is not None and memory.compares:
            found = self._settle_dealt(memory.dealt, answers)
            labels, facts = found.labels, dict(found.facts)
            given = zip(brought, *memory.dealt.brought(models, weights), strict=True)
            brought = [replace(each, state=state, weight=weight) for each, state, weight in given]
        elif memory.compares:
            evidence = self._evidence(answers)
            found = self._grouped(evidence)
            memory.kept = memory.kept if found.kept is None else found.kept
            own = packed(evidence.memory, "memory of the cloud")
            memory.own = self.met.begun.setting.keep(own) if own else {}
            labels, facts = self._settle(found, evidence)
            common_start = evidence.common_start
        else:
            found = _without_comparison(memory, len(models))
            labels, facts = found.labels, dict(found.facts)
        offers, told = _offers(self.met, labels, brought, found)
        facts |= told
        if memory.pool is not None:
            assert found.takes is not None
            if found.models is not None:
                memory.pool.models = list(found.models)
                memory.pool.keep_states(self.met.begun.setting.keep)
            offers = list(memory.pool.take(found.takes))
        return CloudStep(
            signal=(memory.method.compares or config.signal) if config.enabled else "off",
            labels=labels,
            similarity=found.similarity,
            tau=config.tau,
            common_start=common_start,
            offers=offers,
            method=config.method if config.enabled else "off",
            facts=facts,
            trials=self._trials(),
            folds=self._folds(),
            memberships=found.memberships,
        )

    def _grouped(self, evidence: Evidence) -> Grouping:
        """Grouping of the method, or the one in force and the reason where it must not compare."""
        memory = self._memory
        present = memory.membership.labels
        try:
            return memory.method.group(evidence, memory.config, present)
        except NotComparable as reason:
            return skipped(evidence, present, str(reason))

    def _settle_dealt(self, dealt: DealtGroups, answers: Answers | None) -> Grouping:
        """The groups where the deal test tells them from chance, and facts of the step."""
        memory, begun, leaves = self._memory, self.met.begun, len(self.met.models)
        memory.since_probe = 0 if begun.common_start or self.probe is not None else memory.since_probe + 1
        asked_anew = self.probe is not None or begun.updates is not None
        facts: dict[str, Any] = dealt.verdict() if asked_anew or dealt.is_open else {}
        if asked_anew and dealt.too_few:
            facts["skipped"] = dealt.too_few
        before = dealt.docket.labels
        labels, told = dealt.settle(answers, leaves)
        facts |= told | dealt.proposed()
        if answers is not None:
            facts["exchange_bytes"] = answers.downlink_bytes
        if self.probe is not None:
            facts["probe"] = True
        if dealt.has_jumped:
            facts["jumped"] = dealt.jumped
        events = events_between(np.zeros_like(labels) if before is None else before, labels)
        if events and before is not None:
            facts["events"] = events
        memory.membership.labels = labels
        memory.pace.note_comparison(quiet=not events and not dealt.docket.is_unsettled)
        shown = dealt.likeness is not None and "tests" in facts
        similarity = None
        if shown and dealt.likeness is not None:
            similarity = leaf_similarity(dealt.likeness.cosines, dealt.likeness.leaf_of, leaves)
        return Grouping(labels, similarity, facts)

    @property
    def _memory(self) -> CloudMemory:
        return self.met.begun.memory

    def _evidence(self, answers: Answers | None) -> Evidence:
        """Evidence that the method may use."""
        memory, evidence = self._memory, self.met.evidence(answers)
        memory.since_probe = 0 if self.met.begun.common_start else memory.since_probe + 1
        if self.probe is None:
            return evidence
        memory.since_probe = 0
        starts = [self.probe.start] * len(self.met.models)
        return replace(evidence, models=self.probe.models, starts=starts, common_start=True, recent=())

    def _settle(self, found: Grouping, evidence: Evidence) -> tuple[np.ndarray, dict[str, Any]]:
        """The labels in force from now on, and facts of the step."""
        memory, probed = self._memory, self.probe is not None
        membership = memory.membership
        before, facts = membership.labels, {**found.facts, **self._measured(evidence)}
        gain = trial.gain_of(evidence.answers) if evidence.answers is not None else None
        useful = None if gain is None else gain.gain > memory.config.min_gain
        if gain is not None and membership.candidate is not None:
            facts["trial"] = {"candidate": membership.candidate.tolist(), **asdict(gain), "useful": useful}
        if "skipped" in found.facts:
            return found.labels, facts
        is_served = found.takes is not None or found.memberships is not None
        patience = 1 if is_served else memory.config.patience
        labels = membership.settle(found.labels, patience, probed, memory.is_tried, useful)
        if membership.candidate is not None:
            facts["candidate"] = membership.candidate.tolist()
            facts["agreed"] = membership.agreed
        events = events_between(np.zeros_like(labels) if before is None else before, labels)
        if events and before is not None:
            facts["events"] = events
        if events:  # earlier measurements say nothing about the new groups
            memory.recent.clear()
        elif evidence.has_cross_losses and SIGNALS.has(memory.config.signal, OWN_TEST) and not probed:
            memory.recent.append(evidence.cross)
        memory.pace.note_comparison(quiet=not events and not membership.is_unsettled)
        return labels, facts

    def _measured(self, evidence: Evidence) -> dict[str, Any]:
        """Facts of the step from clients' answers and a probe."""
        facts: dict[str, Any] = {}
        if evidence.has_cross_losses:
            facts["cross_loss"] = _as_json(loss_matrix(evidence.cross))
        if evidence.answers is not None:
            facts["exchange_bytes"] = evidence.answers.downlink_bytes
        if self.probe is not None:
            facts["probe"] = True
        return facts

    def _folds(self) -> dict[int, list[State]]:
        """Leaf → with which models the forks are to train that judge it as a leaf alone."""
        dealt = self._memory.dealt
        return {} if dealt is None else dealt.fold_starts(self.met.models, self.met.weights)

    def _trials(self) -> list[State | None]:
        """Models with which forks train for a trial, if the next step decides on new groups."""
        if self._memory.dealt is not None:
            return self._memory.dealt.forks(self.met.models, self.met.weights)
        candidate = self._memory.membership.candidate
        if candidate is None or not self._memory.is_trial_next:
            return [None] * len(self.met.models)
        return cluster_means(candidate, self.met.models, self.met.weights)


def _offers(
    met: Meeting, labels: np.ndarray, brought: Sequence[Contribution], found: Grouping
) -> tuple[list[State | None], dict[str, Any]]:
    """Per leaf its group's model or mixture, None for nothing, and facts of the offers."""
    begun = met.begun
    if found.memberships is not None:
        rule, keep = begun.memory.rule, begun.setting.keep
        return offers_of_family(found.memberships, found.models, brought, rule, met.global_round, keep)
    if begun.memory.rule is None:
        return group_means(labels, brought), {}
    return begun.memory.rule.offers(labels, brought, met.global_round, begun.setting.keep)


def _without_comparison(memory: CloudMemory, leaves: int) -> Grouping:
    """The clusters in force; one of all leaves if clustering is disabled."""
    if not memory.config.enabled:
        return Grouping(np.zeros(leaves, dtype=np.int64), None)
    present = memory.membership.labels
    assert present is not None  # no step rests before one has compared
    memory.pace.note_rest()
    return Grouping(present, None, {"compared": False})


def _as_json(matrix: np.ndarray) -> list[list[float | None]]:
    """A matrix as JSON; None for unknown entries."""
    return [[float(v) if np.isfinite(v) else None for v in row] for row in matrix]
