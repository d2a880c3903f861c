"""Roll of clients: which node holds which partition, also after nodes return under other ids.

Nodes of a deployment come and go. A SuperNode restarted without a key of its own has a new node id, and gets
its partition back once the previous id is gone. A partition cannot be taken from the node holding it. Windows
different from those at the start, and unknown partitions, are refused.

A node with the key of a partition can hold only this partition. A node without a key keeps its first claim,
and a partition belongs to the first node to claim it; later claimants are refused, and the run continues.

The number of partitions comes from the run's options, if set. Otherwise it is the number reported by most
nodes; while two numbers are reported equally often, the run does not start.

A node whose first reply is refused stays out. If it has the key of an expected partition, the run ends with
an error, or starts without it if it may start without some clients (`guard.start-clients`).
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from flwr.app import Message

from fedge.data.own_windows import WindowsReport
from fedge.exchange.content import config_of
from fedge.exchange.engine import Engine, RunError
from fedge.exchange.failure import NODE_GONE, Failure, next_step, words_of
from fedge.exchange.hello import Hello, Question, hello_message, read_hello
from fedge.process.escape import printable

logger = logging.getLogger(__name__)

_LONGEST = 200  # characters of a reply's fault
_MOST_NAMED = 10  # missing partitions named in an error
_MOST_REASONS = 3  # refused nodes with a reported reason
_WITHOUT = "the run has begun without its windows (guard.start-clients); start a new run with them"
_AWAY = 1 << 62  # ids of unseen nodes start here; Flower draws its own from 64 bits


class _StartedWithout(RunError):
    """Error: a client connects to a run that started without its windows. One line."""


@dataclass(frozen=True)
class Quorum:
    """Number of clients needed to start a run, once the waiting time is over.

    Attributes:
        least: minimum number of clients; 0 for all.
        is_possible: whether the run may start without some, because they may connect later.
        reports: partition id → description of its windows, for a resumed run; None if unknown.
        or_none: whether the run may start without any client.
    """

    least: int = 0
    is_possible: bool = False
    reports: Mapping[int, WindowsReport] | None = None
    or_none: bool = False

    @property
    def spares(self) -> bool:
        """Whether the run may start without some clients."""
        return self.is_possible and (self.or_none or self.least > 0)

    def is_met(self, num_clients: int) -> bool:
        """Whether `num_clients` clients are enough, once the waiting time is over."""
        return self.is_possible and (self.or_none or 0 < self.least <= num_clients)


ALL = Quorum()
WHOEVER = Quorum(is_possible=True, or_none=True)


@dataclass(frozen=True)
class Among:
    """The clients to find, for example those of one leaf server.

    Attributes:
        partitions: their partitions.
        total: number of clients of the run.
    """

    partitions: Collection[int]
    total: int


class _Count:
    """Number of partitions: given, or reported by most nodes."""

    def __init__(self, fixed_number: int, least: int) -> None:
        """Start with a given number, or 0; reported numbers below `least` do not count."""
        self.is_given = fixed_number > 0
        self._fixed_number, self._least = fixed_number, least
        self._reported: dict[int, int] = {}  # node → number

    def take(self, node: int, number: int) -> None:
        """Count the number reported by a node."""
        if number >= self._least:
            self._reported[node] = number

    @property
    def number(self) -> int:
        """The number, on ties the first reported; 0 while there is none."""
        most = self._most()
        return self._fixed_number if self.is_given else most[0][0] if most else 0

    @property
    def is_sure(self) -> bool:
        """Whether it is given, or reported by more nodes than any other number."""
        most = self._most()
        return self.is_given or len(most) < 2 or most[0][1] > most[1][1]

    def _most(self) -> list[tuple[int, int]]:
        """The two numbers reported most often, each with its count."""
        return Counter(self._reported.values()).most_common(2)


class NodeRegistry:
    """Nodes and their partitions.

    Attributes:
        node_of: partition id → node id.
        hellos: partition id → its first client's answer.
        out: refused node → reason.
    """

    def __init__(
        self,
        engine: Engine,
        question: Question,
        among: Among | None = None,
        expected: int = 0,
        quorum: Quorum = ALL,
    ) -> None:
        """Start an empty roll; complete once all partitions, or those of `among`, have a node.

        Args:
            engine: engine that runs the clients.
            question: first question to each node.
            among: the clients to find.
            expected: their number; by default the one reported by most nodes.
            quorum: decides whether clients with a refused first reply may be missing, and which windows are
                known.
        """
        self._known_reports, self._spares = quorum.reports, quorum.spares
        self._least = quorum.least if quorum.is_possible else 0  # the run has at least as many clients
        self.node_of: dict[int, int] = {}
        self.hellos: dict[int, Hello] = {}
        self._count = _Count(among.total if among else expected, self._least)
        self._first_replies: list[tuple[int, Message, Failure | None]] = []  # until the number is known
        self._among = among
        self._engine = engine
        self._question = question
        self._asked: set[int] = set()
        self._pending: dict[str, int] = {}  # id of a hello → the node
        self._partition_of: dict[int, int] = {}  # of all former and present holders
        self._waiting: dict[int, list[int]] = {}  # partition id → nodes claiming another one's
        self.out: dict[int, str] = {}

    def partition(self, node: int) -> int:
        """The partition of a node, or of a replaced node."""
        return self._partition_of[node]

    @property
    def expected(self) -> int:
        """Number of partitions; 0 while unknown."""
        return self._count.number

    @property
    def is_agreed(self) -> bool:
        """Whether the number of partitions is given, or reported by more nodes than any other."""
        return self.expected > 0 and self._count.is_sure

    @property
    def has_all_answers(self) -> bool:
        """Whether the number of partitions is given, or all nodes asked have reported one."""
        return self._count.is_given or not self._pending

    def is_complete(self) -> bool:
        """Whether every partition has a node."""
        return self.is_agreed and len(self.node_of) >= len(self.wanted)

    def is_settled(self) -> bool:
        """Whether every missing partition belongs to the key of a refused node, so none can arrive.

        The same key means the same node, and a node is asked only once.
        """
        if not (self._spares and self.is_agreed and self.out):
            return False
        refused = {self._engine.partition_of_key(node) for node in self.out}
        return all(partition in self.node_of or partition in refused for partition in self.wanted)

    @property
    def challenge(self) -> str:
        """Challenge for clients with access to the server's state files."""
        return self._question.challenge

    @property
    def wanted(self) -> Collection[int]:
        """The required partitions; empty while their number is unknown."""
        wanted = self._among.partitions if self._among else range(self.expected)
        return wanted if self._known_reports is None else [p for p in wanted if p in self._known_reports]

    def ask(self, nodes: Iterable[int]) -> None:
        """Send a hello to nodes not asked yet."""
        new = [node for node in nodes if node not in self._asked]
        if new:
            self._asked.update(new)
            messages = [hello_message(node, self._question) for node in new]
            self._pending.update(zip(self._engine.push_messages(messages), new, strict=True))

    def ask_again(self, node: int) -> None:
        """Ask a node again; once it replies, it has processed or lost all earlier messages."""
        self._asked.discard(node)
        self.ask([node])

    def answers(self) -> list[tuple[int, Message]]:
        """(node, its answer) for nodes with a new answer."""
        replies = self._engine.pull_messages(set(self._pending)) if self._pending else []
        return [(self._pending.pop(reply.metadata.reply_to_message_id), reply) for reply in replies]

    def enter(self, node: int, reply: Message) -> None:
        """Process a first reply before the run starts.

        Raises:
            RunError: the client failed, or its reply is invalid, and the run needs this client.
        """
        failure = self._engine.failure_of(reply) if reply.has_error() else None
        if failure is not None and failure.kind == NODE_GONE:
            logger.warning("a node is gone before its first answer: %s", failure)
            self._asked.discard(node)  # its key gives it the same id when it is back
            return
        previous = self.expected
        if not self._count.is_given:
            self._first_replies.append((node, reply, failure))
            if failure is None and (number := _reported_number(self, node, reply)):
                self._count.take(node, number)
        if previous in (0, self.expected):
            self._admit(node, reply, failure)
            return
        logger.warning("most nodes say that there are %d partitions, not %d", self.expected, previous)
        for table in (self.node_of, self.hellos, self.out, self._partition_of, self._waiting):
            table.clear()
        for first_reply in self._first_replies:
            self._admit(*first_reply)

    def _admit(self, node: int, reply: Message, failure: Failure | None) -> None:
        """Process a first reply, given the current number of partitions."""
        try:
            hello = self._check_admission(node, reply, failure)
        except _StartedWithout as error:  # the run needs it nowhere
            self.out[node] = str(error)
            logger.warning("a node stays out: %s", error)
            return
        except RunError as error:
            self._exclude(node, str(error))
            return
        for other, reason in self.out.items():  # arrived before the number of partitions was known
            if _is_needed(self, other):
                raise RunError(reason)
        self.hellos[hello.partition_id] = hello
        self.bind(hello.partition_id, node)

    def _check_admission(self, node: int, reply: Message, failure: Failure | None) -> Hello:
        """The reply of a node if it is admitted; else RunError."""
        if failure is not None:
            step = next_step(failure, self._engine.nodes_come_back)
            raise RunError(f"a client failed at its first call: {failure}{step}")
        hello = _read_reply(reply)
        if hello.num_partitions < self._least and not self._count.is_given:
            raise RunError(
                f"num-partitions must be at least guard.start-clients={self._least}, but partition "
                f"{hello.partition_id} says {hello.num_partitions}; change its SuperNode's --node-config"
            )
        if self.expected and hello.num_partitions != self.expected:
            raise RunError(
                f"clients must agree on num-partitions, but partition {hello.partition_id} says "
                f"{hello.num_partitions} and {'this run has' if self._count.is_given else 'others say'} "
                f"{self.expected}; change its SuperNode's --node-config, or set clients"
            )
        if self._among and hello.partition_id not in self.wanted:
            raise RunError(
                f"a node holds partition {hello.partition_id}, which is of another leaf server: this one has "
                f"{', '.join(map(str, sorted(self.wanted)))}; let it dial the other's SuperLink"
            )
        if problem := _foreign_claim(self, node, hello.partition_id):
            raise RunError(f"a node says that it holds partition {hello.partition_id}, but {problem}")
        if self._known_reports is not None and hello.partition_id not in self._known_reports:
            raise _StartedWithout(f"partition {hello.partition_id} stays out: {_WITHOUT}")
        holder = self.node_of.get(hello.partition_id)
        if holder is not None and not _is_rightful(self._engine, node, holder):
            if not self._mismatch(node, hello):
                self._waiting.setdefault(hello.partition_id, []).append(node)
            raise RunError(
                f"two clients say that they hold partition {hello.partition_id}; it is that of the first"
            )
        return hello

    def _exclude(self, node: int, reason: str) -> None:
        """Continue without a node, or raise RunError if impossible."""
        if not self._engine.nodes_come_back or _is_needed(self, node):
            raise RunError(reason)
        self.out[node] = reason
        logger.warning("a node stays out: %s", reason)

    def bind(self, partition: int, node: int) -> None:
        """Give a partition to a node."""
        self.node_of[partition] = node
        self._partition_of[node] = partition

    def leave_out(self, reasons: Mapping[int, str]) -> None:
        """Refuse nodes admitted before: partition id → reason."""
        for partition, reason in reasons.items():
            node = self.node_of.pop(partition)
            del self.hellos[partition]
            self.out[node] = reason
            logger.warning("a node stays out: %s", reason)

    def missing(self) -> str:
        """Partitions without a node, as a part of a sentence."""
        absent = sorted(set(self.wanted) - self.node_of.keys())
        listing = ", ".join(map(str, absent[:_MOST_NAMED])) + (", …" if len(absent) > _MOST_NAMED else "")
        return f"; missing: partition {listing}{refusal_reasons(self.out)}" if absent else ""

    # --- while the run goes on ----------------------------------------------------------------------------

    def expect(self, reports: Mapping[int, WindowsReport]) -> None:
        """Treat partitions, with their clients' descriptions, as those of absent nodes."""
        for partition, report in reports.items():
            self.hellos[partition] = Hello(partition, self.expected, report=report, device="")
            self.bind(partition, _AWAY + partition)

    def expect_absent(self) -> None:
        """Treat partitions without a node as those of absent nodes.

        If clients own their windows, a client whose windows are unknown is excluded for good.
        """
        self._first_replies.clear()
        clients_own_data = self._known_reports is not None or any(
            hello.report is not None for hello in self.hellos.values()
        )
        for partition in self._among.partitions if self._among else range(self.expected):
            if partition in self.node_of:
                continue
            report = (self._known_reports or {}).get(partition)
            if report is not None or not clients_own_data:
                self.hellos[partition] = Hello(partition, self.expected, report=report, device="")
            self.bind(partition, _AWAY + partition)

    def away(self) -> list[int]:
        """The partitions of nodes still missing."""
        return [partition for partition, node in self.node_of.items() if node == _AWAY + partition]

    def readmit(self, node: int, reply: Message) -> None:
        """Process the first reply of a node connecting during the run, or report its refusal."""
        if reply.has_error():
            failure = self._engine.failure_of(reply)
            if failure.kind == NODE_GONE:
                self._asked.discard(node)  # its key gives it the same id when it is back
            logger.warning("a node that came later stays out: %s", failure)
            return
        try:
            hello = _read_reply(reply)
        except RunError as error:
            logger.warning("a node that came later stays out: %s", error)
            return
        reason = self._mismatch(node, hello)
        if reason:
            logger.warning("a node that says it holds partition %d stays out: %s", hello.partition_id, reason)
            return
        self._waiting.setdefault(hello.partition_id, []).append(node)

    def _mismatch(self, node: int, hello: Hello) -> str:
        """Reason why a node cannot replace another; empty if it can."""
        if problem := _foreign_claim(self, node, hello.partition_id):
            return problem
        holder = self.node_of.get(hello.partition_id)
        if holder is not None and _is_rightful(self._engine, holder, node):
            return "that has a key, and this node has none of it"
        if hello.num_partitions == self.expected and hello.partition_id in self.node_of.keys() - self.hellos:
            return _WITHOUT
        if hello.num_partitions != self.expected or hello.partition_id not in self.hellos:
            return f"it counts {hello.num_partitions} partitions, this run has {self.expected}"
        report = self.hellos[hello.partition_id].report
        if (report is None) != (hello.report is None):
            return "of it and the first node, only one has windows of its own"
        if report is not None and hello.report is not None and report.fingerprint != hello.report.fingerprint:
            return "its windows are not those of the start"
        return ""

    def rebind(self, connected: Iterable[int], say: Callable[[str], None]) -> Mapping[int, int]:
        """Give partitions of absent nodes to waiting ones.

        Args:
            connected: connected nodes.
            say: called with a message for each.

        Returns:
            Partition id → its previous node.
        """
        alive, previous = set(connected), {}
        for partition, nodes in list(self._waiting.items()):
            nodes[:] = [node for node in nodes if node in alive]
            if nodes and self.node_of[partition] not in alive:
                previous[partition] = self.node_of[partition]
                self.bind(partition, nodes.pop(0))
                say(f"partition {partition} is back, on another node")
            if not nodes:
                del self._waiting[partition]
        return previous


def refusal_reasons(out: Mapping[int, str]) -> str:
    """Reasons of some of the refused nodes, as a part of a sentence; empty if there are none."""
    reasons = list(dict.fromkeys(out.values()))[:_MOST_REASONS]
    return f"; a node stays out: {'; another: '.join(reasons)}" if reasons else ""


def _foreign_claim(roll: NodeRegistry, node: int, partition: int) -> str:
    """Reason why a node may not claim a partition; empty if it may."""
    key_partition = roll._engine.partition_of_key(node)
    if key_partition is not None and key_partition != partition:
        return f"its key is that of partition {key_partition}"
    previous = roll._partition_of.get(node, partition)
    return "" if previous == partition else f"it held partition {previous} before"


def _reported_number(roll: NodeRegistry, node: int, reply: Message) -> int:
    """Number of partitions reported by a node; 0 if its reply is invalid, or claims another's partition."""
    try:
        hello = read_hello(reply)
    except Exception:  # a client can send anything here
        return 0
    return 0 if _foreign_claim(roll, node, hello.partition_id) else hello.num_partitions


def _is_needed(roll: NodeRegistry, node: int) -> bool:
    """Whether a node has the key of an expected partition, without which the run cannot start."""
    return roll._count.is_sure and not roll._spares and roll._engine.partition_of_key(node) in roll.wanted


def _is_rightful(engine: Engine, node: int, holder: int) -> bool:
    """Whether a node has a key for a partition, and the current holder has none."""
    return engine.partition_of_key(node) is not None and engine.partition_of_key(holder) is None


def _read_reply(reply: Message) -> Hello:
    """Content of a reply, or RunError for any invalid content."""
    try:
        return read_hello(reply)
    except Exception as error:
        description = printable(words_of(error)[:_LONGEST])
        raise RunError(f"the first answer of {_sender_name(reply)} is none: {description}") from None


def _sender_name(reply: Message) -> str:
    """Client that a first reply claims to be from."""
    try:
        partition = config_of(reply)["partition_id"]
    except Exception:  # a client can send anything here
        return "a client"
    return f"partition {partition}" if type(partition) is int and 0 <= partition < 10**6 else "a client"
