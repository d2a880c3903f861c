"""One exchange with many clients: push all messages, collect replies, put them in partition-id order.

Also finds out who is there (contract C4). Node ids stay in this file.
"""

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from flwr.app import Message
from flwr.serverapp import Grid

from fedge.exchange.content import send_tickets, work_of
from fedge.exchange.hello import hello_message, read_hello
from fedge.exchange.ordering import largest_first, waves
from fedge.process.logs import first_engine_error
from fedge.process.watchdog import note_progress, refuse_stalled
from fedge.states.averaging import State
from fedge.timing.laps import LapClock
from fedge.timing.timeline import ExchangeTimes

logger = logging.getLogger(__name__)

_POLL_S = 0.01
_SWEEP_S = 0.15  # in which Flower's engine has picked up what was pushed: it looks every 0.1 s
_ENGINE_CHECK_S = 0.5
_WAIT_FOR_NODES_S = 0.05
_MARGIN_S = 10.0  # what the engine may take to end a client whose time is over
_WORKER_DIED = "worker died: its process was killed, ran out of memory or crashed"
_UNBEGUN = 10  # times that a message is sent again which a dying worker took and no client saw
_GUARD = "fedge.client.guarded_app.ClientError: "
_DEAD_WORKER = ("ActorUnavailableError", "ActorDiedError", "WorkerCrashedError", "OutOfMemoryError")


class RunError(RuntimeError):
    """The run cannot go on. One line for the user."""


@dataclass(frozen=True)
class Exchange:
    """What came back.

    Attributes:
        replies: partition id → reply, in ascending order of the id.
        failures: partition id → reason, for clients that answered with an error or not in time.
        times: when the server waited, and when whose message was worked on.
    """

    replies: dict[int, Message]
    failures: dict[int, str]
    times: ExchangeTimes


@dataclass(frozen=True)
class Standing:
    """How an exchange stands at one moment, in partition ids.

    Attributes:
        kind: message type, `TRAIN` or `EVALUATE`.
        asked: clients that were sent a message.
        back: clients whose reply is there.
        failed: clients that have failed, and are not tried again or have not answered since.
    """

    kind: str
    asked: frozenset[int]
    back: frozenset[int]
    failed: frozenset[int]


# Called again and again while an exchange goes on, by the thread that waits, with a function that tells how
# it stands: the same function throughout an exchange.
Observer = Callable[[Callable[[], Standing]], None]


class Clients:
    """The clients of a run: which node holds which partition, and which see the server's state files."""

    def __init__(self, node_of: Mapping[int, int], sharing: Collection[int] = ()) -> None:
        """Keep the map partition id → node id, where ids are 0..K-1, and the nodes that see state files."""
        self._node_of = dict(node_of)
        self._sharing = frozenset(sharing)
        self._partition_of = {node: partition for partition, node in self._node_of.items()}
        self._observer: Observer = lambda _: None

    def watch(self, observer: Observer) -> None:
        """Let `observer` follow all exchanges to come."""
        self._observer = observer

    def __len__(self) -> int:
        return len(self._node_of)

    def node(self, partition_id: int) -> int:
        """Return the node that holds a partition."""
        return self._node_of[partition_id]

    def partition(self, node_id: int) -> int:
        """Return the partition that a node holds."""
        return self._partition_of[node_id]

    def shares(self, node_id: int) -> bool:
        """Tell whether a node sees the server's state files."""
        return node_id in self._sharing

    def send_tickets(self, messages: Iterable[Message], states: Mapping[str, State | None]) -> None:
        """Let messages to nodes that see the server's state files name files instead of carrying arrays.

        Args:
            messages: with `states` as arrays.
            states: by the name of their record; those that are in no file stay as they are.
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
        grid: Grid,
        messages: Sequence[Message],
        timeout_s: float,
        clock: LapClock | None = None,
        retries: int = 0,
        last_words: Callable[[int], str | None] = lambda _: None,
        costs_s: Mapping[int, float] | None = None,
    ) -> Exchange:
        """Send `messages`, largest client first, and wait for their replies.

        Args:
            grid: delivers them.
            messages: at most one per client.
            timeout_s: seconds that each client may work. Whoever delivers the messages ends what takes
                longer; where that fails, all is over when nothing has come for that long and a bit.
            clock: charged "push" and "wait".
            retries: how often a message is sent again to a client that failed.
            last_words: partition id of a client whose worker has died → where it stood when its time was
                over, empty if it was at work until then, None if it had not begun.
            costs_s: partition id → seconds that the client is expected to take; all alike by default.

        Raises:
            RunError: the simulation engine behind the grid has stopped.
        """
        sent = {self._partition_of[m.metadata.dst_node_id]: m for m in messages}
        left = dict.fromkeys(sent, retries)
        left_unbegun = dict.fromkeys(sent, _UNBEGUN)
        replies: dict[int, Message] = {}
        failures: dict[int, str] = {}

        def again(reply: Message) -> Message | None:
            """Take in a reply; return the message to send instead if the client failed and may try again."""
            partition = self._partition_of[reply.metadata.src_node_id]
            if not reply.has_error():
                replies[partition] = reply
                failures.pop(partition, None)
                return None
            failures[partition] = one_line(reply.error.reason)
            tries = left
            if failures[partition] == _WORKER_DIED:
                words = last_words(partition)
                if words:
                    failures[partition] = no_reply_within(timeout_s)
                elif words is None:  # it met a worker that was about to start again
                    tries = left_unbegun
            if tries[partition] == 0:
                return None
            tries[partition] -= 1
            logger.info("client %d failed and is tried again: %s", partition, failures[partition])
            message = sent[partition]
            return Message(message.content, message.metadata.dst_node_id, message.metadata.message_type)

        def standing() -> Standing:
            kind = next((message.metadata.message_type for message in messages), "")
            return Standing(kind, frozenset(sent), frozenset(replies), frozenset(failures))

        costs = {partition: (costs_s or {}).get(partition, 0.0) for partition in sent}
        keeps_order = hasattr(grid, "wait")  # the in-process engine hands out what comes first
        split = [largest_first(costs)] if keeps_order else waves(costs)
        stamps = Stamps(clock or LapClock())
        collect(
            grid, [[sent[client] for client in wave] for wave in split], timeout_s, stamps, again,
            lambda: self._observer(standing),
        )  # fmt: skip
        for partition in sent.keys() - replies.keys() - failures.keys():
            failures[partition] = no_reply_within(timeout_s)
        replies = dict(sorted(replies.items()))
        return Exchange(replies, dict(sorted(failures.items())), stamps.times_of(replies))


def no_reply_within(timeout_s: float) -> str:
    """Return the reason of a client that took too long."""
    return f"no reply within {timeout_s:g} s, which is guard.client-timeout"


class Stamps:
    """When messages of one exchange were pushed, their replies received, and when the server waited."""

    def __init__(self, clock: LapClock) -> None:
        """Stamp by `clock`, which is charged "push" and "wait"."""
        self._clock = clock
        self._pushed: dict[str, float] = {}
        self._received: dict[str, float] = {}
        self._waits: list[tuple[float, float]] = []

    def push(self, grid: Grid, messages: Sequence[Message]) -> list[str]:
        """Push messages; returns their ids."""
        now = self._clock.now()
        ids = list(grid.push_messages(messages))
        self._pushed.update(dict.fromkeys(ids, now))
        return ids

    def receive(self, replies: Sequence[Message]) -> None:
        """Note that replies have come."""
        now = self._clock.now()
        self._received.update(dict.fromkeys([reply.metadata.reply_to_message_id for reply in replies], now))

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Charge the body to "wait", and what was before it to "push"."""
        began = self._clock.lap("push")
        yield
        self._waits.append((began, self._clock.lap("wait")))

    def times_of(self, replies: Mapping[int, Message]) -> ExchangeTimes:
        """Return what was noted, with what the clients say themselves, of partition id → reply."""
        times = ExchangeTimes(self._waits)
        for partition, reply in replies.items():
            work = work_of(reply)
            if work is not None:
                message_id = reply.metadata.reply_to_message_id
                times.add(partition, self._pushed[message_id], self._received[message_id], work)
        return times


def collect(
    grid: Grid,
    split: Sequence[Sequence[Message]],
    timeout_s: float,
    stamps: Stamps | None = None,
    again: Callable[[Message], Message | None] | None = None,
    tick: Callable[[], None] = lambda: None,
) -> list[Message]:
    """Push messages, wave by wave, and pull replies until all are there or `timeout_s` is over.

    With `again` (reply → a message to send instead, or None) each client has `timeout_s` for itself: the grid
    gives up those that take longer, if it can, and the whole is over when nothing has come for that long.
    `tick` is called whenever this thread has looked for replies, so at least twice a second.
    """
    stamps = stamps or Stamps(LapClock())
    pending: set[str] = set()
    for wave in split:
        if pending:
            with stamps.waiting():  # clients are at work already
                time.sleep(_SWEEP_S)
        pending.update(stamps.push(grid, wave))
    with stamps.waiting():
        return _pull(grid, pending, timeout_s, stamps, again, tick)


def _pull(
    grid: Grid,
    pending: set[str],
    timeout_s: float,
    stamps: Stamps,
    again: Callable[[Message], Message | None] | None,
    tick: Callable[[], None],
) -> list[Message]:
    """Pull the replies to the messages `pending`; the other arguments as in `collect`."""
    collected: list[Message] = []
    deadline = time.monotonic() + timeout_s + (_MARGIN_S if again else 0.0)
    next_check = time.monotonic() + _ENGINE_CHECK_S
    while pending:
        got = list(grid.pull_messages(pending))
        collected.extend(got)
        if got:
            note_progress()
            stamps.receive(got)
        pending.difference_update(message.metadata.reply_to_message_id for message in got)
        now = time.monotonic()
        if again is not None:
            pending.update(stamps.push(grid, [m for m in map(again, got) if m is not None]))
            if got:
                deadline = now + timeout_s + _MARGIN_S
        tick()
        if not pending or now > deadline:
            break
        if now > next_check:
            refuse_dead_engine()
            if again is not None and hasattr(grid, "give_up_late"):
                grid.give_up_late(timeout_s, no_reply_within(timeout_s))
            refuse_stalled()
            next_check = now + _ENGINE_CHECK_S
        if not got:
            _wait(grid)
    return collected


def _wait(grid: Grid) -> None:
    """Wait for a reply: as long as the grid can tell (the in-process one), else for one poll."""
    if hasattr(grid, "wait"):
        grid.wait(_ENGINE_CHECK_S)
    else:
        time.sleep(_POLL_S)


_ray_was_up = False
_engine_stopped = threading.Event()  # another one where the engine has one


def watch_engine(stopped: threading.Event) -> None:
    """Let `refuse_dead_engine` look at the event that the engine sets when it stops."""
    global _engine_stopped
    _engine_stopped = stopped


def refuse_dead_engine() -> None:
    """Raise RunError when the engine has stopped: it says so, or Ray was up and is down again.

    Flower keeps the ServerApp waiting for ever after its simulation engine has crashed (Ray did not start,
    no worker fits into it) or was interrupted.
    """
    global _ray_was_up
    ray = sys.modules.get("ray")
    # another thread may be importing it right now
    is_up = ray is not None and hasattr(ray, "is_initialized") and ray.is_initialized()
    if _engine_stopped.is_set() and not (is_up or _ray_was_up):
        words = first_engine_error() or "run.log or the lines above have its last words"
        raise RunError(f"the simulation engine did not start: {words}; fedge run needs no Ray")
    if _engine_stopped.is_set() or (_ray_was_up and not is_up):
        raise RunError("the simulation engine stopped while clients were at work; run.log has its last words")
    _ray_was_up = is_up


def _several_machines() -> bool:
    """Tell whether Ray spreads its workers over machines: then any client may run on any of them."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized() and sum(bool(node["Alive"]) for node in ray.nodes()) > 1


def find_clients(
    grid: Grid, timeout_s: float, probe: str = "", tick: Callable[[], None] = lambda: None
) -> Clients:
    """Wait until all nodes of the federation are there and ask each once which partition it holds.

    Also asks whether it sees the file `probe`, which lies where state files would. `tick` is called again and
    again meanwhile.

    Raises:
        RunError: not all of them answered in time, or two claim the same partition.
    """
    deadline = time.monotonic() + timeout_s
    hellos: dict[int, int] = {}
    sharing: set[int] = set()
    expected = 0
    while time.monotonic() < deadline:
        new_nodes = [node for node in grid.get_node_ids() if node not in hellos.values()]
        messages = [hello_message(node, probe) for node in new_nodes]
        for reply in collect(grid, [messages], deadline - time.monotonic(), tick=tick):
            if reply.has_error():
                raise RunError(f"a client failed at its first call: {one_line(reply.error.reason)}")
            hello = read_hello(reply)
            if hello.partition_id in hellos:
                raise RunError(f"two clients say that they hold partition {hello.partition_id}")
            hellos[hello.partition_id] = reply.metadata.src_node_id
            expected = hello.num_partitions
            if hello.shares:
                sharing.add(reply.metadata.src_node_id)
        if expected and len(hellos) >= expected:
            return Clients(dict(sorted(hellos.items())), () if _several_machines() else sharing)
        refuse_dead_engine()
        tick()
        time.sleep(_WAIT_FOR_NODES_S)
    raise RunError(
        f"guard.start-timeout: {len(hellos)} of {expected or 'an unknown number of'} clients answered within "
        f"{timeout_s:g} s; start fewer at once or raise guard.start-timeout"
    )


def one_line(reason: str | None) -> str:
    """Return the message of a client's error without Flower's and Ray's wrapping and traceback."""
    if any(f"{name}'>:<'" in (reason or "") for name in _DEAD_WORKER):
        return _WORKER_DIED
    lines = [line.strip() for line in (reason or "").replace("\\n", "\n").splitlines() if line.strip()]
    telling = (
        [line for line in lines if "Error" in line and "ray::" not in line] or lines or ["unknown reason"]
    )
    return telling[-1].strip("<>'\"() ").removeprefix(_GUARD)[:300]
