"""partition.csv: who holds what, so that a report needs neither the windows nor the code that dealt them.

A row per client, split, user, device and class with the number of windows; combinations without windows have
no row. The class is the one that the client learns and is tested on, under a scenario that renames classes,
too; the group is that of the client's leaf in the scenario. Written once, before the first round.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from fedge.data.partition import Partition
from hhar.windows.window_file import Windows

PARTITION_COLUMNS = (
    "client",
    "leaf",
    "split",
    "user",
    "device",
    "class",
    "windows",
    "unseen_client",
    "group",
)


def write_partition(
    path: Path, windows: Windows, partition: Partition, clients_per_leaf: Sequence[int]
) -> None:
    """Write the table of `partition`; device and group are left empty where there are none."""
    leaf_of = np.repeat(np.arange(len(clients_per_leaf)), clients_per_leaf)
    planted = partition.scenario
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(PARTITION_COLUMNS)
        for client, parts in enumerate(partition.clients):
            leaf = leaf_of[client]
            labels = planted.change_of(client).labels if planted else None
            who = (int(client in partition.unseen_clients), planted.groups[leaf] if planted else "")
            for split, indices in zip(("train", "val", "test"), parts, strict=True):
                y = windows.y[indices] if labels is None else labels[windows.y[indices]]
                for owner, count in _counts(windows, indices, y):
                    table.writerow([client, leaf, split, *owner, count, *who])


def _counts(
    windows: Windows, indices: np.ndarray, y: np.ndarray
) -> Iterator[tuple[tuple[str, str, str], int]]:
    """Yield ((user, device, class), windows) of the windows at `indices` with labels `y`, sorted."""
    devices = np.full(len(indices), "") if windows.device is None else windows.device[indices]
    keys = np.rec.fromarrays([windows.user[indices], devices, y])
    found, counts = np.unique(keys, return_counts=True)
    for (user, device, label), count in zip(found.tolist(), counts.tolist(), strict=True):
        yield (user, device, windows.classes[label]), count
