"""Likeness of clients' updates from one common start: the evidence of the deal test.

An update has two kinds of entries with different information: parameters, trained by SGD, reveal clients
whose labels differ; BatchNorm's statistics, clients whose inputs differ. Each kind is compared separately.
The start must not depend on the assignment of clients to leaves, or the test would find this assignment: it
is the start of a run's first leaf round, or of a probe. Shape letters: K clients, M kinds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedge.clustering.likeness.sketch import SIZE, cosines, sketch
from fedge.states.averaging import State
from fedge.states.restore_checks import checked_int, finite, form


@dataclass(frozen=True)
class Likeness:
    """Similarities of clients' updates.

    Attributes:
        cosines: (M, K, K) float64, of parameters and, where a model has them, of BatchNorm statistics.
        leaf_of: (K,) int64, the leaf of each client, in order of the clients' ids.
        global_round: global round of the updates.
        windows: (K,) int64, training windows of each client; None if unknown.
        clients: (K,) int64 ids, ascending; None if unknown.
    """

    cosines: np.ndarray
    leaf_of: np.ndarray
    global_round: int
    windows: np.ndarray | None = None
    clients: np.ndarray | None = None

    @property
    def strata(self) -> np.ndarray | None:
        """(K,) strata of clients for dealing, by their windows; None for all among all."""
        return None if self.windows is None else size_strata(self.windows)

    def to_state(self) -> State:
        """Arrays by name, for `from_state`."""
        return {
            "cosines": self.cosines,
            "leaf_of": self.leaf_of,
            "global_round": np.array([self.global_round], dtype=np.int64),
            **({} if self.windows is None else {"windows": self.windows}),
            **({} if self.clients is None else {"clients": self.clients}),
        }

    @classmethod
    def from_state(cls, state: State) -> "Likeness":
        """Inverse of `to_state`."""
        windows = np.array(state["windows"]) if "windows" in state else None
        cosines, leaf_of = np.array(state["cosines"]), np.array(state["leaf_of"])
        clients = np.array(state["clients"]) if "clients" in state else None
        return cls(cosines, leaf_of, int(state["global_round"][0]), windows, clients)

    def refuse_foreign_state(self, leaves: int) -> None:
        """Raise ValueError unless the arrays belong together and cover `leaves` leaves."""
        clients = len(self.leaf_of)
        form(self.leaf_of, "the leaves of updates", np.int64, (clients,), 0, leaves)
        form(self.cosines, "the cosines of updates", np.float64, (*self.cosines.shape[:1], clients, clients))
        finite({"cosines": self.cosines}, "updates")
        checked_int(self.global_round, "the round of updates")
        if self.windows is not None:
            form(self.windows, "the windows of updates", np.int64, (clients,), 0)
        if self.clients is not None:
            form(self.clients, "the clients of updates", np.int64, (clients,), 0)

    def is_same_update(self, old: "Likeness") -> bool:
        """Whether clients in both comparisons made the same update, bit by bit, at the same leaf.

        True as long as the data are unchanged. A client missing this time, or then, is no reason to test
        again: a second look at the same data would add a chance of a false split.

        Args:
            old: the earlier comparison, from the same start.
        """
        ids = [
            np.arange(len(likeness.leaf_of)) if likeness.clients is None else likeness.clients
            for likeness in (self, old)
        ]
        common, own_index, old_index = np.intersect1d(ids[0], ids[1], return_indices=True)
        if not len(common) or len(self.cosines) != len(old.cosines):
            return False
        same = np.array_equal(self.leaf_of[own_index], old.leaf_of[old_index])
        new_cosines, old_cosines = (
            self.cosines[:, own_index][:, :, own_index],
            old.cosines[:, old_index][:, :, old_index],
        )
        return same and np.array_equal(new_cosines, old_cosines)


class Updates:
    """The updates of one leaf round, each summarised on arrival; models are not kept."""

    def __init__(self, start: State, parameter_names: Sequence[str], global_round: int) -> None:
        """Start without updates.

        Args:
            start: the one model from which all clients train.
            parameter_names: the model's trainable entries.
            global_round: 1, 2, …
        """
        kinds = [list(parameter_names), _statistic_names(start, parameter_names)]
        self._start = start
        self._kinds = [names for names in kinds if names]
        self._global_round = global_round
        self._records: dict[int, tuple[int, int, list[np.ndarray]]] = {}

    def note(self, client: int, leaf: int, state: State, windows: int) -> None:
        """Record the model trained by a client of a leaf, unless it is not finite."""
        start = self._start
        summaries = [
            sketch([np.subtract(state[name], start[name], dtype=np.float64) for name in names])
            for names in self._kinds
        ]
        if all(np.isfinite(summary).all() for summary in summaries):
            self._records[client] = leaf, windows, summaries

    def summaries(self) -> dict[int, list[np.ndarray]]:
        """Client → the summary of each kind of its update, and its windows (1,), in float64."""
        return {
            client: [*kinds, np.array([windows], dtype=np.float64)]
            for client, (_, windows, kinds) in self._records.items()
        }

    def sizes(self) -> list[int]:
        """Length of each array of a client from `summaries`."""
        kinds = [sum(self._start[name].size for name in names) for names in self._kinds]
        return [*(min(size, SIZE) for size in kinds), 1]

    def take(self, client: int, leaf: int, summaries: Sequence[np.ndarray]) -> None:
        """Record `summaries` of a client from elsewhere, with the same shapes and dtypes."""
        *kinds, windows = summaries
        self._records[client] = leaf, int(windows[0]), kinds

    def likeness(self) -> Likeness:
        """Similarities of all recorded updates."""
        records = [self._records[client] for client in sorted(self._records)]
        leaves, windows, summaries = zip(*records, strict=True)
        return Likeness(
            np.stack([cosines(np.stack(of_kind)) for of_kind in zip(*summaries, strict=True)]),
            np.array(leaves, dtype=np.int64),
            self._global_round,
            np.array(windows, dtype=np.int64),
            np.array(sorted(self._records), dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self._records)


def size_strata(windows: np.ndarray) -> np.ndarray:
    """(K,) int64: clients with the same number have about equally many windows.

    A stratum spans a factor of two, the median in the middle of one of them: people with slightly more or
    fewer windows are dealt together, clients of two users, or with five times the windows, are not.

    Args:
        windows: (K,) training windows of each client.

    >>> size_strata(np.array([90, 100, 110, 200, 1500])).tolist()
    [0, 0, 0, 1, 4]
    """
    ratio = np.log2(np.maximum(windows, 1) / np.median(np.maximum(windows, 1)))
    return np.floor(ratio + 0.5).astype(np.int64)


def even_windows(windows: Sequence[int]) -> int:
    """Windows on which every client is to train for its update to be compared; 0: all of the client's.

    Longer training moves a model further, and in another direction. If clients are of several sizes, all
    train on as many windows as the smallest has, but on at least half of the median: a tiny client, then in
    its own stratum, costs the others no more.

    Args:
        windows: number of windows of each client.

    >>> even_windows([90, 100, 130]), even_windows([100, 110, 200, 1500]), even_windows([8, 100, 110])
    (0, 100, 50)
    """
    counts = np.array(windows, dtype=np.int64)
    if not len(counts) or (size_strata(counts) == size_strata(counts)[0]).all():
        return 0
    return int(max(counts.min(), np.ceil(np.median(counts) / 2), 1))


def _statistic_names(state: State, parameter_names: Sequence[str]) -> list[str]:
    """The entries other than parameters and counters."""
    return [n for n, a in state.items() if n not in parameter_names and np.issubdtype(a.dtype, np.floating)]
