"""Interface of a server's groups from step to step: questions, results, trials and current state.

Two implementations: in `fedge.cloud.by_method` a method finds groups, and a change must persist; in
`fedge.cloud.by_deals` the deal test separates groups from chance, and each change has its own trial. Shape
letter: S children of the server.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedge.cloud.method_memory import MethodMemory
from fedge.cloud.probe import Probe
from fedge.cloud.settings import CloudSetting
from fedge.clustering.likeness.evidence import Answers, CrossLosses, Evidence, Questions
from fedge.clustering.likeness.updates import Likeness
from fedge.clustering.memberships.strangers import Folds
from fedge.clustering.registry import Grouping
from fedge.leaf.strategies.aggregation import Contribution
from fedge.states.averaging import State


@dataclass(frozen=True)
class ChildModels:
    """Models of a server's children at the end of a global round.

    Attributes:
        contributions: contribution of each child.
        global_round: 1, 2, …
    """

    contributions: Sequence[Contribution]
    global_round: int

    @property
    def models(self) -> list[State]:
        """Model of each child."""
        return [contribution.state for contribution in self.contributions]

    @property
    def weights(self) -> list[float]:
        """Number of training windows of each child."""
        return [contribution.weight for contribution in self.contributions]


@dataclass(frozen=True)
class GroupStep(ChildModels):
    """Input of a server's step for finding groups.

    Attributes:
        memory: memory of the method, modified by the step.
        setting: settings of the run.
        probe: probe made before the step, or None.
        common_start: whether all children began the round from one model.
        has_updates: whether clients' updates from one start are new.
        evidence: makes the method's evidence from the answers to the step's questions.
    """

    memory: MethodMemory
    setting: CloudSetting
    probe: Probe | None
    common_start: bool
    has_updates: bool
    evidence: Callable[[Answers | None], Evidence]


@dataclass(frozen=True)
class ComparisonResult:
    """Result of a step with a comparison.

    Attributes:
        found: found groups, with their facts.
        labels: (S,) groups from now on.
        facts: facts of the step, as JSON.
        contributions: models and weights for averaging the groups.
        common_start: whether the compared models were trained from the same model.
    """

    found: Grouping
    labels: np.ndarray
    facts: dict[str, Any]
    contributions: Sequence[Contribution]
    common_start: bool


@dataclass(frozen=True)
class TrialModels:
    """Models trained for a trial, beside those of the children.

    Attributes:
        forks: trained fork of each child, from `CloudStep.trials`; empty or None for none.
        folds: child → client → model trained without this client.
    """

    forks: Sequence[State | None] = ()
    folds: Mapping[int, Folds] | None = None


class Groups(Protocol):
    """Groups of one server.

    Attributes:
        probes_first: whether a probe trains the run's first model, not the mean of the current ones.
        fewest: minimum number of children for finding groups.
    """

    probes_first: bool
    fewest: int

    @property
    def labels(self) -> np.ndarray | None:
        """(S,) current groups; None before the first step."""

    @property
    def recent(self) -> Sequence[CrossLosses]:
        """Cross-losses of earlier steps since the last change of groups, oldest first."""

    @property
    def alone(self) -> frozenset[int]:
        """Children judged by folds."""

    @property
    def has_jumped(self) -> bool:
        """Whether clients have new data; all children are then compared at once."""

    @property
    def decides(self) -> bool:
        """Whether the coming step decides on new groups after a trial."""

    def watch(self, losses: Mapping[int, tuple[int, float]]) -> None:
        """Record the training losses of a round: client → (its child, its loss)."""

    def forget_losses(self) -> None:
        """Forget losses of earlier steps: clients have moved to other children."""

    def take_updates(self, likeness: Likeness, seed: int) -> Likeness | None:
        """Record updates from one start; returns those the server has to store."""

    def ask(self, step: GroupStep, tried: TrialModels) -> Questions:
        """Questions to clients: per child, role → model."""

    def settle(self, step: GroupStep, answers: Answers | None) -> ComparisonResult:
        """The groups from now on."""

    def forks(self, models: Sequence[State], weights: Sequence[float]) -> list[State | None]:
        """Starting model of each child's fork until the next step; None for no fork."""

    def fold_starts(self, models: Sequence[State], weights: Sequence[float]) -> dict[int, list[State]]:
        """Child → starting models of its folds until the next step."""

    def states(self) -> dict[str, State]:
        """Arrays for the next step, by name."""

    def facts(self) -> dict[str, Any]:
        """Other state, as JSON."""

    def restore(
        self, likeness: Likeness | None, states: Mapping[str, State], facts: Mapping[str, Any]
    ) -> None:
        """Restore the result of `states` and `facts`, with the server's remembered updates."""

    def refuse_foreign_state(self, children: int) -> None:
        """Raise ValueError if a restored state is for a different number of children."""
