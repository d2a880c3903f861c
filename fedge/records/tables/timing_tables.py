"""Tables of time and memory; see `catalog`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedge.records.tables.columns import FLOAT, INT, ROUND, TEXT, USUAL, Column, Table, at, later_column
from fedge.timing.calls import PARTS
from fedge.timing.laps import PHASES
from fedge.timing.timeline import LEGS, PERCENTILES, TIMELINE_PARTS

if TYPE_CHECKING:
    from fedge.process.resources.memory import ProcessMemory
    from fedge.timing.timeline import MessageTimes, Timeline


def _seconds_column(name: str, meaning: str, always: bool = False) -> Column:
    """A column of timing.csv, whose row object is a mapping."""
    return Column(name, FLOAT, "s", meaning, lambda row: row.get(name), always)


_PHASE = {
    "configure": "choosing clients and writing their messages",
    "push": "handing messages to the engine",
    "wait": "until the last reply arrived",
    "check": "checking replies",
    "aggregate": "averaging at the leaves",
    "cluster": "the cloud step",
    "gate": "the gates' arithmetic",
    "report": "printing, remarks, tracker",
    "record": "writing the tables",
    "checkpoint": "waiting for the checkpoint, written during clients' work",
    "other": "everything else",
}
assert _PHASE.keys() == set(PHASES)
_WORK = {
    "idle": "nothing to do, or a message in transit",
    "deserialise": "reading states",
    "load": "windows, network, state",
    "train": "training",
    "evaluate": "evaluating",
    "serialise": "making the reply",
}
assert tuple(_WORK) == TIMELINE_PARTS
_LEG = {
    "queue": "from push to a free worker",
    "dispatch": "from a free worker to the client's code",
    "run": "in the client's code",
    "return": "from the client's code to the reply at the server",
}
assert tuple(_LEG) == LEGS
TIMING = Table(
    "timing.csv",
    "A row per global round: phases, which sum to `total`, workers' activities during `wait`, and message "
    "times. `record`, `report` and `checkpoint` belong to the previous round.",
    (
        Column("global_round", INT, "", ROUND, lambda row: row["global_round"]),
        *(
            _seconds_column(phase, _PHASE[phase])
            for phase in (
                "configure",
                "push",
                "wait",
                "check",
                "aggregate",
                "cluster",
                "gate",
                "record",
                "checkpoint",
                "other",
            )
        ),
        _seconds_column("total", "wall time", always=True),
        _seconds_column("report", _PHASE["report"]),
        later_column(
            "workers",
            INT,
            "workers",
            "workers: threads in process, processes on Ray",
            lambda row: row.get("workers"),
        ),
        *(_seconds_column(f"timeline_{part}", f"all workers: {_WORK[part]}") for part in TIMELINE_PARTS),
        *(
            _seconds_column(
                f"{leg}_{name}",
                f"{_LEG[leg]}, percentiles and largest",
            )
            for leg in LEGS
            for name in PERCENTILES
        ),
    ),
    optional=True,
)


@dataclass(frozen=True)
class WorkerRow:
    """Source of a row of workers.csv, rounded to nanoseconds."""

    global_round: int
    timeline: "Timeline"


def _worker_seconds(part: int) -> Callable[[WorkerRow], float]:
    """Reader of the seconds of one part of a worker's timeline."""
    return lambda row: round(row.timeline.seconds[part], 9)


WORKERS = Table(
    "timing/workers.csv",
    "A row per worker per global round; seconds add up to `wait`.",
    (
        Column("global_round", INT, "", ROUND, at("global_round")),
        Column("worker", INT, "", USUAL["worker"], at("timeline.worker")),
        Column(
            "id",
            INT,
            "",
            "id of its thread in process, of its process on Ray, or of the process that starts its "
            "ClientApps in a deployment",
            at("timeline.pid"),
        ),
        Column("messages", INT, "messages", "messages answered", at("timeline.messages")),
        *(
            Column(part, FLOAT, "s", _WORK[part], _worker_seconds(number))
            for number, part in enumerate(TIMELINE_PARTS)
        ),
        Column(
            "idle_at_end",
            FLOAT,
            "s",
            "part of `idle` after its last message, while others were working",
            lambda row: round(row.timeline.idle_at_end, 9),
        ),
        later_column("machine", TEXT, "", USUAL["machine"], at("timeline.machine")),
    ),
    always=False,
    optional=True,
)


@dataclass(frozen=True)
class MessageRows:
    """Source of a file of messages; each column's value is an array over all M messages, (M,)."""

    global_round: int
    times: "MessageTimes"

    @property
    def rounds(self) -> np.ndarray:
        """Global round of each message, (M,)."""
        return np.full(len(self.times.client), self.global_round)


def _part_seconds(index: int) -> Callable[[MessageRows], np.ndarray]:
    """Reader of the (M,) seconds of one part."""
    return lambda rows: np.asarray(rows.times.edges[:, index + 1] - rows.times.edges[:, index])


MESSAGES = Table(
    "timing/messages-*.csv",
    "A row per message of the first, the slowest and the newest global round. Times count from the start "
    "of the round.",
    (
        Column("global_round", INT, "", ROUND, at("rounds")),
        Column("exchange", INT, "", "number in the round, from 1", at("times.exchange")),
        Column("client", INT, "", USUAL["client"], at("times.client")),
        Column("worker", INT, "", USUAL["worker"], at("times.worker")),
        Column("pushed", FLOAT, "s", "time: handed over by the server", at("times.pushed")),
        Column("began", FLOAT, "s", "time: start of the client's code", lambda rows: rows.times.edges[:, 0]),
        *(Column(part, FLOAT, "s", _WORK[part], _part_seconds(place)) for place, part in enumerate(PARTS)),
        Column("received", FLOAT, "s", "time: reply at the server", at("times.received")),
    ),
    always=False,
    optional=True,
)


@dataclass(frozen=True)
class MemoryRow:
    """Source of a row of memory.csv."""

    global_round: int
    process: "ProcessMemory"


def _mib_column(name: str, meaning: str, always: bool = False) -> Column:
    """A column in MiB, rounded to a tenth."""

    def value(row: MemoryRow) -> float | None:
        size: float | None = getattr(row.process, name)
        return round(size, 1) if isinstance(size, float) else size

    return Column(name, FLOAT, "MiB", meaning, value, always)


MEMORY = Table(
    "memory.csv",
    "A row per process per global round, measured at its end; nodes of a deployment measure themselves with "
    "their last reply.",
    (
        Column("global_round", INT, "", ROUND, at("global_round")),
        Column(
            "role",
            TEXT,
            "",
            "`server`, `worker` (Ray's actors, a deployment's ClientApps), `trainer` (of "
            "`train.processes`), `node` (programs of a SuperNode), `ray` (the rest of Ray) or `other`",
            at("process.role"),
        ),
        Column("pid", INT, "", "process id", at("process.pid")),
        _mib_column("rss_mib", "resident memory, including shared pages", always=True),
        later_column("fds", INT, "files", "open files", at("process.fds")),
        _mib_column("uss_mib", "unshared memory"),
        later_column("threads", INT, "threads", "threads of the process", at("process.threads")),
        _mib_column(
            "cuda_allocated_mib",
            "peak of tensor memory on its GPU since the previous round: allocated",
        ),
        _mib_column(
            "cuda_reserved_mib", "peak of tensor memory on its GPU since the previous round: reserved"
        ),
        later_column("machine", TEXT, "", USUAL["machine"], at("process.machine")),
    ),
    optional=True,
)


def timing_row(
    global_round: int, laps: Mapping[str, float], measurements: Mapping[str, Any]
) -> dict[str, Any]:
    """Row object of timing.csv: seconds per phase, and other measurements."""
    return {"global_round": global_round, **laps, "total": sum(laps.values()), **measurements}
