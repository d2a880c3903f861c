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

_MOST_RESTARTS = 5  # largest number of restarts of an order at one leaf server


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
        self._replied: dict[int, frozenset[int]] = {}
        self._failed: dict[int, frozenset[int]] = {}

    def receiver(self, leaf: int) -> OnNote:
        """Receiver of the notes of one leaf server; progress means further finished clients.

        A restarted leaf server may start over, a few times for each server asked over the link; a region
        moves on to its next leaf round.
        """
        restarts, current = 0, 0  # restarts, and the leaf round of the newest note
        most = _MOST_RESTARTS * self._servers.get(leaf, 1)

        def note(packet: Packet) -> bool:
            nonlocal restarts, current
            kind, replied, failed, leaf_round = check_note(
                packet, self._clients[leaf], self._rounds.get(leaf)
            )
            previous = self._replied.get(leaf, frozenset()) | self._failed.get(leaf, frozenset())
            is_next, is_earlier, current = leaf_round > current, leaf_round < current, leaf_round
            is_restart = is_earlier or (not is_next and not previous <= replied | failed)
            restarts += is_restart
            if restarts > most:
                return False
            has_advanced = is_next or is_restart or previous < replied | failed
            if has_advanced:
                note_progress()
            self._kind, self._replied[leaf], self._failed[leaf] = kind, replied, failed
            return has_advanced

        return note

    def done(self, leaf: int) -> None:
        """Record a leaf server's answer."""
        if self._replied.get(leaf) != frozenset(self._clients[leaf]):
            self._replied[leaf] = frozenset(self._clients[leaf])
            note_progress()

    def standing(self) -> ExchangeProgress:
        """Current progress."""
        asked, replied, failed = (
            frozenset(client for members in by_server.values() for client in members)
            for by_server in (self._clients, self._replied, self._failed)
        )
        return ExchangeProgress(self._kind, asked, replied, failed - replied)


class MergedNotes:
    """Notes of the leaf servers of one process, as one note."""

    def __init__(self, note: Note) -> None:
        """Merge notes, and send them with `note`."""
        self._note = note
        self._round_facts: dict[str, int] = {}
        self._notes: dict[int, Mapping[str, Any]] = {}
        self._lock = threading.Lock()

    def begin(self, leaf_round: int) -> None:
        """Start a leaf round: forget earlier notes, and report this round from now on."""
        with self._lock:
            self._round_facts, self._notes = {"leaf_round": leaf_round}, {}

    def receiver(self, leaf: int) -> Note:
        """Receiver of the notes of a leaf server."""

        def note(facts: Mapping[str, Any]) -> None:
            with self._lock:  # notes are sent one at a time
                self._notes[leaf] = facts
                merged = {
                    name: sorted({client for latest in self._notes.values() for client in latest[name]})
                    for name in ("asked", "back", "failed")
                }
                self._note({"kind": facts["kind"], **merged, **self._round_facts})

        return note
