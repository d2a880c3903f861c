"""What server and clients say to each other: the only file that knows record names.

Three exchanges: *hello* (who are you), *train* (one leaf round), *evaluate* (any number of models, each under
the role that it plays, on validation and test windows, all in one call). Numbers travel as plain Python
numbers, states as float arrays by name, or as tickets for files that both sides see.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.differential_privacy_constants import KEY_CLIPPING_NORM, KEY_NORM_BIT

from fedge.metrics.scores import accuracy, macro_f1
from fedge.seeding import Purpose
from fedge.states.averaging import State
from fedge.states.files import REPLY, FileState, StateFileError, Ticket, open_state, write_state
from fedge.states.records import entries, fill, from_record, record_bytes, to_record
from fedge.timing.calls import is_work
from fedge.training.local import TrainResult

logger = logging.getLogger(__name__)

HELLO = "query.hello"
END_CAPTURE = "query.end_capture"
TRAIN = "train"
EVALUATE = "evaluate"

ARRAYS = "arrays"  # the model; Flower's own strategies look for this name
CONFIG = "config"
METRICS = "metrics"
NUM_EXAMPLES = "num-examples"  # the averaging weight; Flower's own strategies look for this name
CONTROL = "control"
ACCEPTED = "accepted"
SPLITS = "splits"
WORK = "work"  # among the metrics: what the client did with its time, as `fedge.timing.calls` has it
_EVALUATED = "model/"  # before the role of a model that is to be evaluated

# Roles of models that are evaluated: what a leaf's leaf rounds made, what the cloud offers it (see
# `fedge.cloud.offers` for several offers), its own line beside an offer on trial, its cluster's model, and
# the one fine-tuned for its clients.
OWN: Final = "own"
OFFERED: Final = "offered"
ASIDE: Final = "aside"
CLUSTER: Final = "cluster"
PERSONAL: Final = "personal"
# What trains: a leaf's model, its own line beside an offer on trial, the model of the cluster that is
# proposed for it, or the one fine-tuned for its clients.
Line = Literal["leaf", "aside", "trial", "personal"]
LEAF: Final = "leaf"
TRIAL: Final = "trial"
SplitName = Literal["val", "test"]


def arrays_of(message: Message, name: str) -> State | None:
    """Return one of a message's states (read-only arrays), or None if it has none of that name.

    Raises:
        StateFileError: the message has a ticket and its file is gone or damaged.
    """
    if name not in message.content:
        return None
    record = message.content[name]
    if isinstance(record, ArrayRecord):
        return from_record(record)
    ticket = _ticket(message, name)
    assert ticket is not None
    return open_state(ticket)


def send_tickets(message: Message, states: Mapping[str, State | None]) -> None:
    """Replace the arrays of those states that are kept in files by tickets."""
    tickets = {n: ConfigRecord(asdict(s.ticket)) for n, s in states.items() if isinstance(s, FileState)}
    message.content = RecordDict({**message.content, **tickets})


def payload_bytes(message: Message) -> int:
    """Return the bytes of all arrays in a message, those that it has tickets for included."""
    return sum(_record_bytes(record) for record in message.content.values())


def total_payload_bytes(messages: Iterable[Message]) -> int:
    """Return the bytes of all arrays in messages that may share their records."""
    known: dict[int, int] = {}
    total = 0
    for message in messages:
        for record in message.content.values():
            if id(record) not in known:
                known[id(record)] = _record_bytes(record)
            total += known[id(record)]
    return total


def _record_bytes(record: ArrayRecord | ConfigRecord | MetricRecord) -> int:
    """Return the bytes of the arrays of a record, or of the state that it is a ticket for."""
    if isinstance(record, ArrayRecord):
        return record_bytes(record)
    size = record.get("array_bytes", 0)
    assert isinstance(size, int)
    return size


@dataclass(frozen=True)
class RoundContext:
    """What a client must know beyond its own configuration.

    Attributes:
        seed: root of all random streams of the run.
        global_round: 1, 2, …
        leaf_round: counted through the whole run, 1, 2, …
        data_folder: the run's client data.
        log_path: the run's log file.
        server_pid: process of the server; a client in another process sends its log to `log_path`.
        timeout_s: seconds that the client may take.
        line: what trains. Whatever but the leaf's own model leaves no trace at the client, and the
            personal one draws from streams of its own.
    """

    seed: int
    global_round: int
    leaf_round: int
    data_folder: str
    log_path: str
    server_pid: int
    timeout_s: float
    line: Line = "leaf"

    def stream_of(self, who: int) -> tuple[int, ...]:
        """Return where, beside seed and purpose, the random streams of a client (or leaf) stand."""
        return (self.leaf_round, who, *((int(Purpose.PERSONAL),) if self.line == PERSONAL else ()))

    def to_record(self) -> ConfigRecord:
        """Return the round context as a Flower record."""
        return ConfigRecord(asdict(self))

    @staticmethod
    def of(message: Message) -> "RoundContext":
        """Read the round context of a train or evaluate message; other entries of its record are ignored."""
        record = _config(message)
        values: dict[str, Any] = {name: record[name] for name in RoundContext.__dataclass_fields__}
        return RoundContext(**values)


def tell_accepted(messages: Sequence[Message], accepted: Mapping[int, int]) -> None:
    """Tell each client which of its leaf rounds counted last (node id → leaf round, 0 = none yet).

    Messages that say the same share their content, as before.
    """
    contents: dict[int, RecordDict] = {}
    for message in messages:
        leaf_round = accepted[message.metadata.dst_node_id]
        if leaf_round not in contents:
            record = ConfigRecord({"leaf-round": leaf_round})
            contents[leaf_round] = RecordDict({**message.content, ACCEPTED: record})
        message.content = contents[leaf_round]


def accepted_of(message: Message) -> int:
    """Return the client's leaf round that counted last, 0 for none."""
    record = message.content[ACCEPTED]
    assert isinstance(record, ConfigRecord)
    return int(record["leaf-round"])  # type: ignore[arg-type]


def work_of(reply: Message) -> list[float] | None:
    """Return what a reply tells of the client's time; None if it tells nothing that could be read."""
    metrics = entries(reply.content).get(METRICS)
    numbers = entries(metrics).get(WORK) if isinstance(metrics, MetricRecord) else None
    return numbers if isinstance(numbers, list) and is_work(numbers) else None


def clip_norm_of(message: Message) -> float | None:
    """Return the clipping norm that a leaf's privacy wrapper asks for, or None."""
    value = _config(message).get(KEY_CLIPPING_NORM)
    return None if value is None else float(value)  # type: ignore[arg-type]


# --- hello --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hello:
    """A client's answer to the first call.

    Attributes:
        partition_id: the partition that it holds.
        num_partitions: of how many.
        shares: whether it sees the server's folder of state files.
    """

    partition_id: int
    num_partitions: int
    shares: bool = False


def hello_message(node_id: int, probe: str = "") -> Message:
    """Ask a node who it is, and whether it sees the file `probe`."""
    return Message(RecordDict({CONFIG: ConfigRecord({"probe": probe})}), node_id, HELLO)


def probe_of(message: Message) -> str:
    """Return the path of the file that a hello asks about; empty for none."""
    return str(_config(message)["probe"])


def hello_reply(hello: Hello, message: Message) -> Message:
    """Answer a hello."""
    return Message(RecordDict({CONFIG: ConfigRecord(asdict(hello))}), reply_to=message)


def read_hello(reply: Message) -> Hello:
    """Read a client's answer to hello."""
    record = _config(reply)
    partition_id, num_partitions = int(record["partition_id"]), int(record["num_partitions"])  # type: ignore[arg-type]
    return Hello(partition_id, num_partitions, bool(record["shares"]))


# --- profile ------------------------------------------------------------------------------------------


def end_capture_message(node_id: int) -> Message:
    """Ask the worker that gets it to end its capture of memory (`fedge.profile`)."""
    return Message(RecordDict(), node_id, END_CAPTURE)


def end_capture_reply(pid: int, message: Message) -> Message:
    """Answer it with the worker's process id."""
    return Message(RecordDict({CONFIG: ConfigRecord({"pid": pid})}), reply_to=message)


def read_end_capture(reply: Message) -> int:
    """Return the process id of a worker that has ended its capture."""
    return int(_config(reply)["pid"])  # type: ignore[arg-type]


# --- train --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainReply:
    """One client's leaf round.

    Attributes:
        state: the trained model.
        samples: training windows, the averaging weight.
        steps: optimiser steps taken (K); with the model they give SCAFFOLD's Δc_i.
        loss: mean training loss over windows and epochs.
        seconds: time the client took.
        uplink_bytes: size of the arrays in the reply.
        clipped: whether the client had to clip its update; None where it does not say.
    """

    state: State
    samples: int
    steps: int
    loss: float
    seconds: float
    uplink_bytes: int
    clipped: bool | None = None


def train_messages(node_ids: Sequence[int], model: ArrayRecord, round_context: RoundContext) -> list[Message]:
    """Ask clients to train a model as it is, without control variates; the messages share their content."""
    content = RecordDict({ARRAYS: model, CONFIG: round_context.to_record()})
    return [Message(content, node_id, TRAIN) for node_id in node_ids]


def train_reply(
    message: Message,
    result: TrainResult,
    samples: int,
    seconds: float,
    clipped: bool | None = None,
    work: Callable[[], list[float]] = list,
) -> Message:
    """Answer a train message; a model that came as a file goes back as one.

    Args:
        message: the question.
        result: of the training.
        samples: training windows.
        seconds: that the client took.
        clipped: whether it clipped its update, if it was asked to.
        work: tells, once all else is done, what it did with its time.
    """
    values = {
        NUM_EXAMPLES: samples,
        "steps": result.steps,
        "train-loss": result.loss,
        "train-seconds": seconds,
    }
    if clipped is not None:
        values[KEY_NORM_BIT] = int(clipped)
    arrays: ArrayRecord | ConfigRecord = to_record(result.state)
    came_as = _ticket(message, ARRAYS)
    if came_as:
        path = Path(came_as.path).with_name(f"{REPLY}{message.metadata.message_id}")
        try:
            arrays = ConfigRecord(asdict(write_state(path, result.state)))
        except StateFileError as error:
            logger.warning("%s; the model goes in the message", error)
    metrics = fill(MetricRecord(), {**values, WORK: work()})
    return Message(RecordDict({ARRAYS: arrays, METRICS: metrics}), reply_to=message)


def read_train(reply: Message) -> TrainReply:
    """Read a client's answer to a train message."""
    metrics = _metrics(reply)
    state = arrays_of(reply, ARRAYS)
    assert state is not None
    return TrainReply(
        state=state,
        samples=_whole(metrics, NUM_EXAMPLES),
        steps=_whole(metrics, "steps"),
        loss=_number(metrics, "train-loss"),
        seconds=_number(metrics, "train-seconds"),
        uplink_bytes=payload_bytes(reply),
        clipped=bool(metrics[KEY_NORM_BIT]) if KEY_NORM_BIT in metrics else None,
    )


# --- evaluate --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Evaluation:
    """One model on one split of one client.

    Attributes:
        confusion: (classes, classes) int64, rows true, columns predicted.
        loss: mean cross entropy per window.
        only_one_right: on validation windows, beside the own model: on how many windows only the own model
            is right, and on how many only this one.
    """

    confusion: np.ndarray
    loss: float
    only_one_right: tuple[int, int] | None = None


def pooled(evaluations: Sequence[Evaluation]) -> tuple[float, float, float] | None:
    """Return (accuracy, loss, macro F1) over the windows of all evaluations; None without any.

    Sample-weighted by construction: the confusion matrices are added.
    """
    if not evaluations:
        return None
    sizes = [int(j.confusion.sum()) for j in evaluations]
    confusion = np.sum([j.confusion for j in evaluations], axis=0)
    loss = sum(j.loss * n for j, n in zip(evaluations, sizes, strict=True)) / sum(sizes)
    return accuracy(confusion), loss, macro_f1(confusion)


EvaluateReply = dict[tuple[str, SplitName], Evaluation]  # by role and split


def evaluate_messages(
    node_ids: Sequence[int],
    models: Mapping[str, ArrayRecord],
    splits: Sequence[SplitName],
    round_context: RoundContext,
) -> list[Message]:
    """Ask clients to evaluate models on splits of their windows; the messages share their content.

    Args:
        node_ids: of the clients.
        models: role → model as a record, for example "own" and "offered".
        splits: on which.
        round context: of the round.
    """
    asked = ConfigRecord({SPLITS: [str(split) for split in splits]})
    content = RecordDict({CONFIG: round_context.to_record(), SPLITS: asked})
    content.update({evaluated_record(role): model for role, model in models.items()})
    return [Message(content, node_id, EVALUATE) for node_id in node_ids]


def evaluated_record(role: str) -> str:
    """Return the name of the record of a model that is to be evaluated."""
    return _EVALUATED + role


def models_to_evaluate(message: Message) -> Iterator[tuple[str, State]]:
    """Yield (role, model) one by one: large models are opened when their turn comes."""
    for name in message.content:
        if name.startswith(_EVALUATED):
            state = arrays_of(message, name)
            assert state is not None
            yield name.removeprefix(_EVALUATED), state


def splits_to_evaluate(message: Message) -> list[SplitName]:
    """Return the splits on which models are to be evaluated."""
    record = message.content[SPLITS]
    assert isinstance(record, ConfigRecord)
    return list(record[SPLITS])  # type: ignore[arg-type]


def evaluate_reply(
    message: Message, evaluations: EvaluateReply, work: Callable[[], list[float]] = list
) -> Message:
    """Answer a evaluate message; `work` tells, once all else is done, what the client did with its time."""
    values: dict[str, Any] = {}
    for (role, split), evaluation in evaluations.items():
        values[f"{role}/{split}/loss"] = float(evaluation.loss)
        values[f"{role}/{split}/confusion"] = evaluation.confusion.ravel().tolist()
        if evaluation.only_one_right is not None:
            values[f"{role}/{split}/only-one-right"] = list(evaluation.only_one_right)
    values[WORK] = work()
    return Message(RecordDict({METRICS: fill(MetricRecord(), values)}), reply_to=message)


def read_evaluate(reply: Message) -> EvaluateReply:
    """Read a client's answer to a evaluate message."""
    metrics = _metrics(reply)
    evaluations: EvaluateReply = {}
    for name in metrics:
        if name.endswith("/loss"):
            role, split, _ = name.rsplit("/", 2)
            cells = np.array(metrics[f"{role}/{split}/confusion"], dtype=np.int64)
            classes = round(len(cells) ** 0.5)
            evaluations[role, cast(SplitName, split)] = Evaluation(
                cells.reshape(classes, classes),
                _number(metrics, name),
                _pair(metrics, f"{role}/{split}/only-one-right"),
            )
    return evaluations


def _config(message: Message) -> ConfigRecord:
    """Return a message's config record. Looking it up by kind would copy all records of that kind."""
    record = message.content[CONFIG]
    assert isinstance(record, ConfigRecord)
    return record


def _ticket(message: Message, name: str) -> Ticket | None:
    """Return the ticket that a message has for a state, or None."""
    record = message.content.get(name)
    if not isinstance(record, ConfigRecord):
        return None
    values: dict[str, Any] = dict(record)
    return Ticket(**values)


def _metrics(message: Message) -> MetricRecord:
    """Return a message's metric record."""
    record = message.content[METRICS]
    assert isinstance(record, MetricRecord)
    return record


def _number(metrics: MetricRecord, name: str) -> float:
    """Return a single number of a metric record."""
    value = metrics[name]
    assert not isinstance(value, list)
    return value


def _whole(metrics: MetricRecord, name: str) -> int:
    """Return a whole number of a metric record."""
    value = _number(metrics, name)
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, but is {value!r}")
    return value


def _pair(metrics: MetricRecord, name: str) -> tuple[int, int] | None:
    """Return two whole numbers of a metric record, or None if it has none of that name."""
    if name not in metrics:
        return None
    pair = metrics[name]
    if not isinstance(pair, list) or [type(value) for value in pair] != [int, int]:
        raise TypeError(f"{name} must be two whole numbers, but is {pair!r}")
    return int(pair[0]), int(pair[1])
