"""The clients of a run: their nodes (contract C4), and one exchange with many of them at once.

Node ids stay in this file: results by partition id, in this order.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

from fedge.data.own import WindowsReport
from fedge.exchange.content import put_aside, send_tickets
from fedge.exchange.delivery import RESTART_S, Answer, Stamps, collect
from fedge.exchange.engine import Engine
from fedge.exchange.failure import (
    NO_REPLY,
    NODE_GONE,
    WORKER_DIED,
    Failure,
    no_reply_within,
    rejected,
    worker_died,
)
from fedge.exchange.hello import PLAIN, expect_windows
from fedge.exchange.joint import JOINT, is_joint
from fedge.exchange.ordering import largest_first, waves
from fedge.exchange.returning import Returning
from fedge.exchange.roll import Roll, said_of
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
        times: of the server's waits, and of work on each message.
    """

    replies: dict[int, Message]
    failures: dict[int, Failure]
    times: ExchangeTimes


@dataclass(frozen=True)
class Standing:
    """How an exchange stands at one moment, in partition ids.

    Attributes:
        kind: message type, `TRAIN` or `EVALUATE`, or `JOINT` where any client was asked for both.
        asked: clients with a sent message.
        back: clients with a reply.
        failed: failed clients without a further attempt or answer.
    """

    kind: str
    asked: frozenset[int]
    back: frozenset[int]
    failed: frozenset[int]


# Called repeatedly during an exchange, by the waiting thread, with a function giving its
# progress: the same function throughout an exchange.
Observer = Callable[[Callable[[], Standing]], None]

# Partition id of a client with a dead worker → its position, see `Clients.exchange`.
LastWords = Callable[[int], str | None]


class Clients:
    """The clients of a run: which node holds which partition, and which see the server's state files.

    Attributes:
        away: partitions without a node at the start of the run.
        devices, told: as given.
    """

    def __init__(
        self,
        engine: Engine,
        node_of: Mapping[int, int],
        sharing: Collection[int] = (),
        told: Mapping[int, WindowsReport] | None = None,
        roll: Roll | None = None,
        devices: Mapping[str, int] | None = None,
        kernels: Mapping[tuple[str, ...], int] | None = None,
    ) -> None:
        """Store the engine of the clients, and facts about them.

        Args:
            engine: delivers their messages.
            node_of: partition id → node id, where partition ids are 0..K-1.
            sharing: the nodes with access to state files.
            told: partition id → the client's description of its own windows; None where the server has them.
            roll: knows returning nodes; by default none do.
            devices: "cpu" or the name of a GPU → clients computing on it; without unknown ones.
            kernels: of the native step, best first → clients with processes able to use these; without
                unknown ones.
        """
        self.kernels = dict(kernels or {})
        self.devices = dict(devices or {})
        self.told = None if told is None else dict(sorted(told.items()))
        self._engine = engine
        self._roll = roll or Roll(engine, PLAIN)
        self._sharing = frozenset(sharing)
        for partition, node in node_of.items():
            self._roll.bind(partition, node)
        self.away = self._roll.away()
        self._returning = Returning(engine, self._roll) if engine and engine.nodes_come_back else None
        if self._returning is not None:
            self._returning.wait_for_none_of(self.away)
        self._observer: Observer = lambda _: None
        self._keep: Callable[[State], State] | None = None

    @property
    def unknown(self) -> frozenset[int]:
        """Partitions of owners without a description of their windows."""
        return frozenset() if self.told is None else frozenset(self._roll.node_of.keys() - self.told.keys())

    @property
    def refused(self) -> str:
        """Reasons of some of the refused nodes, as a part of a sentence; empty if there are none."""
        return said_of(self._roll.out)

    def wait_for_gone(self, seconds: float) -> None:
        """Keep an exchange open so many seconds for a node lost in it, if nodes can return."""
        if self._returning is not None:
            self._returning.wait_s = seconds

    def keep_replies(self, keep: Callable[[State], State]) -> None:
        """Let the states of replies lie where `keep` puts them until the last of an exchange is there."""
        self._keep = keep

    def watch(self, observer: Observer) -> None:
        """Let `observer` follow all exchanges to come."""
        self._observer = observer

    def observe(self, standing: Callable[[], Standing]) -> None:
        """Show the progress of an exchange elsewhere."""
        self._observer(standing)

    def __len__(self) -> int:
        return len(self._roll.node_of)

    @property
    def ask_now_and_then(self) -> bool:
        """Whether clients are nodes of a SuperLink: an exchange takes seconds, even an empty one."""
        return self._returning is not None

    @property
    def grid(self) -> Grid:
        """The engine in the form for Flower's strategies."""
        return self._engine.grid

    def node(self, partition_id: int) -> int:
        """The node of a partition."""
        return self._roll.node_of[partition_id]

    def partition(self, node_id: int) -> int:
        """The partition of a node, or of a replaced node."""
        return self._roll.partition(node_id)

    def shares(self, node_id: int) -> bool:
        """Whether a node sees the server's state files."""
        return node_id in self._sharing

    def send_tickets(self, messages: Iterable[Message], states: Mapping[str, State | None]) -> None:
        """Let messages to nodes with access to the server's state files name files instead of carrying
        arrays.

        Args:
            messages: with `states` as arrays.
            states: by the name of their record; states without a file are unchanged.
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
            timeout_s: seconds of work allowed to each client. The deliverer of the messages ends longer work;
                if this fails, the exchange ends after a silence of slightly more than this time.
            clock: charged "push" and "wait".
            retries: number of repeated messages to a failed client.
            last_words: partition id of a client with a dead worker → its position at the timeout, empty if at
                work until then, None if not started.
            costs_s: partition id → expected seconds of the client; all alike by default.

        Raises:
            RunError: the engine has stopped.
        """
        for message in messages:
            told = (self.told or {}).get(self.partition(message.metadata.dst_node_id))
            if told is not None:
                expect_windows(message, told.fingerprint)
        ongoing = _Ongoing(
            self._engine, {self.partition(m.metadata.dst_node_id): m for m in messages},
            timeout_s, retries, last_words, self.node,
        )  # fmt: skip
        costs = {partition: (costs_s or {}).get(partition, 0.0) for partition in ongoing.sent}
        split = [largest_first(costs)] if self._engine.in_order else waves(costs)
        stamps, back = Stamps(clock or LapClock()), self._returning
        collect(
            self._engine, [[ongoing.sent[client] for client in wave] for wave in split], timeout_s, stamps,
            lambda answer: self._take(ongoing, answer),
            lambda: self._observer(ongoing.standing),
            None if back is None else lambda pending: back.look(pending, ongoing.once_more, ongoing.gone),
        )  # fmt: skip
        replies, failures = ongoing.result()
        return Exchange(replies, failures, stamps.times_of(replies))

    def _take(self, ongoing: "_Ongoing", answer: Answer) -> Message | None:
        """Take in an answer; return the message to send instead if the client failed and may try again."""
        if self._returning is not None:
            self._returning.answered(answer)
        if self._keep is not None and answer[1].has_content():
            put_aside(answer[1], self._keep)
        return ongoing.take(self.partition(answer[0].metadata.dst_node_id), answer)


class _Ongoing:
    """One exchange in progress: clients asked, answered, failed, or allowed another try."""

    def __init__(
        self,
        engine: Engine,
        sent: dict[int, Message],
        timeout_s: float,
        retries: int,
        last_words: LastWords,
        node: Callable[[int], int],
    ) -> None:
        """Begin; the arguments as in `Clients.exchange`, `sent` by partition id; `node` holds a partition."""
        self.sent = sent
        self._node = node
        self._engine = engine
        self._timeout_s = timeout_s
        self._last_words = last_words
        self._left = dict.fromkeys(sent, retries)
        kinds = [message.metadata.message_type for message in sent.values()]
        self._kind = JOINT if any(map(is_joint, sent.values())) else next(iter(kinds), "")
        self._unbegun_until: dict[int, float] = {}
        self._replies: dict[int, Message] = {}
        self._failures: dict[int, Failure] = {}

    def take(self, partition: int, answer: Answer) -> Message | None:
        """Take in an answer; return the message to send instead if the client failed and may try again."""
        question, reply = answer
        # the answer counts for the asked client, not for the named one
        reply.metadata.__dict__["_src_node_id"] = question.metadata.dst_node_id
        if not reply.has_error():
            if is_of_version(reply, question):
                self._replies[partition] = reply
                self._failures.pop(partition, None)
            else:
                self._failures[partition] = rejected("other version", "of the model that it started from")
            return None
        failure = self._judged(partition, self._engine.failure_of(reply))
        self._failures[partition] = failure or worker_died()
        if not self._may_try_again(partition, failure):
            return None
        return self._repeated(partition, question)

    def _repeated(self, partition: int, question: Message) -> Message:
        """A question once more, to whichever node holds the partition by now."""
        return Message(question.content, self._node(partition), question.metadata.message_type)

    def once_more(self, partition: int) -> Message | None:
        """Question to a partition with a node back after an absence in this exchange."""
        failure = self._failures.get(partition)
        if partition not in self.sent or failure is None or failure.kind != NODE_GONE:
            return None
        del self._failures[partition]
        return self._repeated(partition, self.sent[partition])

    def gone(self) -> list[int]:
        """The failed partitions with absent nodes."""
        return [partition for partition, failure in self._failures.items() if failure.kind == NODE_GONE]

    def _judged(self, partition: int, failure: Failure) -> Failure | None:
        """Why a client failed, after its last words; None for a worker about to start.

        Until such a worker is back, it fails all messages at once.
        """
        if failure.kind not in (WORKER_DIED, NO_REPLY):
            return failure
        words = self._last_words(partition)
        if failure.kind == NO_REPLY:
            return failure
        return None if words is None else no_reply_within(self._timeout_s) if words else failure

    def _may_try_again(self, partition: int, failure: Failure | None) -> bool:
        """Whether a client's message is sent once more, with a count of attempts."""
        if failure is None:
            until = self._unbegun_until.setdefault(partition, time.monotonic() + RESTART_S)
            return time.monotonic() < until
        if self._left[partition] == 0 or failure.kind == NODE_GONE:
            return False
        self._left[partition] -= 1
        logger.info("client %d failed and is tried again: %s", partition, failure)
        return True

    def standing(self) -> Standing:
        """Its progress."""
        return Standing(self._kind, frozenset(self.sent), frozenset(self._replies), frozenset(self._failures))

    def result(self) -> tuple[dict[int, Message], dict[int, Failure]]:
        """Partition id → reply and partition id → failure, in order; silent clients have failed."""
        for partition in self.sent.keys() - self._replies.keys() - self._failures.keys():
            self._failures[partition] = no_reply_within(self._timeout_s)
        return dict(sorted(self._replies.items())), dict(sorted(self._failures.items()))
