"""Progress of clients behind leaf servers, from the servers' notes."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from fedge.edge.answers import check_note
from fedge.exchange.clients import ExchangeProgress
from fedge.link.dial import Note
from fedge.link.frames import Packet
from fedge.link.gate import OnNote
from fedge.process.endings.watchdog import note_progress

_MOST_TURNS = 5  # largest number of restarts of an order at one leaf server


class Progress:
    """Progress of the clients of all leaf servers, from the servers' notes."""

    def __init__(
        self,
        clients: Mapping[int, Sequence[int]],
        rounds: Mapping[int, tuple[int, int]],
        servers: Mapping[int, int] | None = None,
    ) -> None:
        """Start without notes.

        Args:
            clients: leaf server → its working clients, and those of other leaf servers asked over its link.
            rounds: leaf server → first and last leaf round of a region asked over its link.
            servers: leaf server → number of leaf servers asked over its link, if more than one.
        """
        self._clients, self._rounds, self._servers = clients, rounds, servers or {}
        self._kind = ""
        self._back: dict[int, frozenset[int]] = {}
        self._failed: dict[int, frozenset[int]] = {}

    def noted(self, leaf: int) -> OnNote:
        """Receiver of the notes of one leaf server; progress means that further clients have finished.

        A restarted leaf server may start over, a few times for each server asked over the link; a region
        moves on to its next leaf round.
        """
        turns, newest = 0, 0  # restarts, and the leaf round of the newest note
        most = _MOST_TURNS * self._servers.get(leaf, 1)

        def note(packet: Packet) -> bool:
            nonlocal turns, newest
            kind, back, failed, leaf_round = check_note(packet, self._clients[leaf], self._rounds.get(leaf))
            before = self._back.get(leaf, frozenset()) | self._failed.get(leaf, frozenset())
            is_next, falls, newest = leaf_round > newest, leaf_round < newest, leaf_round
            begins_anew = falls or (not is_next and not before <= back | failed)
            turns += begins_anew
            if turns > most:
                return False
            has_got_on = is_next or begins_anew or before < back | failed
            if has_got_on:
                note_progress()
            self._kind, self._back[leaf], self._failed[leaf] = kind, back, failed
            return has_got_on

        return note

    def done(self, leaf: int) -> None:
        """Record a leaf server's answer."""
        if self._back.get(leaf) != frozenset(self._clients[leaf]):
            self._back[leaf] = frozenset(self._clients[leaf])
            note_progress()

    def standing(self) -> ExchangeProgress:
        """Current progress."""
        asked, back, failed = (
            frozenset(client for members in of.values() for client in members)
            for of in (self._clients, self._back, self._failed)
        )
        return ExchangeProgress(self._kind, asked, back, failed - back)


class MergedNotes:
    """Notes of the leaf servers of one process, as one note."""

    def __init__(self, note: Note) -> None:
        """Merge notes, and send them with `note`."""
        self._note = note
        self._where: dict[str, int] = {}
        self._of: dict[int, Mapping[str, Any]] = {}
        self._lock = threading.Lock()

    def begin(self, leaf_round: int) -> None:
        """Start a leaf round: forget earlier notes, and report this round from now on."""
        with self._lock:
            self._where, self._of = {"leaf_round": leaf_round}, {}

    def of(self, leaf: int) -> Note:
        """Receiver of the notes of a leaf server."""

        def note(facts: Mapping[str, Any]) -> None:
            with self._lock:  # notes are sent one at a time
                self._of[leaf] = facts
                merged = {
                    who: sorted({client for each in self._of.values() for client in each[who]})
                    for who in ("asked", "back", "failed")
                }
                self._note({"kind": facts["kind"], **merged, **self._where})

        return note
