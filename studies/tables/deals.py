"""Deals of papers missing from Fedge's own, as code of a partition."""

from collections.abc import Sequence

import numpy as np

from hhar.windows.window_file import Windows


def half_the_classes(
    windows: Windows, clients_per_leaf: Sequence[int], rng: np.random.Generator
) -> np.ndarray:
    """The client (N,) int64 of each window: one class per client, half of the classes per leaf.

    Leaf e has the first half of the classes if e is even, else the second; its clients have them in turn. The
    owners of a class share its windows evenly, in each split of the data.

    Source: the public code of Liu, Zhang, Song, Letaief 2020 (HierFAVG), one class per client, edges non-IID.
    """
    classes = np.unique(windows.labels)
    halves = np.array_split(classes, 2)
    class_of_client: list[int] = []
    for leaf, size in enumerate(clients_per_leaf):
        half = halves[leaf % 2]
        class_of_client += [int(half[client % len(half)]) for client in range(size)]
    parts = np.zeros(len(windows.y), dtype="U5") if windows.part is None else windows.part.astype("U5")
    client = np.full(len(windows.y), -1, dtype=np.int64)
    for part in np.unique(parts):
        for label in classes:
            owners = np.flatnonzero(np.array(class_of_client) == label)
            members = rng.permutation(np.flatnonzero((windows.labels == label) & (parts == part)))
            for owner, piece in zip(owners, np.array_split(members, max(1, len(owners))), strict=False):
                client[piece] = owner
    return client
