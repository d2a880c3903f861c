"""Changes of the current groups, each decided separately: proposed, tried, adopted or put off.

Found groups differ from the present ones in changes without common leaves: a split of a cluster, a merge of
clusters, moves of leaves between clusters. Each waits for confirmation in `cluster.patience` successive cloud
steps, is tried, and is adopted or refused by its own trial (`fedge.clustering.memberships.strangers`),
independently of the others. A refused change is tried again in the next two steps, with longer-trained forks;
then confirmation takes as often again, twice as often, four times, and so on. Shape letter: S leaf servers.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedge.clustering.deal_test.deals import DealTest
from fedge.clustering.likeness.similarity import number_by_first_appearance
from fedge.clustering.memberships.membership import events_between
from fedge.states.restore_checks import checked_choice, checked_int, checked_ints, group_labels

Leaves = tuple[int, ...]
MOST_DOUBLINGS = 6  # of the patience with a repeatedly failing change
_PROMPT_TRIALS = 3  # successive, of continued forks


@dataclass(frozen=True)
class ClusterChange:
    """One change of clusters.

    Attributes:
        kind: "split", "merge", or "move".
        before: the affected clusters, each in order.
        after: the same leaves after the change.
    """

    kind: str
    before: tuple[Leaves, ...]
    after: tuple[Leaves, ...]

    @property
    def leaves(self) -> Leaves:
        """All affected leaves, in order."""
        return tuple(sorted(leaf for cluster in self.before for leaf in cluster))

    def after_of(self, leaf: int) -> Leaves:
        """The target cluster of a leaf."""
        return next(cluster for cluster in self.after if leaf in cluster)

    @property
    def movers(self) -> Leaves:
        """The leaves with new companions: all but the largest part of each new cluster.

        >>> ClusterChange("move", ((0, 1, 2), (3, 4)), ((0, 1), (2, 3, 4))).movers
        (2,)
        """
        staying: set[int] = set()
        for cluster in self.after:
            shared = [set(cluster) & set(old) for old in self.before]
            staying |= max(shared, key=len)
        return tuple(leaf for leaf in self.leaves if leaf not in staying)

    def to_json(self) -> dict[str, Any]:
        """The change as JSON."""
        return {
            "kind": self.kind,
            "before": [list(cluster) for cluster in self.before],
            "after": [list(cluster) for cluster in self.after],
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> "ClusterChange":
        """Inverse of `to_json`."""
        before, after = (
            tuple(tuple(checked_ints(cluster, "leaves of a change of clusters")) for cluster in facts[name])
            for name in ("before", "after")
        )
        change = cls(
            checked_choice(facts["kind"], "a change of clusters", ("split", "merge", "move")), before, after
        )
        if sorted(leaf for part in after for leaf in part) != list(change.leaves):
            raise ValueError("a change of clusters must have the same leaves before and after, but has not")
        return change


def changes_between(before: np.ndarray, after: np.ndarray) -> list[ClusterChange]:
    """The changes from some groups to others, (S,) both; they share no leaf."""
    return [ClusterChange.from_json(event) for event in events_between(before, after)]


def apply_changes(labels: np.ndarray, changes: Collection[ClusterChange]) -> np.ndarray:
    """The groups (S,) after some changes without common leaves, numbered by first appearance."""
    result, next_label = labels.copy(), int(labels.max()) + 1
    for change in changes:
        for cluster in change.after:
            result[list(cluster)] = next_label
            next_label += 1
    return number_by_first_appearance(result)


def next_groups(
    target: np.ndarray, tests: Sequence[DealTest], present: np.ndarray, refused: Collection[ClusterChange]
) -> np.ndarray:
    """The groups (S,) of the next step from the present ones to the tests' result.

    A cluster with more than two parts is split one cut at a time, the coarsest first, each cut with its own
    trial. If this cut was refused, all of its parts are proposed at once: each side may contain groups of two
    kinds, visible to finer cuts only. If that was refused, too, the groups in between are proposed: every
    trial is of a partition allowed by the tests.

    Args:
        target: (S,) found by the tests.
        tests: each before those of its parts.
        present: (S,) in force.
        refused: changes with failed trials.
    """
    labels = present
    for change in changes_between(present, target):
        step = change
        if change.kind == "split" and len(change.after) > 2:
            coarse, *between = _coarser_splits(change, tests) or [change]
            order = [coarse, change, *between]
            step = next((candidate for candidate in order if candidate not in refused), change)
        labels = apply_changes(labels, [step])
    return labels


def _coarser_splits(change: ClusterChange, tests: Sequence[DealTest]) -> list[ClusterChange]:
    """The splits of a cluster by its first cut, by the first two, …, without the last."""
    (cluster,) = change.before
    groups, splits = [cluster], []
    for test in tests:
        parts = [tuple(leaf for leaf in cluster if leaf in part) for part in test.parts]
        parent = next((group for group in groups if set(group) == {*parts[0], *parts[1]}), None)
        if test.stands and all(parts) and parent is not None:
            groups = sorted([*(group for group in groups if group != parent), *parts])
            splits.append(ClusterChange("split", change.before, tuple(groups)))
    return [split for split in splits if split != change]


class Proposals:
    """The present groups, and the pending changes.

    Attributes:
        labels: (S,), or None before the first cloud step.
        agreed: change → successive steps with it, since its last failed trial.
        on_trial: changes for which forks train until the next step.
        failed: change → failed trials since its leaves last changed.
    """

    def __init__(self) -> None:
        """Start with nothing known."""
        self.labels: np.ndarray | None = None
        self.agreed: dict[ClusterChange, int] = {}
        self.on_trial: tuple[ClusterChange, ...] = ()
        self.failed: dict[ClusterChange, int] = {}

    def present(self, leaves: int) -> np.ndarray:
        """The groups (S,) in force; one cluster before there are any."""
        return np.zeros(leaves, dtype=np.int64) if self.labels is None else self.labels

    @property
    def is_unsettled(self) -> bool:
        """Whether a change without a failed trial is pending."""
        return any(change not in self.failed for change in self.agreed)

    def find(self, groups: np.ndarray) -> None:
        """Record the groups (S,) of a step; changes not found again are forgotten."""
        changes = changes_between(self.present(len(groups)), groups)
        self.agreed = {change: self.agreed.get(change, 0) + 1 for change in changes}

    def decide(self, useful: Mapping[ClusterChange, bool], leaves: int) -> list[ClusterChange]:
        """Adopt the changes on trial, if found again and useful; return them.

        Args:
            useful: results of the trials; a change without answers waits.
            leaves: S.
        """
        adopted = [c for c in self.on_trial if c in self.agreed and useful.get(c)]
        for change in self.on_trial:
            if change in self.agreed and useful.get(change) is False:
                self.failed[change] = self.failed.get(change, 0) + 1
                self.agreed[change] = 0
        touched = {leaf for change in adopted for leaf in change.leaves}
        if adopted:
            self.failed = {c: n for c, n in self.failed.items() if not touched & set(c.leaves)}
            self.agreed = {c: n for c, n in self.agreed.items() if not touched & set(c.leaves)}
        self.labels = apply_changes(self.present(leaves), adopted)
        return adopted

    def call(self, patience: int) -> tuple[ClusterChange, ...]:
        """The changes with the next trial: the next step decides, if they are found again."""
        for change in self.agreed:
            self.agreed[change] = min(self.agreed[change], self.needed(change, patience) - 1)
        self.on_trial = tuple(c for c, n in self.agreed.items() if n + 1 >= self.needed(c, patience))
        return self.on_trial

    def needed(self, change: ClusterChange, patience: int) -> int:
        """Number of successive steps needed to find a change."""
        failed = self.failed.get(change, 0)
        if 0 < failed < _PROMPT_TRIALS:
            return 1
        return int(patience * 2 ** min(max(0, failed - _PROMPT_TRIALS), MOST_DOUBLINGS))

    def gain_factor(self, change: ClusterChange) -> int:
        """Factor on the least gain required of a change in its next trial.

        Forks of truly different groups gain more with every round, while repeated trials find a small gain
        by chance; so each trial demands more than the one before.
        """
        return 1 + min(self.failed.get(change, 0), _PROMPT_TRIALS) if change.kind == "split" else 1

    def facts(self) -> dict[str, Any]:
        """Everything as JSON, for `restore`."""
        return {
            "labels": None if self.labels is None else self.labels.tolist(),
            "agreed": [[change.to_json(), count] for change, count in self.agreed.items()],
            "on_trial": [change.to_json() for change in self.on_trial],
            "failed": [[change.to_json(), count] for change, count in self.failed.items()],
        }

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore the result of `facts`; ValueError for anything else."""
        labels = facts["labels"]
        self.labels = None if labels is None else group_labels(labels, "labels of proposals", len(labels))
        self.agreed, self.failed = (
            {
                ClusterChange.from_json(change): checked_int(count, f"{name} changes")
                for change, count in facts[name]
            }
            for name in ("agreed", "failed")
        )
        self.on_trial = tuple(ClusterChange.from_json(change) for change in facts["on_trial"])
