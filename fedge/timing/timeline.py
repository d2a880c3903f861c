"""Where the workers' time went while the server waited, and how long messages were under way.

A worker is a thread of the in-process engine, a Ray actor's process or a node of a deployment. Each worker's
part of the wait, its timeline, is cut into the parts measured by its clients (`fedge.timing.calls`) and the
rest: idle, or the message on its way. The timelines of a round add up to workers × wait, since the rest is
what is left of it, and no part is negative, since calls that overlap on a worker are cut where the earlier
one ends.

Messages overlap one another, so their times are given as percentiles and never added up:

    queue      from being pushed until the worker that took it was free
    dispatch   from then until the client's code began: the engine at work
    run        in the client's code
    return     until the server had the reply; in process it takes them in when the last one is there

All from four stamps per message on one clock: pushed, begun, ended, received. Where clients have another
machine's clock, it is set by `fedge.timing.clocks`; where stamps do not fit together even so, a round has no
timelines. Shape letters: M messages, W workers, P parts. Pure functions on arrays, and `TimelineBook`, which
numbers a run's workers.
"""

import logging
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedge.process.identity import PID_BITS, machine_number, pid_of
from fedge.process.resources.memory import ProcessMemory
from fedge.timing.calls import BEGAN, CUDA, FIRST_PART, NUMBERS, PARTS, PROCESS, THREAD
from fedge.timing.clocks import MachineClock, ahead_s

logger = logging.getLogger(__name__)

TIMELINE_PARTS = ("idle", *PARTS)
LEGS = ("queue", "dispatch", "run", "return")
PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
LEG_COLUMNS = tuple(f"{leg}_{name}" for leg in LEGS for name in PERCENTILES)

_CLIENT, _PUSHED, _RECEIVED, _WORK = 0, 1, 2, 3  # columns of ExchangeTimes.rows
WIDTH = _WORK + NUMBERS
_TOLERANCE_S = 1e-3  # by which stamps of one clock may be apart

Windows = Sequence[tuple[float, float]]


@dataclass
class ExchangeTimes:
    """Times of one exchange, in seconds of the machine's clock.

    Attributes:
        waits: (begin, end) of the server's phases "wait", in order.
        numbers: of all replies that say when they were worked on, `WIDTH` each: client, pushed, received,
            and the numbers of `fedge.timing.calls`. One array: a list each would keep the garbage collector
            busy.
        held: client → memory of its node's processes, where nodes measure themselves.
    """

    waits: list[tuple[float, float]] = field(default_factory=list)
    numbers: "array[float]" = field(default_factory=lambda: array("d"))
    held: dict[int, Sequence[ProcessMemory]] = field(default_factory=dict)

    def add(self, client: int, pushed: float, received: float, work: Sequence[float]) -> None:
        """Take in a reply."""
        self.numbers.extend((client, pushed, received, *work))

    @property
    def rows(self) -> np.ndarray:
        """(M, `WIDTH`) a row per reply."""
        return np.array(self.numbers, dtype=np.float64).reshape(-1, WIDTH)


@dataclass(frozen=True)
class MessageTimes:
    """M messages of one round, in the order of their exchanges; seconds since the round began.

    Attributes:
        exchange: (M,) 1, 2, …
        client: (M,) partition ids.
        worker: (M,) number of the worker that took it.
        pushed, received: (M,) at the server.
        edges: (M, P + 1) when the client's code began, then when each of `PARTS` ended.
    """

    exchange: np.ndarray
    client: np.ndarray
    worker: np.ndarray
    pushed: np.ndarray
    received: np.ndarray
    edges: np.ndarray


@dataclass(frozen=True)
class Timeline:
    """One worker's part of the wait of one round.

    Attributes:
        worker: its number in the run, 0, 1, …
        pid: process id on Ray, id of its thread in process; in a deployment of the starter of its ClientApps.
        messages: answered.
        seconds: of `TIMELINE_PARTS`, in order.
        idle_at_end: idle seconds after its last message of an exchange, while others were still at work.
        machine: where it is; empty for the server's machine.
    """

    worker: int
    pid: int
    messages: int
    seconds: tuple[float, ...]
    idle_at_end: float
    machine: str = ""


@dataclass(frozen=True)
class RoundTimelines:
    """The workers' and the messages' view of one round.

    Attributes:
        timelines: a worker each.
        legs: `LEG_COLUMNS` → seconds.
        messages: behind both.
        cuda_mib: process → peaks of memory allocated and reserved on its GPU; processes by their ids, on
            other machines by their numbers.
    """

    timelines: Sequence[Timeline]
    legs: Mapping[str, float]
    messages: MessageTimes
    cuda_mib: Mapping[int, tuple[float, float]]

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds of `TIMELINE_PARTS`, summed over workers."""
        return tuple(np.sum([timeline.seconds for timeline in self.timelines], axis=0).tolist())


# --- pure functions -------------------------------------------------------------------------------------


def overlap(begin: np.ndarray, end: np.ndarray, windows: Windows) -> np.ndarray:
    """The seconds of each interval begin … end within windows, which do not overlap.

    `begin` and `end` are float64 seconds, broadcast to the shape of the result.
    """
    total = np.zeros(np.broadcast_shapes(begin.shape, end.shape))
    for first, last in windows:
        total += np.maximum(np.minimum(end, last) - np.maximum(begin, first), 0.0)
    return total


def turns(began: np.ndarray, worker: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places (P,), (P,) int64 of every two of N calls of which one followed the other on a worker."""
    order = np.lexsort((began, worker))
    same = worker[order[1:]] == worker[order[:-1]]
    return order[:-1][same], order[1:][same]


def in_turn(edges: np.ndarray, worker: np.ndarray) -> np.ndarray:
    """Edges (M, P + 1) without a call starting before the end of the worker's previous one.

    Edges of the earlier call stay; those of the later one move to its end. Nothing moves where clocks agree.
    """
    earlier, later = turns(edges[:, 0], worker)
    if (edges[later, 0] >= edges[earlier, -1]).all():
        return edges
    moved = edges.copy()
    for before, call in zip(earlier, later, strict=True):  # in the order of the worker's calls
        moved[call] = np.maximum(moved[call], moved[before, -1])
    return moved


def cut_timelines(edges: np.ndarray, worker: np.ndarray, workers: int, waits: Windows) -> np.ndarray:
    """(W, P + 1) seconds: idle, then each part, of every worker within the waits.

    Args:
        edges: (M, P + 1) of calls without overlap on a worker.
        worker: (M,) number of their worker, 0 … W − 1.
        workers: W.
        waits: (begin, end), none of which overlap.
    """
    timelines = np.zeros((workers, edges.shape[1]))
    np.add.at(timelines[:, 1:], worker, overlap(edges[:, :-1], edges[:, 1:], waits))
    wait = sum(end - begin for begin, end in waits)
    timelines[:, 0] = np.maximum(wait - timelines[:, 1:].sum(axis=1), 0.0)
    return timelines


def idle_at_end(edges: np.ndarray, worker: np.ndarray, workers: int, waits: Windows) -> np.ndarray:
    """(W,) seconds of the waits in which a worker had ended its last call and another had not.

    Arguments as in `cut_timelines`, of one exchange. A worker without a call ends before its start.
    """
    last = np.full(workers, -np.inf)
    np.maximum.at(last, worker, edges[:, -1])
    return overlap(last, np.full(workers, last.max(initial=-np.inf)), waits)


def legs_of(messages: MessageTimes) -> np.ndarray:
    """(M, 4) seconds of `LEGS` of every message."""
    free = messages.pushed.copy()
    earlier, later = turns(messages.edges[:, 0], messages.worker)
    free[later] = np.maximum(free[later], messages.edges[earlier, -1])
    began, ended = messages.edges[:, 0], messages.edges[:, -1]
    legs = np.stack([free - messages.pushed, began - free, ended - began, messages.received - ended], axis=1)
    return np.maximum(legs, 0.0)


def percentiles(legs: np.ndarray) -> dict[str, float]:
    """`LEG_COLUMNS` → seconds of (M, 4) legs, linear between the two nearest messages.

    As `np.percentile`, which takes several times as long for few messages.
    """
    ordered, last = np.sort(legs, axis=0), len(legs) - 1
    place = np.array(list(PERCENTILES.values()))[:, None] / 100 * last
    below = place.astype(np.int64)[:, 0]
    low, high = ordered[below], ordered[np.minimum(below + 1, last)]
    found = low + (high - low) * (place % 1)
    return dict(zip(LEG_COLUMNS, found.T.ravel().tolist(), strict=True))


def is_in_order(messages: MessageTimes) -> bool:
    """Whether every message was pushed, begun, ended and received in this order: by one clock."""
    steps = np.diff(np.column_stack([messages.pushed, messages.edges, messages.received]), axis=1)
    return bool((steps >= -_TOLERANCE_S).all())


def number_here(numbers: np.ndarray, here: int) -> np.ndarray:
    """Process numbers (N,) int64, those of the machine of the process `here` as mere process ids."""
    return np.where(numbers >> PID_BITS == here >> PID_BITS, numbers & (1 << PID_BITS) - 1, numbers)


# --- a run ----------------------------------------------------------------------------------------------


class TimelineBook:
    """Numbers the workers of a run in the order in which they are first seen, and cuts their timelines."""

    def __init__(self, server: int) -> None:
        """Start; `server` is the server's process number, in which workers are threads.

        Workers on its machine are known by their process ids, others by their process numbers.
        """
        self._server = server
        self._numbers: dict[int, int] = {}
        self._names: dict[int, str] = {}  # of machines
        self._said = False

    def round(
        self,
        began: float,
        exchanges: Sequence[ExchangeTimes],
        present: Sequence[int],
        clocks: Mapping[int, MachineClock] | None = None,
    ) -> RoundTimelines | None:
        """The timelines of a round; None without clients' times, or with other clocks.

        Args:
            began: when the round did, by the clock of the exchanges.
            exchanges: of the round.
            present: ids of the known workers, idle or not.
            clocks: number of another machine → its clock's reading when asked; for other machines, messages
                are the only source.
        """
        rows = np.concatenate([np.empty((0, WIDTH)), *(exchange.rows for exchange in exchanges)])
        if not len(rows):
            return None
        clocks = clocks or {}
        self._names.update({machine: clock.name for machine, clock in clocks.items()})
        self._set_clocks(rows, clocks)
        messages = _messages(rows, began, exchanges)
        if not (np.isfinite(rows).all() and is_in_order(messages)):
            self._say_apart()
            return None
        process, thread = rows[:, _WORK + PROCESS].astype(np.int64), rows[:, _WORK + THREAD]
        rows[:, _WORK + PROCESS] = number_here(process, self._server)
        ids = np.where(process == self._server, thread, rows[:, _WORK + PROCESS]).astype(np.int64)
        there, worker = np.unique(np.concatenate([ids, np.array(present, np.int64)]), return_inverse=True)
        messages = replace(messages, worker=worker[: len(ids)])
        numbers = self._number(present, there.tolist())
        waits = [[(b - began, e - began) for b, e in exchange.waits] for exchange in exchanges]
        timelines = [self._named(one) for one in _timelines(messages, there, numbers, waits)]
        messages = replace(messages, worker=numbers[messages.worker])
        return RoundTimelines(timelines, percentiles(legs_of(messages)), messages, _cuda(rows))

    def _set_clocks(self, rows: np.ndarray, clocks: Mapping[int, MachineClock]) -> None:
        """Let calls on other machines begin by the server's clock; `rows` as `ExchangeTimes` has them."""
        machine = np.nan_to_num(rows[:, _WORK + PROCESS]).astype(np.int64) >> PID_BITS
        for one in np.unique(machine[machine != machine_number(self._server)]).tolist():
            there = machine == one
            work = rows[there, _WORK:]
            ended = work[:, [BEGAN, *range(FIRST_PART, FIRST_PART + len(PARTS))]].sum(axis=1)
            bounds = ended - rows[there, _RECEIVED], work[:, BEGAN] - rows[there, _PUSHED]
            rows[there, _WORK + BEGAN] -= ahead_s(*bounds, clocks.get(one))

    def _named(self, timeline: Timeline) -> Timeline:
        """A timeline with process id and machine of its worker."""
        machine = machine_number(timeline.pid)
        if not machine:  # a process or thread of the server's machine
            return timeline
        return replace(timeline, pid=pid_of(timeline.pid), machine=self._names.get(machine, f"{machine:08x}"))

    def _number(self, present: Sequence[int], there: Sequence[int]) -> np.ndarray:
        """The numbers of the present workers, new ones included."""
        for one in (*present, *there):
            self._numbers.setdefault(one, len(self._numbers))
        return np.array([self._numbers[one] for one in there])

    def _say_apart(self) -> None:
        """Log once that there are no timelines."""
        if not self._said:
            self._said = True
            logger.info("no worker times: the clocks of server and clients differ, and not by the same time")


def _messages(rows: np.ndarray, began: float, exchanges: Sequence[ExchangeTimes]) -> MessageTimes:
    """The messages of rows as `ExchangeTimes` has them, one below the other; their workers are open."""
    steps = rows[:, _WORK:][:, [BEGAN, *range(FIRST_PART, FIRST_PART + len(PARTS))]]
    counts = [len(exchange.numbers) // WIDTH for exchange in exchanges]
    return MessageTimes(
        exchange=np.repeat(np.arange(1, len(counts) + 1), counts),
        client=rows[:, _CLIENT].astype(np.int64),
        worker=np.zeros(len(rows), np.int64),
        pushed=rows[:, _PUSHED] - began,
        received=rows[:, _RECEIVED] - began,
        edges=np.cumsum(steps, axis=1) - began,
    )


def _timelines(
    messages: MessageTimes, ids: np.ndarray, numbers: np.ndarray, waits: Sequence[Windows]
) -> list[Timeline]:
    """A timeline per worker, in the order of their numbers; `messages.worker` are places in `ids`."""
    edges, worker = in_turn(messages.edges, messages.worker), messages.worker
    seconds = np.zeros((len(ids), len(TIMELINE_PARTS)))
    at_end = np.zeros(len(ids))
    for number, windows in enumerate(waits, start=1):
        mine = messages.exchange == number
        seconds += cut_timelines(edges[mine], worker[mine], len(ids), windows)
        at_end += idle_at_end(edges[mine], worker[mine], len(ids), windows)
    counts = np.bincount(worker, minlength=len(ids))
    return [
        Timeline(int(numbers[k]), int(ids[k]), int(counts[k]), tuple(seconds[k].tolist()), float(at_end[k]))
        for k in np.argsort(numbers)
    ]


def _cuda(rows: np.ndarray) -> dict[int, tuple[float, float]]:
    """Process → peaks of MiB allocated and reserved, for processes with a GPU."""
    process, memory = rows[:, _WORK + PROCESS], rows[:, _WORK + CUDA :]
    found: dict[int, tuple[float, float]] = {}
    if not memory.any():
        return found
    for one in np.unique(process[memory[:, 1] > 0]):
        allocated, reserved = memory[process == one].max(axis=0).tolist()
        found[int(one)] = (allocated, reserved)
    return found
