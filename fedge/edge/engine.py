"""Leaf servers as an engine of a run: who is there is asked of the gate, and clients are never sent anything.

To `fedge.exchange.clients.find_clients` every client of a leaf server that is attached has answered its first
call. All else that clients do is ordered of their leaf server (`fedge.edge.port`).
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from flwr.app import Message
from flwr.serverapp import Grid

from fedge.config.topology import leaf_of_clients
from fedge.edge.port import EdgeLeaves
from fedge.exchange.failure import Failure, raised
from fedge.exchange.hello import Hello, hello_reply
from fedge.link.frames import Packet
from fedge.link.gate import OVER, LeafGate, LeafGone
from fedge.rounds.port import Around, RunFacts

_POLL_S = 0.05
_LEAVE_S = 5.0


class EdgeEngine:
    """Leaf servers behind a gate, as `fedge.exchange.engine.Engine`."""

    in_order = False
    nodes_come_back = False  # leaf servers do, behind the gate

    def __init__(self, gate: LeafGate, clients_per_leaf: Sequence[int]) -> None:
        """Take the gate, and how many clients stand under each leaf, in order."""
        self._gate = gate
        self._leaf_of = leaf_of_clients(clients_per_leaf)
        self._replies: dict[str, Message] = {}
        self._numbers = count(1)
        self._port: EdgeLeaves | None = None

    def make_port(self, facts: RunFacts, around: Around) -> EdgeLeaves:
        """Return what gives leaf servers their orders."""
        self._port = EdgeLeaves(self._gate, facts, around)
        return self._port

    def dismiss(self) -> None:
        """Tell all leaf servers that are there that the run is over, and let the threads go."""
        for leaf in self._gate.hellos():
            with suppress(LeafGone):
                self._gate.ask(leaf, Packet(OVER), _LEAVE_S)
        self.close()

    def close(self) -> None:
        """Let the threads go."""
        if self._port is not None:
            self._port.close()

    @property
    def grid(self) -> Grid:
        """There is none: leaf servers have their own."""
        raise NotImplementedError("clients are reached through their leaf servers")

    @property
    def worker_ids(self) -> Sequence[int]:
        """Workers are elsewhere."""
        return ()

    def get_node_ids(self) -> Iterable[int]:
        """Return a node for each client of leaf servers that are attached."""
        there = self._gate.hellos()
        return [client + 1 for client, leaf in enumerate(self._leaf_of) if leaf in there]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Answer a first call in the client's place; returns the messages' ids."""
        ids = []
        for message in messages:
            message_id = str(next(self._numbers))
            message.metadata.__dict__["_message_id"] = message_id
            hello = Hello(message.metadata.dst_node_id - 1, len(self._leaf_of), device="")
            self._replies[message_id] = hello_reply(hello, message)
            ids.append(message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the answers."""
        return [self._replies.pop(i) for i in list(message_ids) if i in self._replies]

    def wait(self, timeout_s: float) -> None:
        """Wait for one poll, at most so many seconds."""
        time.sleep(min(_POLL_S, timeout_s))

    def give_up_late(self, limit_s: float) -> None:
        """Do nothing: leaf servers give up their own clients after as many seconds."""

    def failure_of(self, reply: Message) -> Failure:
        """Return why a client failed."""
        return raised(reply.error.reason)

    def refuse_stopped(self) -> None:
        """A leaf server that has gone is waited for where it is asked."""

    def spans_machines(self) -> bool:
        """Leaf servers may be anywhere."""
        return True

    def hand_out(self, data_folder: Path) -> str:
        """Leaf servers have the windows of their clients."""
        return ""
