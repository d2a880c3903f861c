"""How alike the updates are that clients made from one common start: what the deal test looks at.

An update has two kinds of entries that see different things: what SGD trains (parameters) shows who learns
other answers, BatchNorm's statistics show whose readings are of another kind. Each kind is compared by
itself. The start must not depend on who is at which leaf, or the leaves would be found in it: the first leaf
round of a run, or a probe. Shape letters: K clients, M kinds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedge.clustering.sketch import cosines, sketch
from fedge.states.averaging import State


@dataclass(frozen=True)
class Likeness:
    """How alike clients' updates are.

    Attributes:
        cosines: (M, K, K) float64, of parameters and, where a model has them, of BatchNorm statistics.
        leaf_of: (K,) int64, the leaf of each client, in order of the clients' ids.
        global_round: in which the updates were made.
    """

    cosines: np.ndarray
    leaf_of: np.ndarray
    global_round: int

    def to_state(self) -> State:
        """Return it as arrays by name, for `from_state`."""
        return {
            "cosines": self.cosines,
            "leaf_of": self.leaf_of,
            "global_round": np.array([self.global_round], dtype=np.int64),
        }

    @classmethod
    def from_state(cls, state: State) -> "Likeness":
        """Return what `to_state` gave."""
        return cls(np.array(state["cosines"]), np.array(state["leaf_of"]), int(state["global_round"][0]))


class Updates:
    """The updates of one leaf round, each summarised as it comes, so that no model is kept."""

    def __init__(self, start: State, parameter_names: Sequence[str], global_round: int) -> None:
        """Begin with nothing.

        Args:
            start: the one model from which all clients train.
            parameter_names: its trainable entries.
            global_round: 1, 2, …
        """
        kinds = [list(parameter_names), _statistics(start, parameter_names)]
        self._start = start
        self._kinds = [names for names in kinds if names]
        self._global_round = global_round
        self._seen: dict[int, tuple[int, list[np.ndarray]]] = {}

    def note(self, client: int, leaf: int, state: State) -> None:
        """Take in what a client of a leaf has trained; nothing of it, if it is not finite."""
        start = self._start
        summaries = [
            sketch([np.subtract(state[name], start[name], dtype=np.float64) for name in names])
            for names in self._kinds
        ]
        if all(np.isfinite(summary).all() for summary in summaries):
            self._seen[client] = leaf, summaries

    def summaries(self) -> dict[int, list[np.ndarray]]:
        """Return client → the summary of each kind of its update, in float64."""
        return {client: list(kinds) for client, (_, kinds) in self._seen.items()}

    def take(self, client: int, leaf: int, summaries: Sequence[np.ndarray]) -> None:
        """Take in what `summaries` gave of a client, elsewhere: (P,) float64 of each kind."""
        self._seen[client] = leaf, list(summaries)

    def likeness(self) -> Likeness:
        """Return how alike all that have come are."""
        clients = sorted(self._seen)
        return Likeness(
            np.stack(
                [
                    cosines(np.stack([self._seen[client][1][kind] for client in clients]))
                    for kind in range(len(self._kinds))
                ]
            ),
            np.array([self._seen[client][0] for client in clients], dtype=np.int64),
            self._global_round,
        )

    def __len__(self) -> int:
        return len(self._seen)


def _statistics(state: State, parameter_names: Sequence[str]) -> list[str]:
    """Return the entries that are no parameters and no counters."""
    return [n for n, a in state.items() if n not in parameter_names and np.issubdtype(a.dtype, np.floating)]
