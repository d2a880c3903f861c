"""Clusters from one cloud step to the next: hysteresis, and changes as events.

Labels change only once `cluster.patience` successive cloud steps have found the same new groups, so
borderline leaves do not alternate. Shape letter: S leaf servers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from fedge.clustering.likeness.similarity import number_by_first_appearance
from fedge.states.restore_checks import checked_bool, checked_int, group_labels


class GroupEvent(TypedDict):
    """One change of clusters.

    Attributes:
        kind: "split", "merge", or "move" if leaves go from one cluster to another.
        before: the affected clusters, as leaves.
        after: the same after the change.
    """

    kind: str
    before: list[list[int]]
    after: list[list[int]]


class Membership:
    """The current labels and the pending change.

    Attributes:
        labels: (S,), or None before the first cloud step.
        candidate: (S,) differing labels of the latest steps; None without.
        agreed: number of successive steps with them.
        probed: whether these steps were probes; only steps of the same kind count.
    """

    def __init__(self) -> None:
        """Start with nothing known."""
        self.labels: np.ndarray | None = None
        self.candidate: np.ndarray | None = None
        self.agreed = 0
        self.probed = False

    @property
    def is_unsettled(self) -> bool:
        """Whether a candidate waits."""
        return self.candidate is not None

    def settle(self, labels: np.ndarray, patience: int, probed: bool = False) -> np.ndarray:
        """The labels after a step with result `labels` (S,).

        Before the first labels are in force, all leaves are one cluster.

        Args:
            labels: numbered by first appearance.
            patience: number of steps in agreement.
            probed: whether the step was a probe.
        """
        present = self.labels if self.labels is not None else np.zeros_like(labels)
        if np.array_equal(labels, present):
            if self.probed == probed:
                self._drop_candidate()
            return self._adopt(present)
        is_repeated = (
            self.probed == probed and self.candidate is not None and np.array_equal(labels, self.candidate)
        )
        self.agreed = self.agreed + 1 if is_repeated else 1
        self.candidate, self.probed = labels, probed
        if self.agreed < patience:
            return self._adopt(present)
        self._drop_candidate()
        return self._adopt(labels)

    def _drop_candidate(self) -> None:
        self.candidate, self.agreed = None, 0

    def _adopt(self, labels: np.ndarray) -> np.ndarray:
        self.labels = labels
        return labels

    def facts(self) -> dict[str, Any]:
        """Everything as JSON, for `restore`."""
        return {
            "labels": None if self.labels is None else self.labels.tolist(),
            "candidate": None if self.candidate is None else self.candidate.tolist(),
            "agreed": self.agreed,
            "probed": self.probed,
        }

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Restore the result of `facts`; ValueError for anything else."""
        self.labels, self.candidate = (
            None
            if facts[name] is None
            else group_labels(facts[name], f"{name} of a membership", len(facts[name]))
            for name in ("labels", "candidate")
        )
        self.agreed = checked_int(facts["agreed"], "the number of steps that agree")
        self.probed = checked_bool(facts["probed"], "whether steps were probes")

    def refuse_foreign_state(self, leaves: int) -> None:
        """Raise ValueError for labels of another number of leaves."""
        for labels in (self.labels, self.candidate):
            if labels is not None:
                group_labels(labels.tolist(), "labels of a membership", leaves)


def events_between(before: Sequence[int] | np.ndarray, after: Sequence[int] | np.ndarray) -> list[GroupEvent]:
    """Changes between two clusterings, in order of their smallest leaves; a mere renumbering is none.

    Clusters with common leaves, directly or through others, belong to one event: one cluster into several is
    a split, several into one a merge, and all other changes are moves. Both are (S,) labels.
    """
    old, new = np.asarray(before), np.asarray(after)
    events: list[GroupEvent] = []
    for leaves in _connected_leaves(old, new):
        old_clusters, new_clusters = _clusters(old, leaves), _clusters(new, leaves)
        if old_clusters != new_clusters:
            kind = "split" if len(old_clusters) == 1 else "merge" if len(new_clusters) == 1 else "move"
            events.append({"kind": kind, "before": old_clusters, "after": new_clusters})
    return events


def _connected_leaves(old: np.ndarray, new: np.ndarray) -> list[list[int]]:
    """The leaves of connected old and new clusters."""
    names = np.arange(len(old))
    while True:
        smallest = names.copy()
        for labels in (old, new):
            for label in np.unique(labels):
                smallest[labels == label] = smallest[labels == label].min()
        if np.array_equal(smallest, names):
            break
        names = smallest
    numbered = number_by_first_appearance(names)
    return [np.flatnonzero(numbered == k).tolist() for k in range(int(numbered.max()) + 1)]


def _clusters(labels: np.ndarray, leaves: Sequence[int]) -> list[list[int]]:
    """The clusters of some leaves, each in order."""
    groups: dict[int, list[int]] = {}
    for leaf in leaves:
        groups.setdefault(int(labels[leaf]), []).append(leaf)
    return list(groups.values())


def event_description(event: GroupEvent, noun: str = "leaves") -> str:
    """An event in words.

    Args:
        event: event of a step.
        noun: is grouped: leaves, or a server's children, by their numbers below it.
    """
    if event["kind"] == "split":
        return f"{noun} {_format_cluster(event['before'][0])} split into {_format_clusters(event['after'])}"
    if event["kind"] == "merge":
        return f"{noun} {_format_clusters(event['before'])} merged into {_format_cluster(event['after'][0])}"
    return f"{noun} moved: {_format_clusters(event['before'])} became {_format_clusters(event['after'])}"


def _format_cluster(leaves: Sequence[int]) -> str:
    """Leaves as {0 1 2}."""
    return "{" + " ".join(map(str, leaves)) + "}"


def _format_clusters(clusters: Sequence[Sequence[int]]) -> str:
    """Clusters as {0 1} and {2}."""
    *first, last = map(_format_cluster, clusters)
    return f"{', '.join(first)} and {last}" if first else last
