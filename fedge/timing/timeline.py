"""Workers' time while the server waited, and messages' time on their way.

A worker is a thread of the in-process engine, a process of a Ray actor, or a node of a deployment. A worker's
timeline splits the wait into the parts measured by its clients (`fedge.timing.calls`) and the rest, which is
idle time or a message on its way. The rest is computed as a remainder, so the timelines of a round add up to
workers × wait. No part is negative: if calls on a worker overlap, the later one is cut.

Messages overlap one another, so their times are given as percentiles, never as sums:

    queue      from the push until the worker that takes it is free
    dispatch   from then until the client's code starts: the engine's work
    run        in the client's code
    return     until the server has the reply; in process, replies are taken when the last one is ready

They follow from four time stamps per message on one clock: pushed, begun, ended, received. Clocks of clients
on other machines are aligned by `fedge.timing.clocks`; if stamps are inconsistent even so, a round has no
timelines. Shape letters: M messages, W workers, P parts. All are pure functions on arrays, except
`TimelineBook`, which numbers a run's workers.
"""

import logging
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fedge.process.identity import PID_BITS, machine_number, pid_of
from fedge.process.resources.memory import ProcessMemory
from fedge.timing.calls import BEGAN, CUDA, FIRST_PART, NUMBERS, PARTS, PROCESS, THREAD
from fedge.timing.clocks import MachineClock, clock_lead_s

logger = logging.getLogger(__name__)

TIMELINE_PARTS = ("idle", *PARTS)
LEGS = ("queue", "dispatch", "run", "return")
PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
LEG_COLUMNS = tuple(f"{leg}_{name}" for leg in LEGS for name in PERCENTILES)

_CLIENT, _PUSHED, _RECEIVED, _WORK = 0, 1, 2, 3  # columns of ExchangeTimes.rows
WIDTH = _WORK + NUMBERS
_TOLERANCE_S = 1e-3  # permitted inconsistency of stamps on one clock

Windows = Sequence[tuple[float, float]]


@dataclass
class ExchangeTimes:
    """Times of one exchange, in seconds of this machine's clock.

    Attributes:
        waits: (start, end) of the server's "wait" phases, in order.
        numbers: `WIDTH` numbers of each reply with times: client, pushed, received, and those of
            `fedge.timing.calls`. They are in one array, as a list per reply would burden the garbage
            collector.
        held: client → memory of its node's processes, if nodes measure themselves.
    """

    waits: list[tuple[float, float]] = field(default_factory=list)
    numbers: "array[float]" = field(default_factory=lambda: array("d"))
    held: dict[int, Sequence[ProcessMemory]] = field(default_factory=dict)

    def add(self, client: int, pushed: float, received: float, work: Sequence[float]) -> None:
        """Add a reply."""
        self.numbers.extend((client, pushed, received, *work))

    @property
    def rows(self) -> np.ndarray:
        """A row per reply, (M, `WIDTH`)."""
        return np.array(self.numbers, dtype=np.float64).reshape(-1, WIDTH)


@dataclass(frozen=True)
class MessageTimes:
    """Times of the M messages of a round, by exchange, in seconds since its start.

    Attributes:
        exchange: (M,) number of the exchange, 1, 2, …
        client: (M,) partition ids.
        worker: (M,) number of the worker.
        pushed, received: (M,) times at the server.
        edges: (M, P + 1) start of the client's code, then the end of each of `PARTS`.
    """

    exchange: np.ndarray
    client: np.ndarray
    worker: np.ndarray
    pushed: np.ndarray
    received: np.ndarray
    edges: np.ndarray


@dataclass(frozen=True)
class Timeline:
    """One worker's share of the wait in a round.

    Attributes:
        worker: its number in the run, 0, 1, …
        pid: process id on Ray; thread id in process; id of the starter of its ClientApps in a deployment.
        messages: number of messages.
        seconds: seconds of `TIMELINE_PARTS`, in order.
        idle_at_end: idle seconds after its last message of an exchange, while other workers were busy.
        machine: name of its machine; empty for the server's.
    """

    worker: int
    pid: int
    messages: int
    seconds: tuple[float, ...]
    idle_at_end: float
    machine: str = ""


@dataclass(frozen=True)
class RoundTimelines:
    """Times of one round, by worker and by message.

    Attributes:
        timelines: one per worker.
        legs: `LEG_COLUMNS` → seconds.
        messages: the times from which both were computed.
        cuda_mib: process → peak MiB allocated and reserved on its GPU; processes by id, or by process number
            if on other machines.
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
    """Seconds of each interval begin … end inside windows without overlaps.

    `begin` and `end` are float64 seconds, broadcast against each other.
    """
    total = np.zeros(np.broadcast_shapes(begin.shape, end.shape))
    for first, last in windows:
        total += np.maximum(np.minimum(end, last) - np.maximum(begin, first), 0.0)
    return total


def consecutive_calls(began: np.ndarray, worker: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices (P,), (P,) int64 of every two of N calls in succession on a worker."""
    order = np.lexsort((began, worker))
    same = worker[order[1:]] == worker[order[:-1]]
    return order[:-1][same], order[1:][same]


def without_overlaps(edges: np.ndarray, worker: np.ndarray) -> np.ndarray:
    """Edges (M, P + 1) in which no call starts before its worker's previous one has ended.

    Edges of the later call are moved to the end of the earlier one. Nothing moves if clocks agree.
    """
    earlier, later = consecutive_calls(edges[:, 0], worker)
    if (edges[later, 0] >= edges[earlier, -1]).all():
        return edges
    shifted = edges.copy()
    for previous, call in zip(earlier, later, strict=True):  # in the order of calls on a worker
        shifted[call] = np.maximum(shifted[call], shifted[previous, -1])
    return shifted


def cut_timelines(edges: np.ndarray, worker: np.ndarray, workers: int, waits: Windows) -> np.ndarray:
    """(W, P + 1) seconds of each worker in the waits: idle, then each part.

    Args:
        edges: (M, P + 1) of calls without overlaps on a worker.
        worker: (M,) worker of each call, 0 … W − 1.
        workers: W.
        waits: (start, end) of each wait, without overlaps.
    """
    timelines = np.zeros((workers, edges.shape[1]))
    np.add.at(timelines[:, 1:], worker, overlap(edges[:, :-1], edges[:, 1:], waits))
    wait = sum(end - begin for begin, end in waits)
    timelines[:, 0] = np.maximum(wait - timelines[:, 1:].sum(axis=1), 0.0)
    return timelines


def idle_at_end(edges: np.ndarray, worker: np.ndarray, workers: int, waits: Windows) -> np.ndarray:
    """(W,) seconds of the waits in which a worker had finished its last call but another had not.

    Arguments as in `cut_timelines`, for one exchange. A worker without a call counts as finished at the
    start.
    """
    last = np.full(workers, -np.inf)
    np.maximum.at(last, worker, edges[:, -1])
    return overlap(last, np.full(workers, last.max(initial=-np.inf)), waits)


def legs_of(messages: MessageTimes) -> np.ndarray:
    """(M, 4) seconds of `LEGS`, for every message."""
    free = messages.pushed.copy()
    earlier, later = consecutive_calls(messages.edges[:, 0], messages.worker)
    free[later] = np.maximum(free[later], messages.edges[earlier, -1])
    began, ended = messages.edges[:, 0], messages.edges[:, -1]
    legs = np.stack([free - messages.pushed, began - free, ended - began, messages.received - ended], axis=1)
    return np.maximum(legs, 0.0)


def percentiles(legs: np.ndarray) -> dict[str, float]:
    """`LEG_COLUMNS` → seconds, from (M, 4) legs, interpolated linearly between messages.

    Equals `np.percentile`, which takes several times as long for few messages.
    """
    ordered, last = np.sort(legs, axis=0), len(legs) - 1
    position = np.array(list(PERCENTILES.values()))[:, None] / 100 * last
    lower = position.astype(np.int64)[:, 0]
    low, high = ordered[lower], ordered[np.minimum(lower + 1, last)]
    values = low + (high - low) * (position % 1)
    return dict(zip(LEG_COLUMNS, values.T.ravel().tolist(), strict=True))


def is_in_order(messages: MessageTimes) -> bool:
    """Whether every message was pushed, begun, ended and received in this order."""
    steps = np.diff(np.column_stack([messages.pushed, messages.edges, messages.received]), axis=1)
    return bool((steps >= -_TOLERANCE_S).all())


def local_process_ids(numbers: np.ndarray, here: int) -> np.ndarray:
    """Process numbers (N,) int64, reduced to process ids on the machine of the process `here`."""
    return np.where(numbers >> PID_BITS == here >> PID_BITS, numbers & (1 << PID_BITS) - 1, numbers)


# --- a run ----------------------------------------------------------------------------------------------


class TimelineBook:
    """Numbers the workers of a run by first appearance, and computes their timelines."""

    def __init__(self, server: int) -> None:
        """Start; `server` is the server's process number, in whose process workers are threads.

        Workers on its machine are identified by process ids, others by process numbers.
        """
        self._server = server
        self._numbers: dict[int, int] = {}
        self._names: dict[int, str] = {}  # of machines
        self._has_logged = False

    def round(
        self,
        began: float,
        exchanges: Sequence[ExchangeTimes],
        present: Sequence[int],
        clocks: Mapping[int, MachineClock] | None = None,
    ) -> RoundTimelines | None:
        """The timelines of a round; None if clients reported no times, or clocks do not fit.

        Args:
            began: start of the round, on the clock of the exchanges.
            exchanges: exchanges of the round.
            present: ids of the known workers, idle or not.
            clocks: number of another machine → readings of its clock; for machines without, messages are the
                only source.
        """
        rows = np.concatenate([np.empty((0, WIDTH)), *(exchange.rows for exchange in exchanges)])
        if not len(rows):
            return None
        clocks = clocks or {}
        self._names.update({machine: clock.name for machine, clock in clocks.items()})
        self._set_clocks(rows, clocks)
        messages = _messages(rows, began, exchanges)
        if not (np.isfinite(rows).all() and is_in_order(messages)):
            self._log_misfit()
            return None
        process, thread = rows[:, _WORK + PROCESS].astype(np.int64), rows[:, _WORK + THREAD]
        rows[:, _WORK + PROCESS] = local_process_ids(process, self._server)
        ids = np.where(process == self._server, thread, rows[:, _WORK + PROCESS]).astype(np.int64)
        seen_ids, worker = np.unique(np.concatenate([ids, np.array(present, np.int64)]), return_inverse=True)
        messages = replace(messages, worker=worker[: len(ids)])
        numbers = self._number_workers(present, seen_ids.tolist())
        waits = [[(b - began, e - began) for b, e in exchange.waits] for exchange in exchanges]
        timelines = [self._with_machine(one) for one in _timelines(messages, seen_ids, numbers, waits)]
        messages = replace(messages, worker=numbers[messages.worker])
        return RoundTimelines(timelines, percentiles(legs_of(messages)), messages, _peak_cuda_mib(rows))

    def _set_clocks(self, rows: np.ndarray, clocks: Mapping[int, MachineClock]) -> None:
        """Shift the starts of calls on other machines to the server's clock; `rows` as in `ExchangeTimes`."""
        machine = np.nan_to_num(rows[:, _WORK + PROCESS]).astype(np.int64) >> PID_BITS
        for number in np.unique(machine[machine != machine_number(self._server)]).tolist():
            on_machine = machine == number
            work = rows[on_machine, _WORK:]
            ended = work[:, [BEGAN, *range(FIRST_PART, FIRST_PART + len(PARTS))]].sum(axis=1)
            bounds = ended - rows[on_machine, _RECEIVED], work[:, BEGAN] - rows[on_machine, _PUSHED]
            rows[on_machine, _WORK + BEGAN] -= clock_lead_s(*bounds, clocks.get(number))

    def _with_machine(self, timeline: Timeline) -> Timeline:
        """A timeline with the process id and machine of its worker."""
        machine = machine_number(timeline.pid)
        if not machine:  # a process or thread of the server's machine
            return timeline
        return replace(timeline, pid=pid_of(timeline.pid), machine=self._names.get(machine, f"{machine:08x}"))

    def _number_workers(self, present: Sequence[int], seen_ids: Sequence[int]) -> np.ndarray:
        """Numbers of the present workers; new ones are added."""
        for worker in (*present, *seen_ids):
            self._numbers.setdefault(worker, len(self._numbers))
        return np.array([self._numbers[worker] for worker in seen_ids])

    def _log_misfit(self) -> None:
        """Log, once, why there are no timelines."""
        if not self._has_logged:
            self._has_logged = True
            logger.info("no worker times: the clocks of server and clients differ, and not by the same time")


def _messages(rows: np.ndarray, began: float, exchanges: Sequence[ExchangeTimes]) -> MessageTimes:
    """The messages of rows as in `ExchangeTimes`, concatenated; workers are not set yet."""
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
    """One timeline per worker, by number; `messages.worker` are indices into `ids`."""
    edges, worker = without_overlaps(messages.edges, messages.worker), messages.worker
    seconds = np.zeros((len(ids), len(TIMELINE_PARTS)))
    idle = np.zeros(len(ids))
    for number, windows in enumerate(waits, start=1):
        in_exchange = messages.exchange == number
        seconds += cut_timelines(edges[in_exchange], worker[in_exchange], len(ids), windows)
        idle += idle_at_end(edges[in_exchange], worker[in_exchange], len(ids), windows)
    counts = np.bincount(worker, minlength=len(ids))
    return [
        Timeline(int(numbers[k]), int(ids[k]), int(counts[k]), tuple(seconds[k].tolist()), float(idle[k]))
        for k in np.argsort(numbers)
    ]


def _peak_cuda_mib(rows: np.ndarray) -> dict[int, tuple[float, float]]:
    """Process → peak MiB allocated and reserved, for processes with a GPU."""
    process, memory = rows[:, _WORK + PROCESS], rows[:, _WORK + CUDA :]
    peaks: dict[int, tuple[float, float]] = {}
    if not memory.any():
        return peaks
    for number in np.unique(process[memory[:, 1] > 0]):
        allocated, reserved = memory[process == number].max(axis=0).tolist()
        peaks[int(number)] = (allocated, reserved)
    return peaks
