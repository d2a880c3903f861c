"""The cloud, which groups and averages the leaves' models throughout a run.

Shape letter: S leaf servers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedge.cloud.memory import CloudMemory
from fedge.cloud.region import Region
from fedge.cloud.rule import CloudRule
from fedge.cloud.settings import CloudSetting
from fedge.cloud.starts import number_starts
from fedge.cloud.step import CloudRound
from fedge.clustering.likeness.evidence import Answers, Evidence, Questions
from fedge.clustering.likeness.updates import Updates
from fedge.clustering.methods.ifca import Pool
from fedge.config.sections.cluster import ClusterConfig
from fedge.config.tree import Path
from fedge.states.averaging import State


class CloudAggregator:
    """Clusters the leaves' models and averages each cluster, weighted by training windows.

    Attributes:
        config: when to cluster, by which method.
        memory: memory of earlier steps.
    """

    def __init__(
        self, config: ClusterConfig, setting: CloudSetting, candidate: Callable[[int], State] | None = None
    ) -> None:
        """Store the settings of the cloud step.

        Args:
            config: when to cluster, by which method.
            setting: settings of the run.
            candidate: creates the initial models 0, 1, … of a method with several cloud models.
        """
        self.config = config
        self._setting = setting
        self.memory = CloudMemory(config)
        self._first_model: State | None = None
        if setting.rule is not None:
            self.memory.rule = CloudRule(setting.rule)
        if self.memory.needs("pool"):
            assert candidate is not None and config.fixed_count is not None  # noqa: PT018
            self.memory.pool = Pool([candidate(number) for number in range(config.fixed_count)])

    @property
    def has_rule(self) -> bool:
        """Whether models are combined by a rule other than the mean."""
        return self._setting.rule is not None

    def is_due(self, global_round: int) -> bool:
        """Whether a cloud step follows global round `global_round` (1, 2, …)."""
        if self.memory.rests and self.config.enabled and self.memory.groups.labels is None:
            return False  # there are no groups yet, and none are to be found
        since_start = global_round - self.config.start_round
        return since_start >= 0 and since_start % self.config.every == 0

    def note_moves(self, any_moved: bool, any_empty: bool) -> None:
        """Record moves of clients before a global round.

        Args:
            any_moved: whether clients have moved; earlier measurements then no longer apply.
            any_empty: whether a leaf has no clients; groups then cannot change in this round.
        """
        self.memory.rests = any_empty
        if any_moved:
            self.memory.groups.forget_losses()

    def step_from(self, model: State, children: int) -> None:
        """Let a rule step from a model of the parent, from which all children continue."""
        if self.memory.rule is not None:
            self.memory.rule.step_from(model, children)

    def set_initial_model(self, model: State) -> None:
        """Store the run's initial model."""
        if self.memory.groups.probes_first:
            self._first_model = model
        if self.memory.rule is not None:
            self.memory.rule.set_initial_model(model)

    def first_choice(self, leaves: int) -> "FirstChoice | None":
        """The leaves' choice between several models before global round 1, if any.

        Args:
            leaves: number of leaves.
        """
        pool = self.memory.pool
        if pool is None:
            return None
        pool.keep_states(self._setting.keep)
        return FirstChoice(self._setting, self.memory, pool.questions(leaves))

    def begin(self, starts: Sequence[State], global_round: int = 1) -> CloudRound:
        """Begin a global round, given the leaves' starting models.

        Only the updates of the first round are independent of the leaf; later, control variates depend on
        its past.
        """
        memory, setting = self.memory, self._setting
        recorded_starts = list(starts) if memory.needs("starts") else None
        start_numbers, updates = number_starts(starts), None
        if memory.needs("updates") and not start_numbers.any() and global_round == 1 and not setting.asks_all:
            updates = Updates(starts[0], setting.parameter_names, global_round)
        return CloudRound(setting, memory, recorded_starts, start_numbers, updates, self._first_model)


def step_from_parent_models(regions: Sequence[Region], clouds: Mapping[Path, CloudAggregator]) -> None:
    """Let the rules of regions step from the models sent by their parents since the last call.

    Args:
        regions: all regions of the tree.
        clouds: path → aggregator, for servers grouping their children or combining them by a rule.
    """
    for region in regions:
        model = region.models.take_received_model()
        if model is not None:
            clouds[region.path].step_from(model, len(region.below))


@dataclass(frozen=True)
class FirstChoice:
    """Choice of every leaf between the cloud's models, before global round 1.

    Attributes:
        setting, memory: settings and memory of the cloud.
        questions: per leaf, role → model for clients to evaluate.
    """

    setting: CloudSetting
    memory: CloudMemory
    questions: Questions = field(repr=False)

    def choose(self, answers: Answers) -> tuple[np.ndarray, list[State]]:
        """The groups (S,) of the leaves in global round 1 and each leaf's initial model.

        Args:
            answers: to `questions`.
        """
        weights = [1.0] * len(self.questions)
        names = self.setting.parameter_names
        seed = self.setting.seed
        evidence = Evidence([], None, weights, names, answers=answers, global_round=0, seed=seed)
        grouping = self.memory.method.group(evidence, self.memory.config, None)
        assert grouping.takes is not None
        assert self.memory.pool is not None
        return grouping.labels, self.memory.pool.take(grouping.takes)
