"""Forks trained for trials of changes: their starts, and their rounds of training.

A fork begins with the mean of its proposed cluster. A fork of a refused split on a second trial continues,
because a leaf leaving a bad common model needs some rounds to make a good one of its own, and a leaf
separated by chance needs some to lose.

A leaf alone after a split has *folds* instead: as its clients are each other's strangers, each of up to
`fedge.leaf.folds.MOST_LINES` forks is trained by all of its clients but some, and evaluated by these. They
begin with the common model, in which the leaf has no more part than in the one compared with.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from fedge.clustering.memberships.proposals import ClusterChange
from fedge.clustering.memberships.strangers import Folds, is_simple_move
from fedge.leaf.folds import lines_of
from fedge.states.averaging import State, weighted_mean
from fedge.states.restored import whole


class Forks:
    """The forks of the changes on trial.

    Attributes:
        ages: change on trial → rounds of its forks before the present round.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self.ages: dict[ClusterChange, int] = {}
        self._made: Sequence[State | None] = ()
        self._folds: dict[int, list[State]] = {}

    @property
    def apart(self) -> frozenset[int]:
        """The leaves alone after a split on trial."""
        splits = [change for change in self.ages if change.kind == "split"]
        return frozenset(part[0] for change in splits for part in change.after if len(part) == 1)

    def back(self, made: Sequence[State | None], folds: Mapping[int, Folds]) -> None:
        """Take the forks' models from a round.

        Args:
            made: per leaf its fork; empty or None for none.
            folds: leaf → client → model trained without the client.
        """
        self._made = made
        self._folds = {}
        for leaf in self.apart & folds.keys():
            distinct = {id(state): state for _, state in sorted(folds[leaf].items())}
            self._folds[leaf] = list(distinct.values())

    def of(self, leaf: int) -> State | None:
        """Current model of a leaf's fork; with folds, their mean once they are better.

        After one round, a fold is no better than the leaf's own model, trained by all of its clients.
        """
        grown = {leaf for change, age in self.ages.items() if age for leaf in change.leaves}
        if leaf in grown and leaf in self._folds:
            return weighted_mean(self._folds[leaf], [1.0] * len(self._folds[leaf]))
        return self._made[leaf] if self._made else None

    def go_on(self, on_trial: Collection[ClusterChange], adopted: Collection[ClusterChange]) -> None:
        """Take note which changes are on trial from now on.

        Args:
            on_trial: that are.
            adopted: that were until now.
        """
        before = {c: age for c, age in self.ages.items() if c.kind == "split" and c not in adopted}
        self.ages = {change: before[change] + 1 if change in before else 0 for change in on_trial}

    def starts(self, models: Sequence[State], weights: Sequence[float]) -> list[State | None]:
        """Per leaf the model with which its fork trains in the coming round; None for no fork.

        Args:
            models: per leaf its model.
            weights: per leaf its number of training windows.
        """
        starts: list[State | None] = [None] * len(models)
        for change, age in self.ages.items():
            for part in () if is_simple_move(change) else change.after:
                if len(part) > 1:
                    made = [self._made[leaf] if age and self._made else None for leaf in part]
                    trained = [state for state in made if state is not None]
                    known = trained if len(trained) == len(part) else [models[leaf] for leaf in part]
                    begin = weighted_mean(known, [weights[leaf] for leaf in part])
                    for leaf in part:
                        starts[leaf] = begin
        return starts

    def fold_starts(
        self, models: Sequence[State], weights: Sequence[float], leaf_of: np.ndarray
    ) -> dict[int, list[State]]:
        """Leaf → the models with which its folds train in the coming round.

        Args:
            models: per leaf its model.
            weights: per leaf its number of training windows.
            leaf_of: (K,) leaf of each client.
        """
        starts: dict[int, list[State]] = {}
        for change, age in self.ages.items():
            for leaf in self.apart.intersection(change.leaves):
                lines = lines_of(int((leaf_of == leaf).sum()))
                made = self._folds.get(leaf, []) if age else []
                if lines and len(made) != lines:
                    whole = next(cluster for cluster in change.before if leaf in cluster)
                    common = weighted_mean([models[at] for at in whole], [weights[at] for at in whole])
                    made = [common] * lines
                if lines:
                    starts[leaf] = made
        return starts

    def facts(self) -> list[list[Any]]:
        """Everything but the forks as JSON, for `restore`; leaves keep these."""
        return [[change.to_json(), age] for change, age in self.ages.items()]

    def restore(self, facts: Sequence[Sequence[Any]]) -> None:
        """Restore the result of `facts`; ValueError where they are none."""
        self.ages = {
            ClusterChange.from_json(change): whole(age, "the rounds of a fork") for change, age in facts
        }
