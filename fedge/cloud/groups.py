"""Life cycle of a server's groups, from one step to the next: questions, results, trials and the present
state.

Two implementations: `fedge.cloud.by_method`, where a method finds groups, which must last, and
`fedge.cloud.by_deals`, where the deal test tells groups from chance, and each change of them is tried by
itself. Shape letter: S children of the server.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedge.cloud.method_memory import MethodMemory
from fedge.cloud.probe import Probe
from fedge.cloud.setting import CloudSetting
from fedge.clustering.likeness.evidence import Answers, CrossLosses, Evidence, Questions
from fedge.clustering.likeness.updates import Likeness
from fedge.clustering.memberships.strangers import Folds
from fedge.clustering.registry import Grouping
from fedge.leaf.strategies.aggregation import Contribution
from fedge.states.averaging import State


@dataclass(frozen=True)
class BroughtModels:
    """Models of a server's children at the end of a global round.

    Attributes:
        brought: per child its model, with its weight.
        global_round: 1, 2, …
    """

    brought: Sequence[Contribution]
    global_round: int

    @property
    def models(self) -> list[State]:
        """Per child its model."""
        return [each.state for each in self.brought]

    @property
    def weights(self) -> list[float]:
        """Per child its number of training windows."""
        return [each.weight for each in self.brought]


@dataclass(frozen=True)
class GroupStep(BroughtModels):
    """A step of a server, as far as its groups depend on it.

    Attributes:
        memory: of the method; changes in the step.
        setting: of the run.
        probe: made before the step, or None.
        common_start: whether all children began the round from one model.
        has_updates: whether clients' updates from one start are new.
        evidence: for the method, from the answers to the step's questions.
    """

    memory: MethodMemory
    setting: CloudSetting
    probe: Probe | None
    common_start: bool
    has_updates: bool
    evidence: Callable[[Answers | None], Evidence]


@dataclass(frozen=True)
class Settled:
    """Result of a step with a comparison.

    Attributes:
        found: found groups, with their facts.
        labels: (S,) in force from now on.
        facts: of the step, as JSON.
        brought: models and weights of which the groups in force are averaged.
        common_start: whether the compared models were trained from one.
    """

    found: Grouping
    labels: np.ndarray
    facts: dict[str, Any]
    brought: Sequence[Contribution]
    common_start: bool


@dataclass(frozen=True)
class Tried:
    """Models trained beside the children's for a trial.

    Attributes:
        forks: per child its part of `CloudStep.trials`, as trained; empty or None for none.
        folds: child → its clients' models without each other.
    """

    forks: Sequence[State | None] = ()
    folds: Mapping[int, Folds] | None = None


class Groups(Protocol):
    """Groups of one server.

    Attributes:
        probes_first: whether a probe trains the run's first model, not the mean of the present ones.
        fewest: children among which groups can be found.
    """

    probes_first: bool
    fewest: int

    @property
    def labels(self) -> np.ndarray | None:
        """(S,) in force; None before the first step."""

    @property
    def recent(self) -> Sequence[CrossLosses]:
        """Losses at each other's clients of the steps before, oldest first, since the groups changed."""

    @property
    def alone(self) -> frozenset[int]:
        """Children judged by folds."""

    @property
    def has_jumped(self) -> bool:
        """Whether clients have other data than before, for an immediate comparison of all."""

    @property
    def decides(self) -> bool:
        """Whether the coming step decides on new groups after a trial."""

    def watch(self, losses: Mapping[int, tuple[int, float]]) -> None:
        """Take in client → its child and its training loss in a round."""

    def forget_losses(self) -> None:
        """Forget losses of earlier steps: clients have moved to other children."""

    def take_updates(self, likeness: Likeness, seed: int) -> Likeness | None:
        """Take in updates from one start; return those to be remembered by the server."""

    def ask(self, step: GroupStep, tried: Tried) -> Questions:
        """Questions to clients: per child, role → model."""

    def settle(self, step: GroupStep, answers: Answers | None) -> Settled:
        """The groups in force from now on."""

    def forks(self, models: Sequence[State], weights: Sequence[float]) -> list[State | None]:
        """Per child the model with which a fork is to train until the next step; None for no fork."""

    def fold_starts(self, models: Sequence[State], weights: Sequence[float]) -> dict[int, list[State]]:
        """Child → the models with which its folds are to train until the next step."""

    def states(self) -> dict[str, State]:
        """Arrays needed by the next step, by name."""

    def facts(self) -> dict[str, Any]:
        """Further state as JSON."""

    def restore(
        self, likeness: Likeness | None, states: Mapping[str, State], facts: Mapping[str, Any]
    ) -> None:
        """Restore the result of `states` and `facts`, with the server's remembered updates."""

    def refuse_others(self, children: int) -> None:
        """Raise ValueError for a restored state of another number of children."""
