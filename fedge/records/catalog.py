"""All tables of a run folder, column by column: the one place in which a column is named.

To add a column, add it here, at the end of its table (so that older tables keep their order), with
``always=False``; `fedge tables` prints docs/tables.md anew. Shares are 0..1. Loads neither torch nor Polars.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedge.metrics.agreement import Agreement, agreement
from fedge.metrics.scores import Spread
from fedge.records.columns import FLOAT, INT, TEXT, Column, Kind, Table, at, described
from fedge.records.device_tables import DEVICE_TABLES
from fedge.timing.calls import PARTS
from fedge.timing.laps import PHASES
from fedge.timing.timeline import LEGS, PERCENTILES, TIMELINE_PARTS

if TYPE_CHECKING:
    from fedge.process.memory import ProcessMemory
    from fedge.rounds.results import ClientResult, LeafResult, RoundResult
    from fedge.timing.timeline import MessageTimes, Timeline

_ROUND = "global round, from 1"


# --- a row per global round -----------------------------------------------------------------------------


class GlobalRow:
    """What a row of global_rounds.csv is made from; every spread is computed once."""

    def __init__(self, result: "RoundResult", seconds: float) -> None:
        """Take in a round that took `seconds`."""
        self.result = result
        self.seconds = seconds
        self._spreads: dict[tuple[str, bool], Spread | None] = {}

    def spread(self, name: str, unseen: bool) -> Spread | None:
        """Return a client's number over the known clients, or over the unseen ones; None without any."""
        key = (name, unseen)
        if key not in self._spreads:
            self._spreads[key] = self.result.over_clients(name, unseen)
        return self._spreads[key]

    @cached_property
    def agreement(self) -> Agreement | None:
        """How far the clusters are the planted groups; None without any."""
        truth = self.result.truth
        return None if truth is None else agreement(truth, self.result.labels)

    def decided(self, decision: str) -> int:
        """Return how many gates decided so."""
        return sum(leaf.gate.decision == decision for leaf in self.result.leaves)


_STATISTICS = {
    "mean": "mean", "std": "population standard deviation", "worst": "smallest", "p10": "10th percentile",
    "jain": "Jain's fairness index (Σx)² / (n Σx²)",
}  # fmt: skip


def _over(
    column: str,
    statistic: str,
    number: str,
    what: str,
    unit: str = "share",
    unseen: bool = False,
    always: bool = True,
) -> Column:
    """Return the column of a statistic over clients, each of which counts the same."""

    def value(row: GlobalRow) -> float | None:
        found = row.spread(number, unseen)
        return None if found is None else float(getattr(found, statistic))

    clients = "unseen clients" if unseen else "known clients"
    meaning = f"{_STATISTICS[statistic]} over {clients} of {what}"
    return Column(f"{column}_{statistic}", FLOAT, "" if statistic == "jain" else unit, meaning, value, always)


_ACCURACY = "test accuracy of the served model"
_F1 = "macro-F1 of the served model on test windows"
_TEST_LOSS = "mean test loss of the served model"
_SHARED = "test accuracy of the model that was fine-tuned, before it was"
_TUNED = "test accuracy of the fine-tuned model, whether it is served or not"

GLOBAL = Table(
    "metrics/global_rounds.csv",
    "A row per global round. Known clients are those that train; unseen clients hold users out of training.",
    (
        Column("global_round", INT, "", _ROUND, at("result.global_round")),
        _over("test_accuracy", "mean", "test_accuracy", _ACCURACY),
        _over("test_accuracy", "std", "test_accuracy", _ACCURACY),
        _over("test_accuracy", "worst", "test_accuracy", _ACCURACY),
        _over("test_loss", "mean", "test_loss", _TEST_LOSS, "nat"),
        _over("macro_f1", "mean", "macro_f1", _F1),
        Column(
            "train_loss_mean",
            FLOAT,
            "nat",
            "training loss, weighted by training windows",
            at("result.train_loss"),
        ),
        Column("num_clusters", INT, "", "clusters after the round", lambda r: len(set(r.result.labels))),
        Column(
            "cluster_labels",
            TEXT,
            "",
            "cluster of each leaf, separated by spaces",
            lambda r: " ".join(map(str, r.result.labels)),
        ),
        Column(
            "gate_accepted", INT, "leaves", "took what they were offered", lambda r: r.decided("accepted")
        ),
        Column("gate_rejected", INT, "leaves", "kept their own model", lambda r: r.decided("rejected")),
        Column("clients_ok", INT, "clients", "whose every exchange succeeded", at("result.clients_ok")),
        Column(
            "clients_failed", INT, "clients", "that failed at least once", lambda r: len(r.result.failures)
        ),
        Column("uplink_bytes", INT, "bytes", "arrays from clients to leaves", at("result.uplink_bytes")),
        Column("downlink_bytes", INT, "bytes", "arrays from leaves to clients", at("result.downlink_bytes")),
        Column("seconds", FLOAT, "s", "wall time", at("seconds")),
        Column(
            "failures",
            TEXT,
            "clients",
            'kinds of failures and how many, as "exception 1; rejected 2"',
            lambda r: "; ".join(f"{kind} {count}" for kind, count in r.result.failure_kinds.items()),
            always=False,
        ),
        _over("test_accuracy", "p10", "test_accuracy", _ACCURACY),
        _over("test_accuracy", "jain", "test_accuracy", _ACCURACY),
        *(
            _over("unseen_accuracy", statistic, "test_accuracy", _ACCURACY, unseen=True)
            for statistic in ("mean", "std", "worst", "p10", "jain")
        ),
        _over("unseen_loss", "mean", "test_loss", _TEST_LOSS, "nat", unseen=True),
        _over("unseen_macro_f1", "mean", "macro_f1", _F1, unseen=True),
        Column(
            "cloud_uplink_bytes",
            INT,
            "bytes",
            "arrays from leaves to the cloud",
            at("result.cloud_uplink_bytes"),
        ),
        Column(
            "cloud_downlink_bytes",
            INT,
            "bytes",
            "arrays from the cloud to leaves",
            at("result.cloud_downlink_bytes"),
        ),
        Column(
            "churn",
            FLOAT,
            "share",
            "pairs of leaves that a cloud step joined or parted; empty for the first and without one",
            at("result.churn"),
        ),
        *(
            Column(
                name,
                FLOAT,
                "",
                f"{words} of clusters and planted groups; empty without a scenario",
                at(f"agreement.{name}"),
            )
            for name, words in (
                ("ari", "adjusted Rand index"),
                ("nmi", "normalised mutual information"),
                ("homogeneity", "homogeneity"),
                ("completeness", "completeness"),
            )
        ),
        *(
            _over(f"{which}_accuracy", statistic, f"{which}_accuracy", what, always=False)
            for which, what in (("shared", _SHARED), ("tuned", _TUNED))
            for statistic in ("mean", "worst")
        ),
        Column(
            "epsilon_spent",
            FLOAT,
            "",
            "ε that clients have spent so far at privacy.delta; empty without privacy or dp-accounting",
            at("result.epsilon_spent"),
            always=False,
        ),
    ),
)


# --- a row per leaf, per client -------------------------------------------------------------------------


@dataclass(frozen=True)
class LeafRow:
    """What a row of leaf_rounds.csv is made from."""

    global_round: int
    leaf: "LeafResult"


def _later(name: str, kind: Kind, unit: str, meaning: str, value: Callable[[Any], Any]) -> Column:
    """Return a column that earlier versions did not write."""
    return Column(name, kind, unit, meaning, value, always=False)


LEAF = Table(
    "metrics/leaf_rounds.csv",
    "A row per leaf per global round; test scores are pooled over the windows of its clients.",
    (
        Column("global_round", INT, "", _ROUND, at("global_round")),
        Column("leaf", INT, "", "number of the leaf, from 0", at("leaf.leaf")),
        Column("cluster", INT, "", "its cluster after the round", at("leaf.cluster")),
        Column(
            "val_accuracy_own",
            FLOAT,
            "share",
            "validation accuracy of its own model, pooled over its clients",
            at("leaf.gate.accuracy_own"),
        ),
        Column(
            "val_accuracy_offered",
            FLOAT,
            "share",
            "the same of the offered model; empty without an offer",
            at("leaf.gate.accuracy_offered"),
        ),
        Column(
            "gate",
            TEXT,
            "",
            "`accepted`, `rejected`, or `off` where it did not decide",
            at("leaf.gate.decision"),
        ),
        Column("test_accuracy", FLOAT, "share", f"{_ACCURACY}, known clients", at("leaf.test_accuracy")),
        Column("test_loss", FLOAT, "nat", f"{_TEST_LOSS}, known clients", at("leaf.test_loss")),
        Column("macro_f1", FLOAT, "share", f"{_F1}, known clients", at("leaf.macro_f1")),
        Column("num_clients", INT, "clients", "known clients", at("leaf.num_clients")),
        Column("train_samples", INT, "windows", "training windows of its clients", at("leaf.train_samples")),
        _later(
            "kept_model",
            INT,
            "leaf rounds",
            "in which too few replies counted, so it kept its model",
            at("leaf.kept_model"),
        ),
        Column("unseen_accuracy", FLOAT, "share", f"{_ACCURACY}, unseen clients", at("leaf.unseen_accuracy")),
        Column("unseen_loss", FLOAT, "nat", f"{_TEST_LOSS}, unseen clients", at("leaf.unseen_loss")),
        Column("unseen_macro_f1", FLOAT, "share", f"{_F1}, unseen clients", at("leaf.unseen_macro_f1")),
        Column("unseen_clients", INT, "clients", "unseen clients", at("leaf.unseen_clients")),
        _later("serves", TEXT, "", "role of the model that its known clients are served", at("leaf.serves")),
        _later(
            "blend",
            FLOAT,
            "share",
            "of the cluster's model in the offer, the rest is the mean of all leaves",
            at("leaf.gate.blend"),
        ),
        _later(
            "val_windows",
            INT,
            "windows",
            "validation windows on which both models were compared",
            at("leaf.gate.pair.windows"),
        ),
        _later(
            "val_only_own",
            INT,
            "windows",
            "of these only its own model has right",
            at("leaf.gate.pair.only_own"),
        ),
        _later(
            "val_only_offered",
            INT,
            "windows",
            "of these only the offered model has right",
            at("leaf.gate.pair.only_offered"),
        ),
        _later(
            "val_standard_error",
            FLOAT,
            "share",
            "standard error of offered − own accuracy",
            at("leaf.gate.pair.standard_error"),
        ),
        _later(
            "val_p_value",
            FLOAT,
            "",
            "of McNemar's one-sided test that own is no better",
            at("leaf.gate.pair.p_value"),
        ),
        _later(
            "val_accuracy_before",
            FLOAT,
            "share",
            "validation accuracy before fine-tuning",
            at("leaf.personal.accuracy_before"),
        ),
        _later(
            "val_accuracy_personal",
            FLOAT,
            "share",
            "validation accuracy after it",
            at("leaf.personal.accuracy"),
        ),
        _later("group", INT, "", "planted group in this round; empty without a scenario", at("leaf.group")),
    ),
)


@dataclass(frozen=True)
class ClientRow:
    """What a row of clients.csv is made from."""

    global_round: int
    client: "ClientResult"


CLIENTS = Table(
    "metrics/clients.csv",
    "A row per client per global round, unseen clients among them; a cell is empty where a client did not "
    "take part or failed.",
    (
        Column("global_round", INT, "", _ROUND, at("global_round")),
        Column("client", INT, "", "its partition id, from 0", at("client.client")),
        Column("leaf", INT, "", "number of its leaf", at("client.leaf")),
        Column(
            "train_samples",
            INT,
            "windows",
            "that it trains on; 0 for an unseen client",
            at("client.train_samples"),
        ),
        Column("train_loss", FLOAT, "nat", "mean of its last leaf round's training", at("client.train_loss")),
        Column("test_samples", INT, "windows", "that it was tested on", at("client.test_samples")),
        Column("test_accuracy", FLOAT, "share", _ACCURACY, at("client.test_accuracy")),
        Column("macro_f1", FLOAT, "share", f"{_F1}, over the classes that occur", at("client.macro_f1")),
        Column("train_seconds", FLOAT, "s", "of its training, all leaf rounds", at("client.train_seconds")),
        Column("test_loss", FLOAT, "nat", _TEST_LOSS, at("client.test_loss")),
        Column(
            "unseen_client",
            INT,
            "",
            "1: holds users out of training; 0: trains",
            lambda r: int(r.client.unseen_client),
        ),
        _later(
            "shared_accuracy",
            FLOAT,
            "share",
            f"{_SHARED}; empty in other rounds",
            at("client.shared_accuracy"),
        ),
        _later("tuned_accuracy", FLOAT, "share", _TUNED, at("client.tuned_accuracy")),
    ),
)


# --- times ----------------------------------------------------------------------------------------------


def _second(name: str, meaning: str, always: bool = False) -> Column:
    """Return a column of timing.csv, whose row object is a mapping."""
    return Column(name, FLOAT, "s", meaning, lambda row: row.get(name), always)


_PHASE = {
    "configure": "choosing clients and writing their messages",
    "push": "handing messages to the engine",
    "wait": "until the last reply was there",
    "check": "checking replies",
    "aggregate": "averaging at the leaves",
    "cluster": "the cloud step",
    "gate": "the gates' arithmetic",
    "report": "printing, remarks, tracker",
    "record": "writing the tables",
    "checkpoint": "writing the checkpoint",
    "other": "everything else",
}
assert _PHASE.keys() == set(PHASES)
_WORK = {
    "idle": "nothing to do, or the message on its way",
    "deserialise": "reading states",
    "load": "windows, network, state",
    "train": "training",
    "evaluate": "evaluating",
    "serialise": "making the reply",
}
assert tuple(_WORK) == TIMELINE_PARTS
_LEG = {
    "queue": "from being pushed until its worker was free",
    "dispatch": "from then until the client's code began",
    "run": "in the client's code",
    "return": "until the server had the reply",
}
assert tuple(_LEG) == LEGS

TIMING = Table(
    "timing.csv",
    "A row per global round: phases that add up to `total`, what the workers did during `wait`, and how long "
    "messages took. `record`, `report` and `checkpoint` are of the round before.",
    (
        Column("global_round", INT, "", _ROUND, lambda row: row["global_round"]),
        *(
            _second(phase, _PHASE[phase])
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
        _second("total", "wall time", always=True),
        _second("report", _PHASE["report"]),
        _later(
            "workers", INT, "workers", "threads in process, processes on Ray", lambda row: row.get("workers")
        ),
        *(_second(f"timeline_{part}", f"summed over workers: {_WORK[part]}") for part in TIMELINE_PARTS),
        *(
            _second(
                f"{leg}_{name}",
                f"{'largest' if name == 'max' else name[1:] + 'th percentile'} of messages: {_LEG[leg]}",
            )
            for leg in LEGS
            for name in PERCENTILES
        ),
    ),
    optional=True,
)


@dataclass(frozen=True)
class WorkerRow:
    """What a row of workers.csv is made from; nanoseconds are enough."""

    global_round: int
    timeline: "Timeline"


def _worker_seconds(part: int) -> Callable[[WorkerRow], float]:
    """Return what gives the seconds of a part of a worker's timeline."""
    return lambda row: round(row.timeline.seconds[part], 9)


WORKERS = Table(
    "timing/workers.csv",
    "A row per worker per global round; seconds add up to `wait`.",
    (
        Column("global_round", INT, "", _ROUND, at("global_round")),
        Column("worker", INT, "", "its number in the run, from 0", at("timeline.worker")),
        Column("id", INT, "", "of its process on Ray, of its thread in process", at("timeline.id")),
        Column("messages", INT, "messages", "that it answered", at("timeline.messages")),
        *(
            Column(part, FLOAT, "s", _WORK[part], _worker_seconds(number))
            for number, part in enumerate(TIMELINE_PARTS)
        ),
        Column(
            "idle_at_end",
            FLOAT,
            "s",
            "part of `idle`: after its last message, while others were at work",
            lambda row: round(row.timeline.idle_at_end, 9),
        ),
    ),
    always=False,
    optional=True,
)


@dataclass(frozen=True)
class MessageRows:
    """What a file of messages is made from; each column's value is that of all M messages, (M,)."""

    global_round: int
    times: "MessageTimes"

    @property
    def rounds(self) -> np.ndarray:
        """(M,) their global round."""
        return np.full(len(self.times.client), self.global_round)


def _part(place: int) -> Callable[[MessageRows], np.ndarray]:
    """Return what gives the (M,) seconds of a part."""
    return lambda rows: np.asarray(rows.times.edges[:, place + 1] - rows.times.edges[:, place])


MESSAGES = Table(
    "timing/messages-*.csv",
    "A row per message of one global round: of the first, the slowest and the newest one. Times are counted "
    "from the beginning of the round.",
    (
        Column("global_round", INT, "", _ROUND, at("rounds")),
        Column("exchange", INT, "", "number of the exchange in the round, from 1", at("times.exchange")),
        Column("client", INT, "", "its partition id", at("times.client")),
        Column("worker", INT, "", "number of the worker that took it", at("times.worker")),
        Column("pushed", FLOAT, "s", "when the server handed it over", at("times.pushed")),
        Column("began", FLOAT, "s", "when the client's code began", lambda rows: rows.times.edges[:, 0]),
        *(
            Column(part, FLOAT, "s", f"how long: {_WORK[part]}", _part(place))
            for place, part in enumerate(PARTS)
        ),
        Column("received", FLOAT, "s", "when the server had the reply", at("times.received")),
    ),
    always=False,
    optional=True,
)


# --- memory, data ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemoryRow:
    """What a row of memory.csv is made from."""

    global_round: int
    process: "ProcessMemory"


def _mib(name: str, meaning: str, always: bool = False) -> Column:
    """Return a column of MiB; a tenth is enough."""

    def value(row: MemoryRow) -> float | None:
        found: float | None = getattr(row.process, name)
        return round(found, 1) if isinstance(found, float) else found

    return Column(name, FLOAT, "MiB", meaning, value, always)


MEMORY = Table(
    "memory.csv",
    "A row per process per global round, measured when the round has ended.",
    (
        Column("global_round", INT, "", _ROUND, at("global_round")),
        Column(
            "role",
            TEXT,
            "",
            "`server`, `worker` (Ray's actors), `trainer` (of `train.processes`), or `ray` (the rest of Ray)",
            at("process.role"),
        ),
        Column("pid", INT, "", "process id", at("process.pid")),
        _mib("rss_mib", "resident memory; pages that processes share count in each", always=True),
        _later("fds", INT, "files", "open file descriptors", at("process.fds")),
        _mib("uss_mib", "what no other process has; empty in rounds in which it was not measured"),
        _later("threads", INT, "threads", "of the process", at("process.threads")),
        _mib(
            "cuda_allocated_mib",
            "most that tensors took on its GPU since the round before; empty where it used none",
        ),
        _mib("cuda_reserved_mib", "most that PyTorch held there for them"),
    ),
    optional=True,
)

PARTITION = Table(
    "partition.csv",
    "A row per client, split, user, device and class that has windows; written once, before the first round.",
    (
        Column("client", INT, "", "its partition id", at("client")),
        Column("leaf", INT, "", "number of its leaf", at("leaf")),
        Column("split", TEXT, "", "`train`, `val` or `test`", at("split")),
        Column("user", TEXT, "", "who was recorded", at("user")),
        Column("device", TEXT, "", "with what; empty where that is not known", at("device")),
        Column(
            "class",
            TEXT,
            "",
            "that the client learns and is tested on, under a scenario that renames classes, too",
            at("label"),
        ),
        Column("windows", INT, "windows", "how many", at("windows")),
        Column("unseen_client", INT, "", "1: holds users out of training; 0: trains", at("unseen_client")),
        Column(
            "group", INT, "", "planted group of its leaf in round 1; empty without a scenario", at("group")
        ),
    ),
)

ROUND_TABLES = (GLOBAL, LEAF, CLIENTS, TIMING, WORKERS, MEMORY)  # those that grow with every global round
TABLES = (GLOBAL, LEAF, CLIENTS, PARTITION, TIMING, WORKERS, MESSAGES, MEMORY, *DEVICE_TABLES)


def timing_row(global_round: int, laps: Mapping[str, float], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row object of timing.csv: seconds per phase, and what else was measured."""
    return {"global_round": global_round, **laps, "total": sum(laps.values()), **more}


_PAGE = """# The tables of a run

<!-- printed by `fedge tables`, from fedge/records/catalog.py -->

What `fedge.load_run` returns as Polars frames and any spreadsheet opens. A cell is empty where nothing was
measured. Shares are 0..1, losses are cross-entropies in nats. Numbers have the fewest digits that give the
same float back.

"""


def page() -> str:
    """Return docs/tables.md."""
    return _PAGE + described(TABLES)
