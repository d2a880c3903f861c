"""Leaf servers as the engine of a run: the gate tracks connected ones; clients get no messages directly.

For `fedge.exchange.finding.find_clients`, every client of a connected leaf server has answered hello; if
clients own their windows, only after the leaf server has passed on their descriptions. All other work is
ordered from the clients' leaf server (`fedge.edge.port`).
"""

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

from flwr.app import Error, Message
from flwr.serverapp import Grid

from fedge.config.flat import from_run_config
from fedge.config.registers.option import shown
from fedge.config.topology import leaf_of_clients
from fedge.data.own_windows import WindowsReport
from fedge.edge.answers import failure_reason
from fedge.edge.packets import orders
from fedge.edge.packets.hellos import differences, reported_kernels
from fedge.edge.packets.plain_json import mapping, text
from fedge.edge.port import EdgeLeaves
from fedge.exchange.engine import RemoteProcesses
from fedge.exchange.failure import Failure, exception_failure, reason_of, words_of
from fedge.exchange.hello import Hello, hello_reply
from fedge.flower import identify_task
from fedge.link.frames import Packet
from fedge.link.gate import OVER, LeafGate, LeafGone, LeafRefused
from fedge.process.escape import printable
from fedge.rounds.port import PortContext, RunFacts

logger = logging.getLogger(__name__)

_POLL_S = 0.05
_DISMISS_S = 5.0
_LAST_ANSWER_BYTES = (0, 2**16)  # bytes of the arrays, and of the head, of the last answer
_MOST_DESCRIPTION = 2**20  # bytes of one client's description of its windows
_ANSWER_S, _ANSWER_SHARE = 5.0, 0.2  # part of the wait for clients reserved for a leaf server's answer
_LEAST_WAIT_S = 0.5  # shortest wait for the clients of a leaf server connecting late
_RAISED = 2  # Flower's error code for an exception in a client


class EdgeEngine:
    """Leaf servers behind a gate, as `fedge.exchange.engine.Engine`."""

    in_order = False
    nodes_come_back = False  # leaf servers do, behind the gate
    startup_hint = "start every leaf's fedge leaf"

    def __init__(
        self,
        gate: LeafGate,
        clients_per_leaf: Sequence[int],
        owners: Mapping[str, Any] | None = None,
        resume_words: str = "",
    ) -> None:
        """Store the arguments.

        Args:
            gate: gate for leaf servers' connections.
            clients_per_leaf: number of clients of each leaf, in order.
            owners: facts with which leaf servers ask clients about their own windows (config, seed, clients);
                None if leaf servers have the windows.
            resume_words: further arguments of the command to resume the run.
        """
        identify_task()
        self.resume_words = resume_words
        self._gate = gate
        self._leaf_of = leaf_of_clients(clients_per_leaf)
        self._replies: dict[str, Message] = {}
        self._numbers = count(1)
        self._port: EdgeLeaves | None = None
        self._owners = owners
        # leaf → its clients' descriptions of their windows
        self._descriptions: dict[int, Future[Packet]] = {}
        self._waiting_hellos: dict[str, Message] = {}  # hello messages waiting for these
        self._wait_began: float | None = None  # start of the wait for clients, in monotonic seconds
        self._pool = ThreadPoolExecutor(len(clients_per_leaf), "leaf-owners")
        self._kernel = ""  # of the run's steps, where leaf servers' hellos report their clients' kernels
        self._reported: set[tuple[int, str]] = set()  # leaf, and its difference from the cloud

    def make_port(self, facts: RunFacts, context: PortContext) -> EdgeLeaves:
        """Make the port for sending orders to leaf servers."""
        self._kernel = "" if self._owners is not None else str(facts.begin.get("kernel", ""))
        self._port = EdgeLeaves(self._gate, facts, context)
        return self._port

    def mark_absent(self, clients: Collection[int]) -> None:
        """Stop waiting for the leaf servers of absent clients, which may still connect later."""
        self._gate.mark_absent({self._leaf_of[client] for client in clients})

    def new_remarks(self) -> list[str]:
        """A line for each new reason why the last bits of a leaf server may differ from the cloud's.

        A returning leaf server may be another installation, on another machine.
        """
        leaves_by_reason: dict[str, list[int]] = {}
        for leaf, hello in self._gate.hellos().items():
            reason = differences(hello, self._kernel)
            if reason and (leaf, reason) not in self._reported:
                self._reported.add((leaf, reason))
                leaves_by_reason.setdefault(reason, []).append(leaf)
        return [
            f"the last bits of leaf server {', '.join(map(str, leaves))} may differ: {reason}; use one "
            f"installation everywhere (docs/leaf-servers.md)"
            for reason, leaves in leaves_by_reason.items()
        ]

    def dismiss(self, reason: str = "") -> None:
        """Notify all connected leaf servers of the end of the run, and release the threads.

        The run is over, so an unexpected answer is only logged, and absent leaf servers are ignored.

        Args:
            reason: reason why no round finished; empty if one did.
        """
        packet = Packet(OVER, {orders.REASON: reason[: orders.LONGEST_REASON]} if reason else {})
        notifications = {
            leaf: self._pool.submit(self._notify_of_end, leaf, packet) for leaf in self._gate.hellos()
        }
        for leaf, future in notifications.items():
            if fault := future.result():
                logger.warning("leaf server %d was told that the run is over: %s", leaf, fault)
        self.close()

    def _notify_of_end(self, leaf: int, packet: Packet) -> str:
        """Notify one leaf server of the end of the run; returns the fault of its answer, if any."""
        try:
            answer = self._gate.ask(leaf, packet, _DISMISS_S, limit_s=_DISMISS_S, most=_LAST_ANSWER_BYTES)
            if answer.kind == orders.DONE:
                return ""
            return f"it answered {shown(answer.kind)}: {failure_reason(answer)}"
        except LeafRefused as error:
            return f"its answer is refused: {error}"
        except LeafGone:
            return ""
        except Exception as error:  # a leaf server can send anything here
            return printable(words_of(error))

    def close(self) -> None:
        """Release the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._port is not None:
            self._port.close()

    @property
    def grid(self) -> Grid:
        """Unavailable: leaf servers have their own grids."""
        raise NotImplementedError("clients are reached through their leaf servers")

    @property
    def worker_ids(self) -> Sequence[int]:
        """Empty: workers are in other processes."""
        return ()

    @staticmethod
    def partition_of_key(node_id: int) -> int | None:
        """None: nodes have no keys here."""
        return None

    def get_node_ids(self) -> Iterable[int]:
        """A node for each client of connected leaf servers."""
        self._wait_began = time.monotonic() if self._wait_began is None else self._wait_began
        connected = self._gate.hellos()
        return [client + 1 for client, leaf in enumerate(self._leaf_of) if leaf in connected]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Answer hello messages in place of the clients; returns the messages' ids."""
        ids = []
        for message in messages:
            message_id = str(next(self._numbers))
            message.metadata.__dict__["_message_id"] = message_id
            if self._owners is None:
                leaf = self._leaf_of[message.metadata.dst_node_id - 1]
                self._answer_hello(message, None, reported_kernels(self._gate.hellos().get(leaf)))
            else:
                self._waiting_hellos[message_id] = message
                self._request_descriptions(self._leaf_of[message.metadata.dst_node_id - 1])
            ids.append(message_id)
        return ids

    def _answer_hello(
        self, message: Message, windows: WindowsReport | None, kernels: tuple[str, ...] | None
    ) -> None:
        """Answer a hello message in a client's place."""
        client, clients = message.metadata.dst_node_id - 1, len(self._leaf_of)
        hello = Hello(client, clients, report=windows, device="", kernels=kernels)
        self._replies[message.metadata.message_id] = hello_reply(hello, message)

    def _request_descriptions(self, leaf: int) -> None:
        """Ask a leaf server, once, for its clients' descriptions."""
        if leaf not in self._descriptions:
            assert self._owners is not None
            patience_s = from_run_config(self._owners["config"]).guard.start_timeout
            waited_s = time.monotonic() - (self._wait_began or time.monotonic())
            wait_s = max(_LEAST_WAIT_S, patience_s - waited_s - min(_ANSWER_S, _ANSWER_SHARE * patience_s))
            question = Packet(orders.TELL, {**self._owners, "leaf": leaf, orders.WAIT_S: wait_s})
            most = (0, (1 + self._leaf_of.count(leaf)) * _MOST_DESCRIPTION)
            self._descriptions[leaf] = self._pool.submit(
                self._gate.ask, leaf, question, patience_s, limit_s=patience_s, most=most
            )

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The answers to hello messages."""
        for key, message in list(self._waiting_hellos.items()):
            client = message.metadata.dst_node_id - 1
            if (future := self._descriptions[self._leaf_of[client]]).done():
                del self._waiting_hellos[key]
                self._answer_from_description(message, client, future)
        return [self._replies.pop(i) for i in list(message_ids) if i in self._replies]

    def _answer_from_description(self, message: Message, client: int, future: "Future[Packet]") -> None:
        """Answer a hello message from a leaf server's packet, or with the reason for its failure."""
        leaf, fault = self._leaf_of[client], ""
        try:
            answer = future.result()
            fault = failure_reason(answer) if answer.kind != orders.DONE else ""
            if not fault:
                description = mapping(answer.facts["told"], "told").get(str(client))
                if description is None and self._may_be_absent:
                    logger.warning("client %d has not connected to leaf server %d", client, leaf)
                    return
                self._answer_hello(
                    message,
                    WindowsReport.of_text(text(description, _MOST_DESCRIPTION, "told")),
                    reported_kernels(answer),
                )
                return
        except (LeafGone, KeyError, ValueError) as error:
            fault = words_of(error)
        failure = Error(_RAISED, f"leaf server {leaf}: {fault}")
        self._replies[message.metadata.message_id] = Message(failure, reply_to=message)

    @property
    def _may_be_absent(self) -> bool:
        """Whether the run may start without some owners; each leaf server then reports those it can reach."""
        owners = self._owners
        return owners is not None and from_run_config(owners["config"]).guard.start_clients > 0

    def wait(self, timeout_s: float) -> None:
        """Wait for one polling interval, at most `timeout_s` seconds."""
        time.sleep(min(_POLL_S, timeout_s))

    def give_up_late(self, limit_s: float) -> None:
        """Do nothing: leaf servers give up their own clients after as many seconds."""

    def failure_of(self, reply: Message) -> Failure:
        """Reason why a client failed."""
        return exception_failure(reason_of(reply))

    def refuse_stopped(self) -> None:
        """Do nothing: an absent leaf server is noticed at an order to it."""

    def remote_processes(self) -> RemoteProcesses:
        """Empty: leaf servers do not report on their processes."""
        return RemoteProcesses()

    def spans_machines(self) -> bool:
        """True: leaf servers may be on any machine."""
        return True

    def hand_out(self, data_folder: Path) -> str:
        """Empty: leaf servers have their clients' windows."""
        return ""
