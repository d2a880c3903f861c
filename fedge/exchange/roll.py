"""Roll of clients: new nodes are asked for their partition, and may come back under another id.

A deployment's nodes come and go. A SuperNode restarted without its own key has a new node id, and gets its
partition back once the previous id is gone. A held partition cannot be taken from its node; windows other
than those of the start, and unknown partitions, are refused.

A node with the key of a partition holds only this one; without a key, a node keeps its first claim, and the
first claimant holds a partition. A later claimant stays out, and the run continues without it.

The number of partitions is the run's where its options say it. Otherwise it is that of most answers: no run
begins while equally many nodes say another number.

A node whose first answer is refused stays out. Where its key is that of an awaited partition, it ends the
run in one line, or the run begins without it if it may begin without some (`guard.start-clients`).
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from flwr.app import Message

from fedge.data.own import WindowsReport
from fedge.exchange.content import config_of
from fedge.exchange.engine import Engine, RunError
from fedge.exchange.failure import NODE_GONE, Failure, words_of
from fedge.exchange.hello import Hello, Question, hello_message, read_hello
from fedge.process.escape import printable

logger = logging.getLogger(__name__)

_LONGEST = 200  # characters of an answer's fault
_MOST_NAMED = 10  # missing partitions named in an error
_MOST_REASONS = 3  # refused nodes with a reported reason
_WITHOUT = "the run has begun without its windows (guard.start-clients); start a new run with them"
_AWAY = 1 << 62  # ids of unseen nodes start here; Flower draws its own from 64 bits


class _BegunWithout(RunError):
    """A client comes to a run that has begun without its windows. One line."""


@dataclass(frozen=True)
class Quorum:
    """Clients without which a run begins, once their time is over.

    Attributes:
        least: how many have to be there; 0 for all.
        is_possible: the run may begin without some, because they are elsewhere and may come later.
        told: partition id → description of its windows, for a resumed run; None where they are not known.
        or_none: nobody has to be there.
    """

    least: int = 0
    is_possible: bool = False
    told: Mapping[int, WindowsReport] | None = None
    or_none: bool = False

    @property
    def spares(self) -> bool:
        """Whether the run may begin without any client at all."""
        return self.is_possible and (self.or_none or self.least > 0)

    def is_met(self, there: int) -> bool:
        """Whether so many clients are enough, once their time is over."""
        return self.is_possible and (self.or_none or 0 < self.least <= there)


ALL = Quorum()
WHOEVER = Quorum(is_possible=True, or_none=True)


@dataclass(frozen=True)
class Among:
    """Clients expected by a run: those of a leaf server, say.

    Attributes:
        partitions: these.
        total: clients of the run.
    """

    partitions: Collection[int]
    total: int


class _Count:
    """Number of partitions: given, or told by most nodes."""

    def __init__(self, given: int, least: int) -> None:
        """A given number, 0 for none; told ones below `least` do not count."""
        self.is_given = given > 0
        self._given, self._least = given, least
        self._told: dict[int, int] = {}  # node → number

    def take(self, node: int, number: int) -> None:
        """Count what a node says."""
        if number >= self._least:
            self._told[node] = number

    @property
    def number(self) -> int:
        """The number; of equally many the first; 0 while nobody has said."""
        most = self._most()
        return self._given if self.is_given else most[0][0] if most else 0

    @property
    def is_sure(self) -> bool:
        """Whether it is given, or more nodes say it than any other."""
        most = self._most()
        return self.is_given or len(most) < 2 or most[0][1] > most[1][1]

    def _most(self) -> list[tuple[int, int]]:
        """The two numbers of most nodes, each with how many say it."""
        return Counter(self._told.values()).most_common(2)


class Roll:
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
        """Ask nodes of an engine; all partitions have to be there, or those of `among`.

        Args:
            engine: reaches them.
            question: for each.
            among: which clients are looked for.
            expected: their number; by default that of most answers.
            quorum: by which clients whose first answer is refused may be missing, and others than those known
                stay out.
        """
        self._known, self._spares = quorum.told, quorum.spares
        self._least = quorum.least if quorum.is_possible else 0  # a run has no fewer clients
        self.node_of: dict[int, int] = {}
        self.hellos: dict[int, Hello] = {}
        self._count = _Count(among.total if among else expected, self._least)
        self._heard: list[tuple[int, Message, Failure | None]] = []  # while the number is not given
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
        """Number of partitions; 0 while nobody has said."""
        return self._count.number

    @property
    def is_agreed(self) -> bool:
        """Whether the number of partitions is given, or told by more nodes than any other."""
        return self.expected > 0 and self._count.is_sure

    @property
    def has_heard_all(self) -> bool:
        """Whether the number of partitions is given, or no asked node is still to say one."""
        return self._count.is_given or not self._pending

    def is_complete(self) -> bool:
        """Whether every partition has a node."""
        return self.is_agreed and len(self.node_of) >= len(self.wanted)

    def is_settled(self) -> bool:
        """Whether every missing partition is that of a refused node's key, so that none is to come.

        The same key is the same node, and a node is asked once.
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
        """The required partitions; none while nobody has said how many there are."""
        wanted = self._among.partitions if self._among else range(self.expected)
        return wanted if self._known is None else [one for one in wanted if one in self._known]

    def ask(self, nodes: Iterable[int]) -> None:
        """Say hello to nodes not asked yet."""
        new = [node for node in nodes if node not in self._asked]
        if new:
            self._asked.update(new)
            messages = [hello_message(node, self._question) for node in new]
            self._pending.update(zip(self._engine.push_messages(messages), new, strict=True))

    def ask_again(self, node: int) -> None:
        """Ask a node once more: an answering node has answered all earlier questions, or lost them."""
        self._asked.discard(node)
        self.ask([node])

    def answers(self) -> list[tuple[int, Message]]:
        """(node, its answer) for nodes with a new answer."""
        replies = self._engine.pull_messages(set(self._pending)) if self._pending else []
        return [(self._pending.pop(reply.metadata.reply_to_message_id), reply) for reply in replies]

    def enter(self, node: int, reply: Message) -> None:
        """Take in a first answer before the run begins.

        Raises:
            RunError: the client has failed, or its answer is impossible, and the run needs the client.
        """
        failure = self._engine.failure_of(reply) if reply.has_error() else None
        if failure is not None and failure.kind == NODE_GONE:
            logger.warning("a node is gone before its first answer: %s", failure)
            self._asked.discard(node)  # its key gives it the same id when it is back
            return
        before = self.expected
        if not self._count.is_given:
            self._heard.append((node, reply, failure))
            if failure is None and (number := _number_said(self, node, reply)):
                self._count.take(node, number)
        if before in (0, self.expected):
            self._take_in(node, reply, failure)
            return
        logger.warning("most nodes say that there are %d partitions, not %d", self.expected, before)
        for of_before in (self.node_of, self.hellos, self.out, self._partition_of, self._waiting):
            of_before.clear()
        for heard in self._heard:
            self._take_in(*heard)

    def _take_in(self, node: int, reply: Message, failure: Failure | None) -> None:
        """Take in a first answer by the present number of partitions."""
        try:
            hello = self._entering(node, reply, failure)
        except _BegunWithout as error:  # the run needs it nowhere
            self.out[node] = str(error)
            logger.warning("a node stays out: %s", error)
            return
        except RunError as error:
            self._keep_out(node, str(error))
            return
        for other, why in self.out.items():  # came before the number of partitions was known
            if _is_needed(self, other):
                raise RunError(why)
        self.hellos[hello.partition_id] = hello
        self.bind(hello.partition_id, node)

    def _entering(self, node: int, reply: Message, failure: Failure | None) -> Hello:
        """The answer of an admitted node, or RunError."""
        if failure is not None:
            raise RunError(f"a client failed at its first call: {failure}")
        hello = _read(reply)
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
        if wrong := _not_its_own(self, node, hello.partition_id):
            raise RunError(f"a node says that it holds partition {hello.partition_id}, but {wrong}")
        if self._known is not None and hello.partition_id not in self._known:
            raise _BegunWithout(f"partition {hello.partition_id} stays out: {_WITHOUT}")
        holder = self.node_of.get(hello.partition_id)
        if holder is not None and not _is_rightful(self._engine, node, holder):
            if not self._wrong(node, hello):
                self._waiting.setdefault(hello.partition_id, []).append(node)
            raise RunError(
                f"two clients say that they hold partition {hello.partition_id}; it is that of the first"
            )
        return hello

    def _keep_out(self, node: int, why: str) -> None:
        """Continue without a node, or raise RunError if impossible."""
        if not self._engine.nodes_come_back or _is_needed(self, node):
            raise RunError(why)
        self.out[node] = why
        logger.warning("a node stays out: %s", why)

    def bind(self, partition: int, node: int) -> None:
        """Give a partition to a node."""
        self.node_of[partition] = node
        self._partition_of[node] = partition

    def leave_out(self, odd: Mapping[int, str]) -> None:
        """Refuse nodes that have entered: partition id → reason."""
        for partition, why in odd.items():
            node = self.node_of.pop(partition)
            del self.hellos[partition]
            self.out[node] = why
            logger.warning("a node stays out: %s", why)

    def missing(self) -> str:
        """Partitions without a node, as a part of a sentence."""
        left = sorted(set(self.wanted) - self.node_of.keys())
        some = ", ".join(map(str, left[:_MOST_NAMED])) + (", …" if len(left) > _MOST_NAMED else "")
        return f"; missing: partition {some}{said_of(self.out)}" if left else ""

    # --- while the run goes on ----------------------------------------------------------------------------

    def expect(self, told: Mapping[int, WindowsReport]) -> None:
        """Treat partitions, with their clients' descriptions, as those of absent nodes."""
        for partition, windows in told.items():
            self.hellos[partition] = Hello(partition, self.expected, told=windows, device="")
            self.bind(partition, _AWAY + partition)

    def go_without(self) -> None:
        """Treat partitions without a node as those of absent nodes.

        Where clients own windows, one of which nothing is known stays out for good.
        """
        self._heard.clear()
        own = self._known is not None or any(hello.told is not None for hello in self.hellos.values())
        for partition in self._among.partitions if self._among else range(self.expected):
            if partition in self.node_of:
                continue
            told = (self._known or {}).get(partition)
            if told is not None or not own:
                self.hellos[partition] = Hello(partition, self.expected, told=told, device="")
            self.bind(partition, _AWAY + partition)

    def away(self) -> list[int]:
        """The partitions of nodes still missing."""
        return [partition for partition, node in self.node_of.items() if node == _AWAY + partition]

    def come_back(self, node: int, reply: Message) -> None:
        """Process the first answer of a node arriving during the run, or report its refusal."""
        if reply.has_error():
            failure = self._engine.failure_of(reply)
            if failure.kind == NODE_GONE:
                self._asked.discard(node)  # its key gives it the same id when it is back
            logger.warning("a node that came later stays out: %s", failure)
            return
        try:
            hello = _read(reply)
        except RunError as error:
            logger.warning("a node that came later stays out: %s", error)
            return
        wrong = self._wrong(node, hello)
        if wrong:
            logger.warning("a node that says it holds partition %d stays out: %s", hello.partition_id, wrong)
            return
        self._waiting.setdefault(hello.partition_id, []).append(node)

    def _wrong(self, node: int, hello: Hello) -> str:
        """Reason against a node in the place of another, empty if there is none."""
        if wrong := _not_its_own(self, node, hello.partition_id):
            return wrong
        holder = self.node_of.get(hello.partition_id)
        if holder is not None and _is_rightful(self._engine, holder, node):
            return "that has a key, and this node has none of it"
        if hello.num_partitions == self.expected and hello.partition_id in self.node_of.keys() - self.hellos:
            return _WITHOUT
        if hello.num_partitions != self.expected or hello.partition_id not in self.hellos:
            return f"it counts {hello.num_partitions} partitions, this run has {self.expected}"
        told = self.hellos[hello.partition_id].told
        if (told is None) != (hello.told is None):
            return "of it and the first node, only one has windows of its own"
        if told is not None and hello.told is not None and told.fingerprint != hello.told.fingerprint:
            return "its windows are not those of the start"
        return ""

    def rebind(self, there: Iterable[int], say: Callable[[str], None]) -> Mapping[int, int]:
        """Give partitions of absent nodes to waiting ones.

        Args:
            there: the present nodes.
            say: is told of each.

        Returns:
            Partition id → the node before.
        """
        alive, before = set(there), {}
        for partition, nodes in list(self._waiting.items()):
            nodes[:] = [node for node in nodes if node in alive]
            if nodes and self.node_of[partition] not in alive:
                before[partition] = self.node_of[partition]
                self.bind(partition, nodes.pop(0))
                say(f"partition {partition} is back, on another node")
            if not nodes:
                del self._waiting[partition]
        return before


def said_of(out: Mapping[int, str]) -> str:
    """Reasons of some of the refused nodes, as a part of a sentence; empty if there are none."""
    some = list(dict.fromkeys(out.values()))[:_MOST_REASONS]
    return f"; a node stays out: {'; another: '.join(some)}" if some else ""


def _not_its_own(roll: Roll, node: int, partition: int) -> str:
    """Why a partition is not a node's to claim; empty if admitted."""
    own = roll._engine.partition_of_key(node)
    if own is not None and own != partition:
        return f"its key is that of partition {own}"
    held = roll._partition_of.get(node, partition)
    return "" if held == partition else f"it held partition {held} before"


def _number_said(roll: Roll, node: int, reply: Message) -> int:
    """Number of partitions by a node's account; 0 where its answer is none, or of another's partition."""
    try:
        hello = read_hello(reply)
    except Exception:  # a client can send anything here
        return 0
    return 0 if _not_its_own(roll, node, hello.partition_id) else hello.num_partitions


def _is_needed(roll: Roll, node: int) -> bool:
    """Whether a node has the key of an awaited partition, without which the run cannot begin."""
    return roll._count.is_sure and not roll._spares and roll._engine.partition_of_key(node) in roll.wanted


def _is_rightful(engine: Engine, node: int, holder: int) -> bool:
    """Whether a node has a key of a partition, and its present holder has none."""
    return engine.partition_of_key(node) is not None and engine.partition_of_key(holder) is None


def _read(reply: Message) -> Hello:
    """Content of a reply, or RunError for any invalid content."""
    try:
        return read_hello(reply)
    except Exception as error:
        said = printable(words_of(error)[:_LONGEST])
        raise RunError(f"the first answer of {_whose(reply)} is none: {said}") from None


def _whose(reply: Message) -> str:
    """Owner of a first answer, by its own account."""
    try:
        partition = config_of(reply)["partition_id"]
    except Exception:  # a client can send anything here
        return "a client"
    return f"partition {partition}" if type(partition) is int and 0 <= partition < 10**6 else "a client"
