"""The clients of a run: their nodes (contract C4), and one exchange with many of them at once.

Node ids are used only in this file; results are by partition id, in ascending order.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

from fedge.data.own_windows import WindowsReport
from fedge.exchange.content import send_tickets, store_large_states
from fedge.exchange.delivery import RESTART_S, Answer, MessageStamps, collect
from fedge.exchange.engine import Engine
from fedge.exchange.failure import (
    NO_REPLY,
    NODE_GONE,
    WORKER_DIED,
    Failure,
    dead_worker_failure,
    rejection_failure,
    timeout_failure,
)
from fedge.exchange.hello import PLAIN, expect_windows
from fedge.exchange.joint import JOINT, is_joint
from fedge.exchange.node_registry import NodeRegistry, refusal_reasons
from fedge.exchange.ordering import largest_first, waves
from fedge.exchange.returning_nodes import NodeMonitor
from fedge.exchange.round_context import is_of_version
from fedge.states.averaging import State
from fedge.timing.laps import LapClock
from fedge.timing.timeline import ExchangeTimes

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exchange:
    """Replies of an exchange.

    Attributes:
        replies: partition id → reply, in ascending order of the id.
        failures: partition id → reason, for clients with an error or without a timely answer.
        times: times of the server's waits, and of work on each message.
    """

    replies: dict[int, Message]
    failures: dict[int, Failure]
    times: ExchangeTimes


@dataclass(frozen=True)
class ExchangeProgress:
    """Progress of an exchange, in partition ids.

    Attributes:
        kind: message type, `TRAIN` or `EVALUATE`, or `JOINT` if any client was asked for both.
        asked: clients that were sent a message.
        back: clients with a reply.
        failed: failed clients without a pending retry.
    """

    kind: str
    asked: frozenset[int]
    back: frozenset[int]
    failed: frozenset[int]


# Called repeatedly during an exchange, by the waiting thread, with a function giving its
# progress: the same function throughout an exchange.
Observer = Callable[[Callable[[], ExchangeProgress]], None]

# Partition id of a client with a dead worker → its position, see `Clients.exchange`.
LastWords = Callable[[int], str | None]


class Clients:
    """The clients of a run: which node holds which partition, and which see the server's state files.

    Attributes:
        away: partitions without a node at the start of the run.
        devices, reports: see `__init__`.
    """

    def __init__(
        self,
        engine: Engine,
        node_of: Mapping[int, int],
        sharing: Collection[int] = (),
        reports: Mapping[int, WindowsReport] | None = None,
        roll: NodeRegistry | None = None,
        devices: Mapping[str, int] | None = None,
        kernels: Mapping[tuple[str, ...], int] | None = None,
    ) -> None:
        """Store the engine of the clients, and facts about them.

        Args:
            engine: delivers their messages.
            node_of: partition id → node id, where partition ids are 0..K-1.
            sharing: nodes with access to state files.
            reports: partition id → the client's description of its own windows; None if the server has them.
            roll: handles returning nodes; by default nodes do not return.
            devices: "cpu" or the name of a GPU → clients computing on it, if known.
            kernels: kernels of the native step, best first → clients whose processes can use these, if known.
        """
        self.kernels = dict(kernels or {})
        self.devices = dict(devices or {})
        self.reports = None if reports is None else dict(sorted(reports.items()))
        self._engine = engine
        self._roll = roll or NodeRegistry(engine, PLAIN)
        self._sharing = frozenset(sharing)
        for partition, node in node_of.items():
            self._roll.bind(partition, node)
        self.away = self._roll.away()
        self._returning = NodeMonitor(engine, self._roll) if engine and engine.nodes_come_back else None
        if self._returning is not None:
            self._returning.stop_waiting_for(self.away)
        self._observer: Observer = lambda _: None
        self._keep: Callable[[State], State] | None = None

    @property
    def unknown(self) -> frozenset[int]:
        """Partitions whose owners have not described their windows."""
        return (
            frozenset()
            if self.reports is None
            else frozenset(self._roll.node_of.keys() - self.reports.keys())
        )

    @property
    def refused(self) -> str:
        """Reasons of some of the refused nodes, as a part of a sentence; empty if there are none."""
        return refusal_reasons(self._roll.out)

    def wait_for_gone(self, seconds: float) -> None:
        """Set for how many seconds an exchange waits for a lost node, if nodes can return."""
        if self._returning is not None:
            self._returning.wait_s = seconds

    def keep_replies(self, keep: Callable[[State], State]) -> None:
        """Store the states of replies by `keep` until the exchange is complete."""
        self._keep = keep

    def watch(self, observer: Observer) -> None:
        """Let `observer` follow all later exchanges."""
        self._observer = observer

    def observe(self, standing: Callable[[], ExchangeProgress]) -> None:
        """Pass the progress of an exchange to the observer."""
        self._observer(standing)

    def __len__(self) -> int:
        return len(self._roll.node_of)

    @property
    def has_slow_exchanges(self) -> bool:
        """Whether clients are nodes of a SuperLink, where even an empty exchange takes seconds."""
        return self._returning is not None

    @property
    def grid(self) -> Grid:
        """The engine as a Grid for Flower's strategies."""
        return self._engine.grid

    def node(self, partition_id: int) -> int:
        """The node of a partition."""
        return self._roll.node_of[partition_id]

    def partition(self, node_id: int) -> int:
        """The partition of a node, or of a replaced one."""
        return self._roll.partition(node_id)

    def shares(self, node_id: int) -> bool:
        """Whether a node sees the server's state files."""
        return node_id in self._sharing

    def send_tickets(self, messages: Iterable[Message], states: Mapping[str, State | None]) -> None:
        """Replace arrays by file names in messages to nodes with access to the server's state files.

        Args:
            messages: messages with `states` as arrays.
            states: states by the name of their record; those without a file are unchanged.
        """
        for message in messages:
            if self.shares(message.metadata.dst_node_id):
                send_tickets(message, states)

    @property
    def any_shares(self) -> bool:
        """Whether any node sees the server's state files."""
        return bool(self._sharing)

    def exchange(
        self,
        messages: Sequence[Message],
        timeout_s: float,
        clock: LapClock | None = None,
        retries: int = 0,
        last_words: LastWords = lambda _: None,
        costs_s: Mapping[int, float] | None = None,
    ) -> Exchange:
        """Send `messages`, largest client first, and wait for their replies.

        Args:
            messages: at most one per client.
            timeout_s: seconds of work allowed to each client. The engine ends longer work; if it cannot, the
                exchange ends after a silence of slightly more than this time.
            clock: measures the phases "push" and "wait".
            retries: number of times a message is repeated to a failed client.
            last_words: partition id of a client whose worker died → its position at the timeout, empty if it
                worked until then, None if it had not started.
            costs_s: partition id → expected seconds of the client; by default all equal.

        Raises:
            RunError: the engine has stopped.
        """
        for message in messages:
            report = (self.reports or {}).get(self.partition(message.metadata.dst_node_id))
            if report is not None:
                expect_windows(message, report.fingerprint)
        ongoing = _Ongoing(
            self._engine, {self.partition(m.metadata.dst_node_id): m for m in messages},
            timeout_s, retries, last_words, self.node,
        )  # fmt: skip
        costs = {partition: (costs_s or {}).get(partition, 0.0) for partition in ongoing.sent}
        batches = [largest_first(costs)] if self._engine.in_order else waves(costs)
        stamps, returning = MessageStamps(clock or LapClock()), self._returning
        collect(
            self._engine, [[ongoing.sent[client] for client in wave] for wave in batches], timeout_s, stamps,
            lambda answer: self._take(ongoing, answer),
            lambda: self._observer(ongoing.standing),
            None if returning is None
            else lambda pending: returning.check_returned(pending, ongoing.once_more, ongoing.gone),
        )  # fmt: skip
        replies, failures = ongoing.result()
        return Exchange(replies, failures, stamps.times_of(replies))

    def _take(self, ongoing: "_Ongoing", answer: Answer) -> Message | None:
        """Record a reply; returns a message to send instead if the client failed and may try again."""
        if self._returning is not None:
            self._returning.answered(answer)
        if self._keep is not None and answer[1].has_content():
            store_large_states(answer[1], self._keep)
        return ongoing.take(self.partition(answer[0].metadata.dst_node_id), answer)


class _Ongoing:
    """An exchange in progress: clients asked, replies, failures, and retries left."""

    def __init__(
        self,
        engine: Engine,
        sent: dict[int, Message],
        timeout_s: float,
        retries: int,
        last_words: LastWords,
        node: Callable[[int], int],
    ) -> None:
        """Start; arguments as for `Clients.exchange`, `sent` by partition id; `node` holds a partition."""
        self.sent = sent
        self._node = node
        self._engine = engine
        self._timeout_s = timeout_s
        self._last_words = last_words
        self._retries_left = dict.fromkeys(sent, retries)
        kinds = [message.metadata.message_type for message in sent.values()]
        self._kind = JOINT if any(map(is_joint, sent.values())) else next(iter(kinds), "")
        self._restart_until: dict[int, float] = {}
        self._replies: dict[int, Message] = {}
        self._failures: dict[int, Failure] = {}

    def take(self, partition: int, answer: Answer) -> Message | None:
        """Record a reply; returns a message to send instead if the client failed and may try again."""
        question, reply = answer
        # the reply counts for the client asked, not for one named in it
        reply.metadata.__dict__["_src_node_id"] = question.metadata.dst_node_id
        if not reply.has_error():
            if is_of_version(reply, question):
                self._replies[partition] = reply
                self._failures.pop(partition, None)
            else:
                self._failures[partition] = rejection_failure(
                    "other version", "of the model that it started from"
                )
            return None
        failure = self._judge(partition, self._engine.failure_of(reply))
        self._failures[partition] = failure or dead_worker_failure()
        if not self._may_try_again(partition, failure):
            return None
        return self._repeat(partition, question)

    def _repeat(self, partition: int, question: Message) -> Message:
        """A message repeated, to the node now holding the partition."""
        return Message(question.content, self._node(partition), question.metadata.message_type)

    def once_more(self, partition: int) -> Message | None:
        """Message to repeat to a partition whose node has returned during this exchange, or None."""
        failure = self._failures.get(partition)
        if partition not in self.sent or failure is None or failure.kind != NODE_GONE:
            return None
        del self._failures[partition]
        return self._repeat(partition, self.sent[partition])

    def gone(self) -> list[int]:
        """Partitions that failed because their node is absent."""
        return [partition for partition, failure in self._failures.items() if failure.kind == NODE_GONE]

    def _judge(self, partition: int, failure: Failure) -> Failure | None:
        """Reason why a client failed, by its last words; None for a worker still restarting.

        Until such a worker is back, it fails every message at once.
        """
        if failure.kind not in (WORKER_DIED, NO_REPLY):
            return failure
        output = self._last_words(partition)
        if failure.kind == NO_REPLY:
            return failure
        return None if output is None else timeout_failure(self._timeout_s) if output else failure

    def _may_try_again(self, partition: int, failure: Failure | None) -> bool:
        """Whether a client's message is repeated; counts the attempts."""
        if failure is None:
            until = self._restart_until.setdefault(partition, time.monotonic() + RESTART_S)
            return time.monotonic() < until
        if self._retries_left[partition] == 0 or failure.kind == NODE_GONE:
            return False
        self._retries_left[partition] -= 1
        logger.info("client %d failed and is tried again: %s", partition, failure)
        return True

    def standing(self) -> ExchangeProgress:
        """Progress of the exchange."""
        return ExchangeProgress(
            self._kind, frozenset(self.sent), frozenset(self._replies), frozenset(self._failures)
        )

    def result(self) -> tuple[dict[int, Message], dict[int, Failure]]:
        """Partition id → reply, and partition id → failure, in order; clients without a reply have failed."""
        for partition in self.sent.keys() - self._replies.keys() - self._failures.keys():
            self._failures[partition] = timeout_failure(self._timeout_s)
        return dict(sorted(self._replies.items())), dict(sorted(self._failures.items()))
