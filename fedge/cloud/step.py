"""The cloud step: leaf models → evidence → clusters → one model per cluster, offered to its leaves.

Shape letter: S leaf servers.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from fedge.clustering import baselines, trial
from fedge.clustering import hierarchical as clusterers
from fedge.clustering.affinity import FEWEST_LEAVES
from fedge.clustering.cadence import Pace
from fedge.clustering.evidence import Answers, CrossLosses, Evidence, Questions, all_to_all
from fedge.clustering.ifca import Pool
from fedge.clustering.membership import Membership, events_between
from fedge.clustering.registry import METHODS, Grouping, Need
from fedge.clustering.signals import loss_matrix
from fedge.config.choices import BY_TEST, METHODS_BY_TIME
from fedge.config.sections import ClusterConfig
from fedge.states.averaging import State, cluster_means, weighted_mean

assert baselines  # register their methods
assert clusterers

_RECENT_STEPS = 4  # comparisons whose cross-losses are put together with a step's own
_RECENT = "recent-"  # before their numbers, among the states


@dataclass(frozen=True)
class CloudStep:
    """What one cloud step found and offers.

    Attributes:
        signal: what was compared; "off" when clustering is disabled and all leaves form one cluster.
        labels: (S,) cluster of each leaf, numbered by first appearance.
        similarity: (S, S), or None when nothing was compared.
        tau: the threshold in force.
        common_start: whether all leaves began the global round, or the probe, from one model.
        offers: per leaf the cluster's model, or None for a leaf that is alone in its cluster; empty in the
            record of a round.
        method: how the leaves were grouped.
        facts: what else was found, as JSON: candidate, events, tests, …;
            `compared` is False where no comparison was due.
        trials: per leaf the model with which a fork of it is to train until the next cloud step, for a trial
            of other groups; None for no fork. Empty in the record of a round.
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


@dataclass(frozen=True)
class Probe:
    """A leaf round that all leaves made from one model, for comparison only.

    Attributes:
        start: the model.
        models: per leaf what it became.
    """

    start: State
    models: Sequence[State]


class CloudAggregator:
    """Clusters the leaves' models and averages each cluster, weighted by training windows."""

    def __init__(
        self,
        config: ClusterConfig,
        parameter_names: Sequence[str],
        seed: int = 0,
        truth: np.ndarray | None = None,
        candidate: Callable[[int], State] | None = None,
    ) -> None:
        """Keep the rules of the cloud step.

        Args:
            config: when to cluster, by which method.
            parameter_names: the trainable entries of a state, in layer order (not BatchNorm statistics).
            seed: root of the run's random streams.
            truth: (S,) the groups that a scenario has planted, or None.
            candidate: makes the initial models 0, 1, … of a method that has models of its own.
        """
        self._config = config
        self._parameter_names = tuple(parameter_names)
        self._seed = seed
        self._truth = truth
        self._starts: list[State] | None = None
        self._common_start = True
        self._membership = Membership()
        self._recent: deque[CrossLosses] = deque(maxlen=_RECENT_STEPS)
        self._since_probe = 0  # comparisons from different starts since the last probe
        self._pace = Pace(config.regroup_every, settled_after=_RECENT_STEPS + 1)
        self._pool: Pool | None = None
        if self.needs("pool"):
            assert candidate is not None and config.fixed_count is not None  # noqa: PT018
            self._pool = Pool([candidate(number) for number in range(config.fixed_count)])

    def needs(self, what: Need) -> bool:
        """Tell whether the method must see something that takes effort to gather."""
        config = self._config
        return config.enabled and what in METHODS[config.method].needs(config)

    def begin_round(self, starts: Sequence[State]) -> None:
        """See the models with which the leaves begin a global round; kept only if the method needs them.

        Models may be large.
        """
        self._starts = list(starts) if self.needs("starts") else None
        self._common_start = _all_equal(starts)

    def is_due(self, global_round: int) -> bool:
        """Tell whether a cloud step follows global round `global_round` (1, 2, …)."""
        since_start = global_round - self._config.start_round
        return since_start >= 0 and since_start % self._config.every == 0

    def first_questions(self, leaves: int) -> Questions:
        """Return what clients must be asked before global round 1; empty where all begin with one model."""
        return [] if self._pool is None else self._pool.questions(leaves)

    def first_models(self, answers: Answers, leaves: int) -> tuple[np.ndarray, list[State]]:
        """Return the groups (S,) of the leaves in global round 1 and the model that each begins with.

        Args:
            answers: to `first_questions`.
            leaves: how many there are.
        """
        assert self._pool is not None
        evidence = Evidence([], None, [1.0] * leaves, self._parameter_names, answers=answers, global_round=0)
        found = METHODS[self._config.method].group(evidence, self._config, None)
        assert found.takes is not None
        return found.labels, self._pool.take(found.takes)

    def probe_start(self, models: Sequence[State], weights: Sequence[float]) -> State | None:
        """Return the model from which leaves are to make a probe before this step, or None for no probe.

        Args:
            models: per leaf the model that it ended its leaf rounds with.
            weights: per leaf its number of training windows.
        """
        every = self._config.probe_every
        if not every or not self._compares or self._are_too_few(models):
            return None
        if self._common_start or self._since_probe + 1 < every:
            return None
        return weighted_mean(models, weights)

    def average_pool(self, models: Sequence[State], weights: Sequence[float]) -> None:
        """Let the cloud's own models follow what leaves have made of them; call it before `questions`.

        Args:
            models: per leaf the model that it ended its leaf rounds with.
            weights: per leaf its number of training windows.
        """
        if self._pool is not None:
            self._pool.average(models, weights)

    def questions(
        self,
        models: Sequence[State],
        weights: Sequence[float],
        probe: Probe | None = None,
        forks: Sequence[State | None] = (),
    ) -> Questions:
        """Return what clients must be asked before `step`: per leaf, role → model; empty for nothing.

        Args:
            models: per leaf the model that it ended its leaf rounds with.
            weights: per leaf its number of training windows.
            probe: made before this step, if there was one.
            forks: per leaf what has become of its part in `CloudStep.trials`; empty or None for none.
        """
        if self._pool is not None:
            return self._pool.questions(len(models))
        if not self._compares or self._are_too_few(models):
            return [{} for _ in models]
        compared = models if probe is None else probe.models
        asked = all_to_all(compared) if self.needs("cross-losses") else [{} for _ in models]
        candidate, present = self._membership.candidate, self._membership.labels
        if any(fork is not None for fork in forks):
            assert candidate is not None
            assert present is not None
            tried = trial.questions(candidate, present, forks, models, weights)
            asked = [known | new for known, new in zip(asked, tried, strict=True)]
        return asked

    @property
    def _compares(self) -> bool:
        """Whether the coming step compares leaves, or only averages the clusters in force.

        Methods with models or a time of their own have a say in every step.
        """
        config = self._config
        always = self._pool is not None or config.method in METHODS_BY_TIME
        return config.enabled and (always or self._pace.is_due or self._decides)

    @property
    def _decides(self) -> bool:
        """Whether the coming step decides on new groups after a trial."""
        return self._is_tried and self._membership.is_ripe(self._config.patience)

    def _are_too_few(self, models: Sequence[State]) -> bool:
        """Tell whether there are too few leaves to find groups in, so that clients need not be asked."""
        return self._is_tried and len(models) < FEWEST_LEAVES

    @property
    def _is_tried(self) -> bool:
        """Whether new groups must prove useful before they are in force."""
        return self._config.enabled and self._config.count == BY_TEST

    def step(
        self,
        models: Sequence[State],
        weights: Sequence[float],
        global_round: int = 1,
        answers: Answers | None = None,
        probe: Probe | None = None,
    ) -> CloudStep:
        """Group S leaf models and build the offers; `begin_round` has seen this round's starts.

        Args:
            models: per leaf the model that it ended its leaf rounds with.
            weights: per leaf its number of training windows.
            global_round: 1, 2, …
            answers: to `questions`, if there were any.
            probe: made before this step, if there was one.

        Raises:
            ValueError: what is compared is not finite in a leaf (the leaf is named).
        """
        config = self._config
        common_start = self._common_start
        if self._compares:
            evidence = self._evidence(models, weights, global_round, answers, probe)
            found = METHODS[config.method].group(evidence, config, self._membership.labels)
            labels, facts = self._settle(found, evidence, probed=probe is not None)
            common_start = evidence.common_start
        else:
            found = self._without_comparison(len(models))
            labels, facts = found.labels, dict(found.facts)
        offers = cluster_means(labels, models, weights)
        if self._pool is not None:
            assert found.takes is not None
            offers = list(self._pool.take(found.takes))
        return CloudStep(
            signal=(METHODS[config.method].compares or config.signal) if config.enabled else "off",
            labels=labels,
            similarity=found.similarity,
            tau=config.tau,
            common_start=common_start,
            offers=offers,
            method=config.method if config.enabled else "off",
            facts=facts,
            trials=self._trials(models, weights),
        )

    def _without_comparison(self, leaves: int) -> Grouping:
        """Return the clusters in force; one of all leaves if clustering is disabled."""
        if not self._config.enabled:
            return Grouping(np.zeros(leaves, dtype=np.int64), None)
        present = self._membership.labels
        assert present is not None  # no step rests before one has compared
        self._pace.note_rest()
        return Grouping(present, None, {"compared": False})

    def _evidence(
        self,
        models: Sequence[State],
        weights: Sequence[float],
        global_round: int,
        answers: Answers | None,
        probe: Probe | None,
    ) -> Evidence:
        """Return what the method may look at."""
        evidence = Evidence(
            models, self._starts, weights, self._parameter_names, self._common_start, answers, self._truth,
            global_round, self._seed, tuple(self._recent), None if self._pool is None else self._pool.taken,
        )  # fmt: skip
        self._since_probe = 0 if self._common_start else self._since_probe + 1
        if probe is None:
            return evidence
        self._since_probe = 0
        starts = [probe.start] * len(models)
        return replace(evidence, models=probe.models, starts=starts, common_start=True, recent=())

    def _settle(self, found: Grouping, evidence: Evidence, probed: bool) -> tuple[np.ndarray, dict[str, Any]]:
        """Return the labels in force from now on and what is to be kept of the step."""
        before, facts = self._membership.labels, dict(found.facts)
        if self.needs("cross-losses") and evidence.answers is not None:
            facts["cross_loss"] = _as_json(loss_matrix(evidence.cross))
        if evidence.answers is not None:
            facts["exchange_bytes"] = evidence.answers.downlink_bytes
        if probed:
            facts["probe"] = True
        gain = trial.gain_of(evidence.answers) if evidence.answers is not None else None
        useful = None if gain is None else gain.gain > self._config.min_gain
        if gain is not None and self._membership.candidate is not None:
            tried = {"candidate": self._membership.candidate.tolist(), **asdict(gain), "useful": useful}
            facts["trial"] = tried
        if "skipped" in found.facts:
            return found.labels, facts
        patience = self._config.patience if found.takes is None else 1  # what is taken is served
        labels = self._membership.settle(found.labels, patience, probed, self._is_tried, useful)
        if self._membership.candidate is not None:
            facts["candidate"] = self._membership.candidate.tolist()
            facts["agreed"] = self._membership.agreed
        events = events_between(np.zeros_like(labels) if before is None else before, labels)
        if events and before is not None:
            facts["events"] = events
        if events:  # what was measured before says nothing about the new groups
            self._recent.clear()
        elif self.needs("cross-losses") and self._config.signal == "affinity" and not probed:
            self._recent.append(evidence.cross)
        self._pace.note_comparison(quiet=not events and not self._membership.is_unsettled)
        return labels, facts

    def _trials(self, models: Sequence[State], weights: Sequence[float]) -> list[State | None]:
        """Return with which models forks are to train for a trial, if the next step decides on new groups."""
        candidate = self._membership.candidate
        if candidate is None or not self._decides or self._membership.probed != self._next_is_probe:
            return [None] * len(models)
        return cluster_means(candidate, models, weights)

    @property
    def _next_is_probe(self) -> bool:
        """Whether a probe precedes the next step, as far as can be known before the round."""
        labels, every = self._membership.labels, self._config.probe_every
        apart = labels is not None and bool(labels.any())
        return apart and every > 0 and self._since_probe + 1 >= every

    # --- what survives the process --------------------------------------------------------------------

    def keep_states(self, keep: Callable[[State], State]) -> None:
        """Let `keep` decide where the cloud's own models lie."""
        if self._pool is not None:
            self._pool.keep_states(keep)

    def states(self) -> dict[str, State]:
        """Return the arrays that the next cloud step needs of those before, by name."""
        recent: dict[str, State] = {
            f"{_RECENT}{at}": {"losses": c.losses, "windows": c.windows, "leaf_of": c.leaf_of}
            for at, c in enumerate(self._recent)
        }
        return recent if self._pool is None else recent | self._pool.states()

    def facts(self) -> dict[str, Any]:
        """Return what else it needs, as JSON."""
        return {
            "membership": self._membership.facts(),
            "since_probe": self._since_probe,
            "pace": self._pace.facts(),
            "taken": None if self._pool is None else self._pool.facts(),
        }

    def restore(self, states: Mapping[str, State], facts: Mapping[str, Any]) -> None:
        """Go on with what `states` and `facts` gave."""
        self._membership.restore(facts["membership"])
        self._since_probe = facts["since_probe"]
        if "pace" in facts:  # checkpoints from before it are of runs that compare in every step
            self._pace.restore(facts["pace"])
        self._recent.extend(
            CrossLosses(state["losses"], state["windows"], state["leaf_of"])
            for name, state in states.items()
            if name.startswith(_RECENT)
        )
        if self._pool is not None:
            self._pool.restore(states, facts["taken"])


def _as_json(matrix: np.ndarray) -> list[list[float | None]]:
    """Return a matrix as JSON; None for what is not known."""
    return [[float(v) if np.isfinite(v) else None for v in row] for row in matrix]


def _all_equal(states: Sequence[State]) -> bool:
    """Tell whether all states hold the same bits (or are one object)."""
    first = states[0]
    return all(s is first or all(np.array_equal(s[name], first[name]) for name in first) for s in states[1:])
