"""IFCA at the leaves: k models at the cloud, and each leaf trains the best one for its clients.

Ghosh, Chung, Yin, Ramchandran 2020, "An Efficient Framework for Clustered Federated Learning", algorithm 1
with model averaging. θ_1 … θ_k start from different seeds. In every round a member takes the model with the
lowest loss on its own data, ĉ = argmin_c F(θ_c), trains it, and θ_c becomes the weighted mean of the models
trained from it; an unused θ_c stays.

Here the members are leaves, and F is the mean cross entropy over the validation windows of a leaf's clients
(there, the loss on training data). Leaves choose for the first time before global round 1, and then at the
end of a cloud step, for the round after it: the same models as at the start of that round. Shape letters: S
leaf servers, K clients, k models.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fedge.clustering.likeness.evidence import Answers, Evidence, Questions
from fedge.clustering.likeness.similarity import number_by_first_appearance
from fedge.clustering.registry import Grouping, Need, method
from fedge.config.sections.cluster import ClusterConfig
from fedge.states.averaging import State, weighted_mean
from fedge.states.restore_checks import checked_ints, state


class Pool:
    """The cloud's k models from step to step.

    Attributes:
        models: θ_1 … θ_k.
        taken: (S,) each leaf's last candidate; None before the first choice.
    """

    def __init__(self, models: Sequence[State]) -> None:
        """Store the candidates."""
        self.models = list(models)
        self.taken: np.ndarray | None = None

    def average(self, models: Sequence[State], weights: Sequence[float]) -> None:
        """Move every candidate to the mean of the models trained from it by its leaves."""
        assert self.taken is not None
        self.models = averaged(self.models, self.taken, models, weights)

    def questions(self, leaves: int) -> Questions:
        """Models for evaluation by the clients of each of `leaves` leaves: all candidates."""
        asked = {role(candidate): model for candidate, model in enumerate(self.models)}
        return [asked for _ in range(leaves)]

    def take(self, taken: np.ndarray) -> list[State]:
        """Let the leaves take candidates, `taken` (S,) int64; returns each leaf's model."""
        self.taken = taken
        return [self.models[candidate] for candidate in taken]

    def keep_states(self, keep: Callable[[State], State]) -> None:
        """Let `keep` decide where the models are stored."""
        self.models = [keep(model) for model in self.models]

    def states(self) -> dict[str, State]:
        """The starting states of the next cloud step."""
        return {role(candidate): model for candidate, model in enumerate(self.models)}

    def facts(self) -> Any:
        """Further state as JSON."""
        return None if self.taken is None else self.taken.tolist()

    def restore(self, states: Mapping[str, State], facts: Any) -> None:
        """Restore the result of `states` and `facts`; ValueError if they do not fit these models."""
        self.models = [
            state(states[role(candidate)], like, "a model of the cloud's")
            for candidate, like in enumerate(self.models)
        ]
        taken = (
            None if facts is None else checked_ints(facts, "models that leaves took", below=len(self.models))
        )
        self.taken = None if taken is None else np.array(taken, dtype=np.int64)


def _pool(_: ClusterConfig) -> frozenset[Need]:
    """Need k models for evaluation by clients."""
    return frozenset({"pool"})


@method(_pool, "losses of the cloud's models")
def ifca(evidence: Evidence, config: ClusterConfig, before: np.ndarray | None, *, losses_on: str) -> Grouping:
    """Let every leaf take the candidate with the lowest loss at its clients.

    Args:
        evidence: evidence with answers.
        config: configuration of the run.
        before: (S,) labels in force, or None.
        losses_on: split of the windows with these losses, for which the cloud asks.
    """
    assert evidence.answers is not None and config.fixed_count is not None  # noqa: PT018
    losses = leaf_losses(evidence.answers, config.fixed_count, len(evidence.weights))
    taken = choose(losses, evidence.taken)
    shown = [[float(loss) if np.isfinite(loss) else None for loss in row] for row in losses]
    facts = {"taken": taken.tolist(), "losses": shown}
    return Grouping(number_by_first_appearance(taken), None, facts, taken)


def role(candidate: int) -> str:
    """The role under which clients evaluate a candidate."""
    return f"pool-{candidate}"


def leaf_losses(answers: Answers, count: int, leaves: int) -> np.ndarray:
    """The (S, k) mean loss per validation window of a leaf's clients for each candidate.

    Clients without an answer are left out; NaN in the row of a leaf without any answer. An infinite or NaN
    loss makes the leaf's loss infinite: the candidate has diverged.
    """
    unknown = np.full(len(answers.windows), np.nan)
    losses = np.stack([answers.losses.get(role(c), unknown) for c in range(count)], axis=1)  # (K, k)
    has_answered = np.isfinite(losses).any(axis=1)
    result = np.full((leaves, count), np.nan)
    for leaf in range(leaves):
        answering = (answers.leaf_of == leaf) & has_answered
        if answering.any():
            windows = answers.windows[answering]
            mean = (losses[answering] * windows[:, None]).sum(axis=0) / windows.sum()
            result[leaf] = np.where(np.isfinite(mean), mean, np.inf)
    return result


def choose(losses: np.ndarray, before: np.ndarray | None) -> np.ndarray:
    """Candidate with the lowest loss for each leaf, the first of equal ones.

    Args:
        losses: (S, k); a leaf whose row is NaN keeps its candidate.
        before: (S,) the last candidates; None for the first choice, when such a leaf takes candidate 0.
    """
    previous = np.zeros(len(losses), np.int64) if before is None else before
    unknown = np.isnan(losses).all(axis=1)
    return np.where(unknown, previous, np.argmin(np.where(np.isnan(losses), np.inf, losses), axis=1))


def averaged(
    candidates: Sequence[State], taken: np.ndarray, models: Sequence[State], weights: Sequence[float]
) -> list[State]:
    """θ_c⁺: the mean of the models of the leaves with θ_c, or θ_c itself without such leaves.

    Args:
        candidates: θ_c.
        taken: (S,) the candidate with which each leaf began.
        models: per leaf the trained one.
        weights: per leaf its training windows.
    """
    means = list(candidates)
    for candidate in range(len(means)):
        takers = [int(leaf) for leaf in np.flatnonzero(taken == candidate)]
        if takers:
            means[candidate] = weighted_mean([models[t] for t in takers], [weights[t] for t in takers])
    return means
