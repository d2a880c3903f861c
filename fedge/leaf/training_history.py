"""Training history of a leaf's clients: number of requests, round of the last one, and last loss.

Recorded for selections reading it (`fedge.leaf.selection`), saved in checkpoints, and sent to separate leaf
servers. A refused reply counts as a turn and leaves the client's earlier loss (contract C12).
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedge.config.registers.option import shown


@dataclass(frozen=True)
class Candidates:
    """Clients of a leaf; every array is (n,), in the order of `ids`.

    Attributes:
        ids: partition ids, int64, ascending.
        windows: number of training windows, int64.
        begun: number of leaf rounds in which the client was asked to train, int64.
        given_in: the latest of these rounds, counted over the run, int64; 0 before the first.
        updates: number of accepted replies, int64.
        losses: mean training loss of the latest accepted reply, float64; NaN before the first.
    """

    ids: np.ndarray
    windows: np.ndarray
    begun: np.ndarray
    given_in: np.ndarray
    updates: np.ndarray
    losses: np.ndarray


@dataclass(frozen=True)
class ClientTurns:
    """Training history of one client; see `Candidates`."""

    begun: int = 0
    given_in: int = 0
    updates: int = 0
    loss: float | None = None


_NONE = ClientTurns()


class Turns:
    """Training history of a leaf's clients."""

    def __init__(self, history: Mapping[int, ClientTurns] | None = None) -> None:
        """Start with a known history: partition id → its turns."""
        self._history = dict(history or {})

    def candidates(self, windows: Mapping[int, int]) -> Candidates:
        """Candidates for a selection, in new arrays.

        Args:
            windows: partition id → number of training windows.
        """
        ids = sorted(windows)
        turns = [self._history.get(client, _NONE) for client in ids]
        counts = [(turn.begun, turn.given_in, turn.updates) for turn in turns]
        begun, given_in, updates = np.array(counts, np.int64).reshape(-1, 3).T.copy()
        losses = np.array([math.nan if turn.loss is None else turn.loss for turn in turns], np.float64)
        numbers = np.array([windows[client] for client in ids], np.int64)
        return Candidates(np.array(ids, np.int64), numbers, begun, given_in, updates, losses)

    def note(self, asked: Collection[int], losses: Mapping[int, float], leaf_round: int) -> None:
        """Record a leaf round.

        Args:
            asked: clients asked to train.
            losses: client → mean training loss of its accepted reply.
            leaf_round: its number, counted over the run.
        """
        for client in asked:
            previous = self._history.get(client, _NONE)
            has_reply = client in losses
            self._history[client] = ClientTurns(
                previous.begun + 1,
                leaf_round,
                previous.updates + has_reply,
                losses[client] if has_reply else previous.loss,
            )

    def hand_over(self, client: int, to: "Turns") -> None:
        """Move a client's history to another leaf's."""
        if client in self._history:
            to._history[client] = self._history.pop(client)

    def facts(self) -> list[list[Any]]:
        """Rows (client, begun, given in, updates, loss or None), as JSON."""
        return [[c, t.begun, t.given_in, t.updates, t.loss] for c, t in sorted(self._history.items())]

    @classmethod
    def of_facts(cls, facts: Sequence[Sequence[Any]]) -> "Turns":
        """Restore from the result of `facts`; ValueError if malformed."""
        for client, *numbers, loss in facts:
            are_integers = all(type(number) is int and number >= 0 for number in (client, *numbers))
            if not are_integers or len(numbers) != 3 or type(loss) not in (float, int, type(None)):
                raise ValueError(
                    f"turns of a client must be numbers, but are {shown(numbers)}, {shown(loss)}"
                )
        return cls({client: ClientTurns(*values) for client, *values in facts})
