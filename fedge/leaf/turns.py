"""Turns of a leaf's clients in training: number of requests, time of the last, and last loss of each.

Kept for selections in need of them (`fedge.leaf.selection`), in checkpoints, and sent to separate leaf
servers. A client with a refused reply has used its turn, and keeps its earlier loss (contract C12).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedge.config.registers.option import shown


@dataclass(frozen=True)
class Candidates:
    """Clients of a leaf; every array is (n,), by `ids`.

    Attributes:
        ids: partition ids, int64, ascending.
        windows: training windows, int64.
        begun: leaf rounds in which each was asked to train, int64.
        given_in: the newest of them, counted through the run, int64; 0 before the first.
        updates: accepted replies, int64.
        losses: mean training loss of the newest of these, float64; NaN before the first.
    """

    ids: np.ndarray
    windows: np.ndarray
    begun: np.ndarray
    given_in: np.ndarray
    updates: np.ndarray
    losses: np.ndarray


@dataclass(frozen=True)
class ClientTurns:
    """One client's; see `Candidates`."""

    begun: int = 0
    given_in: int = 0
    updates: int = 0
    loss: float | None = None


_NONE = ClientTurns()


class Turns:
    """Turns of a leaf's clients."""

    def __init__(self, of: Mapping[int, ClientTurns] | None = None) -> None:
        """Start with the known values: partition id → its turns."""
        self._of = dict(of or {})

    def candidates(self, windows: Mapping[int, int]) -> Candidates:
        """Candidates of a selection; arrays of its own.

        Args:
            windows: partition id → training windows.
        """
        ids = sorted(windows)
        each = [self._of.get(client, _NONE) for client in ids]
        counts = [(one.begun, one.given_in, one.updates) for one in each]
        begun, given_in, updates = np.array(counts, np.int64).reshape(-1, 3).T.copy()
        losses = np.array([math.nan if one.loss is None else one.loss for one in each], np.float64)
        numbers = np.array([windows[client] for client in ids], np.int64)
        return Candidates(np.array(ids, np.int64), numbers, begun, given_in, updates, losses)

    def note(self, asked: Collection[int], losses: Mapping[int, float], leaf_round: int) -> None:
        """Take in a leaf round.

        Args:
            asked: clients asked to train.
            losses: client → mean training loss of its accepted reply.
            leaf_round: counted through the run.
        """
        for client in asked:
            before = self._of.get(client, _NONE)
            came = client in losses
            self._of[client] = ClientTurns(
                before.begun + 1, leaf_round, before.updates + came, losses[client] if came else before.loss
            )

    def hand_over(self, client: int, to: "Turns") -> None:
        """Give a client's turns to another leaf's."""
        if client in self._of:
            to._of[client] = self._of.pop(client)

    def facts(self) -> list[list[Any]]:
        """Rows (client, begun, given in, updates, loss or None), as JSON."""
        return [[c, t.begun, t.given_in, t.updates, t.loss] for c, t in sorted(self._of.items())]

    @classmethod
    def of_facts(cls, facts: Sequence[Sequence[Any]]) -> "Turns":
        """Turns of the result of `facts`; ValueError where they are none."""
        for client, *numbers, loss in facts:
            whole = all(type(number) is int and number >= 0 for number in (client, *numbers))
            if not whole or len(numbers) != 3 or type(loss) not in (float, int, type(None)):
                raise ValueError(
                    f"turns of a client must be numbers, but are {shown(numbers)}, {shown(loss)}"
                )
        return cls({client: ClientTurns(*values) for client, *values in facts})
