"""Forks: models trained on the side, to try a split of clusters before it takes effect.

A fork starts from the mean of its proposed cluster. If a split is refused and tried again, its forks train
further: a leaf that leaves a bad common model needs some rounds to train a good one of its own, and a leaf
separated by chance needs some to fall behind.

A leaf that would be on its own after a split has *folds* instead: each of up to `fedge.leaf.folds.MOST_LINES`
forks is trained without some of its clients, and evaluated by these. They start from the common model, so the
leaf has contributed no more to them than to the model they are compared with.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fedge.clustering.memberships.proposals import ClusterChange
from fedge.clustering.memberships.strangers import Folds, is_simple_move
from fedge.leaf.folds import lines_of
from fedge.states.averaging import State, weighted_mean
from fedge.states.restore_checks import checked_int


class Forks:
    """The forks of the changes on trial.

    Attributes:
        ages: change on trial → rounds of its forks before the present round.
    """

    def __init__(self) -> None:
        """Start without forks."""
        self.ages: dict[ClusterChange, int] = {}
        self._trained: Sequence[State | None] = ()
        self._folds: dict[int, list[State]] = {}

    @property
    def separated_leaves(self) -> frozenset[int]:
        """Leaves on their own after a split on trial."""
        splits = [change for change in self.ages if change.kind == "split"]
        return frozenset(part[0] for change in splits for part in change.after if len(part) == 1)

    def set_models(self, forks: Sequence[State | None], folds: Mapping[int, Folds]) -> None:
        """Set the forks' models after a round.

        Args:
            forks: fork of each leaf; empty or None for none.
            folds: leaf → client → model trained without this client.
        """
        self._trained = forks
        self._folds = {}
        for leaf in self.separated_leaves & folds.keys():
            distinct = {id(state): state for _, state in sorted(folds[leaf].items())}
            self._folds[leaf] = list(distinct.values())

    def model_of(self, leaf: int) -> State | None:
        """Current model of a leaf's fork; with folds, their mean from the second round on.

        After a single round, a fold is no better than the leaf's own model, which all its clients trained.
        """
        grown = {leaf for change, age in self.ages.items() if age for leaf in change.leaves}
        if leaf in grown and leaf in self._folds:
            return weighted_mean(self._folds[leaf], [1.0] * len(self._folds[leaf]))
        return self._trained[leaf] if self._trained else None

    def set_trials(self, on_trial: Collection[ClusterChange], adopted: Collection[ClusterChange]) -> None:
        """Set which changes are on trial from now on.

        Args:
            on_trial: changes on trial from now on.
            adopted: changes just adopted.
        """
        ages = {c: age for c, age in self.ages.items() if c.kind == "split" and c not in adopted}
        self.ages = {change: ages[change] + 1 if change in ages else 0 for change in on_trial}

    def starts(self, models: Sequence[State], weights: Sequence[float]) -> list[State | None]:
        """Starting model of each leaf's fork in the coming round; None for no fork.

        Args:
            models: model of each leaf.
            weights: number of training windows of each leaf.
        """
        starts: list[State | None] = [None] * len(models)
        for change, age in self.ages.items():
            for part in () if is_simple_move(change) else change.after:
                if len(part) > 1:
                    forks = [self._trained[leaf] if age and self._trained else None for leaf in part]
                    trained = [state for state in forks if state is not None]
                    members = trained if len(trained) == len(part) else [models[leaf] for leaf in part]
                    mean = weighted_mean(members, [weights[leaf] for leaf in part])
                    for leaf in part:
                        starts[leaf] = mean
        return starts

    def fold_starts(
        self, models: Sequence[State], weights: Sequence[float], leaf_of: np.ndarray
    ) -> dict[int, list[State]]:
        """Leaf → starting models of its folds in the coming round.

        Args:
            models: model of each leaf.
            weights: number of training windows of each leaf.
            leaf_of: (K,) leaf of each client.
        """
        starts: dict[int, list[State]] = {}
        for change, age in self.ages.items():
            for leaf in self.separated_leaves.intersection(change.leaves):
                lines = lines_of(int((leaf_of == leaf).sum()))
                fold_models = self._folds.get(leaf, []) if age else []
                if lines and len(fold_models) != lines:
                    parent = next(cluster for cluster in change.before if leaf in cluster)
                    common = weighted_mean(
                        [models[member] for member in parent], [weights[member] for member in parent]
                    )
                    fold_models = [common] * lines
                if lines:
                    starts[leaf] = fold_models
        return starts

    def facts(self) -> list[list[Any]]:
        """State as JSON, for `restore`; the forks themselves are saved by the leaves."""
        return [[change.to_json(), age] for change, age in self.ages.items()]

    def restore(self, facts: Sequence[Sequence[Any]]) -> None:
        """Restore the result of `facts`; ValueError if malformed."""
        self.ages = {
            ClusterChange.from_json(change): checked_int(age, "the rounds of a fork") for change, age in facts
        }
