"""Holdings: windows per client, split, user, device and class, for partition.csv.

So a report needs neither the windows nor the code by which they were dealt. A class is the client's class in
training and test, even if a scenario renames classes; the group is the one of the client's leaf in the
scenario.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedge.data.partition import Partition
from hhar.windows.window_file import Windows


@dataclass(frozen=True)
class Holding:
    """Windows of one client with the same split, user, device and class.

    Attributes:
        client: its partition id.
        leaf: number of its leaf.
        split: "train", "val" or "test".
        user, device: recorded person and device; device is empty where unknown.
        label: name of the class.
        windows: number of windows, at least 1.
        unseen_client: 1 if the client's users take no part in training, else 0.
        group: group of the leaf in the scenario; None without one.
    """

    client: int
    leaf: int
    split: str
    user: str
    device: str
    label: str
    windows: int
    unseen_client: int
    group: int | None


def holdings(windows: Windows, partition: Partition, clients_per_leaf: Sequence[int]) -> Iterator[Holding]:
    """Windows of every client of `partition`, by client and split, sorted by user, device and class."""
    leaf_of = np.repeat(np.arange(len(clients_per_leaf)), clients_per_leaf).tolist()
    scenario = partition.scenario
    for client, parts in enumerate(partition.clients):
        leaf = leaf_of[client]
        labels = scenario.change_of(client).labels if scenario else None
        unseen, group = int(client in partition.unseen_clients), scenario.groups[leaf] if scenario else None
        for split, indices in zip(("train", "val", "test"), parts, strict=True):
            y = windows.labels[indices] if labels is None else labels[windows.labels[indices]]
            for owner, count in _count_windows(windows, indices, y):
                yield Holding(client, leaf, split, *owner, count, unseen, group)


def _count_windows(
    windows: Windows, indices: np.ndarray, y: np.ndarray
) -> Iterator[tuple[tuple[str, str, str], int]]:
    """Yield ((user, device, class), windows) of the windows at `indices` with labels `y`, sorted."""
    devices = np.full(len(indices), "") if windows.device is None else windows.device[indices]
    keys = np.rec.fromarrays([windows.user[indices], devices, y])
    unique_keys, counts = np.unique(keys, return_counts=True)
    for (user, device, label), count in zip(unique_keys.tolist(), counts.tolist(), strict=True):
        yield (user, device, windows.classes[label] if windows.has_labels else ""), count


def class_counts(held: Iterable[Holding], classes: Sequence[str], clients: int) -> np.ndarray:
    """(clients, C) int64: training windows of each class; (clients, 0) where windows have no classes.

    Args:
        held: holdings of all clients.
        classes: names, in order.
        clients: how many there are.
    """
    column_of = {label: column for column, label in enumerate(classes)}
    counts = np.zeros((clients, len(classes)), dtype=np.int64)
    for holding in held:
        if holding.split == "train" and holding.label not in column_of:
            return counts[:, :0]
        if holding.split == "train":
            counts[holding.client, column_of[holding.label]] += holding.windows
    return counts


def class_gap(held: Iterable[Holding]) -> float:
    """Total variation, 0..1, between the classes of some leaf's training windows and those of the mean leaf.

    The largest over the leaves: the share of a leaf's windows of other classes than in the average leaf. 0
    without training leaves.

    >>> of = lambda leaf, label, count: Holding(leaf, leaf, "train", "u", "", label, count, 0, None)
    >>> class_gap([of(0, "sit", 30), of(0, "walk", 10), of(1, "sit", 1), of(1, "walk", 3)])
    0.25
    """
    counts: dict[int, dict[str, int]] = {}
    for holding in held:
        if holding.split == "train" and not holding.unseen_client:
            leaf_counts = counts.setdefault(holding.leaf, {})
            leaf_counts[holding.label] = leaf_counts.get(holding.label, 0) + holding.windows
    labels = sorted({label for leaf_counts in counts.values() for label in leaf_counts})
    table = np.array(
        [[leaf_counts.get(label, 0) for label in labels] for leaf_counts in counts.values()], dtype=np.float64
    )
    return widest_class_gap(table) if table.size else 0.0


def widest_class_gap(counts: np.ndarray) -> float:
    """Total variation, 0..1, between the classes of some leaf and those of the mean leaf; the largest.

    Args:
        counts: (S, C) windows of each class at each leaf; a leaf without any is left out.

    >>> widest_class_gap(np.array([[30, 10], [1, 3], [0, 0]]))
    0.25
    """
    nonempty = counts[counts.sum(axis=1) > 0].astype(np.float64)
    if not nonempty.size:
        return 0.0
    shares = nonempty / nonempty.sum(axis=1, keepdims=True)
    return float(np.abs(shares - shares.mean(axis=0)).sum(axis=1).max() / 2)
