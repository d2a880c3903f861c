"""Common content of all messages: names of records, states as arrays or tickets, plain numbers, sizes.

Numbers travel as plain Python numbers, states as float arrays by name, or as tickets for files visible to
both sides.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict

from fedge.config.registers.option import shown
from fedge.privacy.marks import MACHINES, marked_values
from fedge.process.client_app import as_numbers, measure_node, of_numbers
from fedge.process.resources.memory import ProcessMemory
from fedge.states.averaging import State
from fedge.states.files import REPLY, FileState, StateFileError, Ticket, open_state
from fedge.states.records import (
    LentArray,
    copied_array,
    entries,
    from_record,
    record_bytes,
    record_of,
    set_aside,
    twin,
)
from fedge.timing.calls import PROCESS, is_work

ARRAYS = "arrays"  # the model; Flower's own strategies look for this name
CONFIG = "config"
OPTIONS = "options"  # entry of `CONFIG`: those of the run, where clients have others
METRICS = "metrics"
NUM_EXAMPLES = "num-examples"  # the averaging weight; Flower's own strategies look for this name
CONTROL = "control"  # SCAFFOLD's c − c_i, or c where c_i is zero or follows in a record of its own
OWN_CONTROL = "own-control"  # c_i, where both go in files: nobody then writes their difference
MEMORY = "memory"  # of a client, in a question and its reply, where both go through the server
WORK = "work"  # among the metrics: the client's times, as `fedge.timing.calls` has them
HELD = "held"  # among the metrics: memory of the node's processes, as in `fedge.process.client_app`
LEAVING = {WORK: MACHINES, HELD: MACHINES}


def arrays_of(message: Message, name: str) -> State | None:
    """One of a message's states (read-only arrays), or None without this name.

    Raises:
        StateFileError: the message has a ticket and its file is gone or damaged.
    """
    record = entries(message.content).get(name)
    if isinstance(record, ArrayRecord):
        return from_record(record)
    ticket = ticket_of(message, name)
    return None if ticket is None else open_state(ticket)


def replied_state(reply: Message, folder: Path | None) -> State:
    """The model in a reply (read-only arrays), as arrays or in its one assigned file.

    Args:
        reply: of a client.
        folder: where clients of this run put their models as files; None: nowhere.

    Raises:
        StateFileError: another file, or a missing or damaged one.
    """
    record = reply.content[ARRAYS]
    if isinstance(record, ArrayRecord):
        return from_record(record)
    ticket = ticket_of(reply, ARRAYS)
    own = folder and str(reply_path(folder, reply.metadata.reply_to_message_id))
    if ticket is None or own is None or ticket.path != own:
        raise StateFileError("the reply names a file that is not its own")
    return open_state(ticket)


def put_aside(message: Message, keep: Callable[[State], State]) -> None:
    """Let the large states of a message lie where `keep` puts them; what it says stays the same.

    Args:
        message: of any sender, with an answer.
        keep: as `fedge.states.shared.SharedStates.keep`.
    """
    records = entries(message.content)
    found = {
        name: set_aside(record, keep) for name, record in records.items() if isinstance(record, ArrayRecord)
    }
    message.content = record_of(RecordDict, {**records, **found})


def reply_path(folder: Path, message_id: str) -> Path:
    """The file in which a client puts its answer to a message."""
    return folder / f"{REPLY}{message_id}"


def handed_out(message: Message) -> Message:
    """A message for a client in this process: records of its own, arrays copied when looked at.

    A read-only view does not do: torch writes through it. Messages to other clients, and the server, share
    content of `message`.
    """
    records = {name: _own_record(record, LentArray) for name, record in entries(message.content).items()}
    return with_records(message, records)


def with_records(message: Message, records: Mapping[str, Any], **ids: str | int) -> Message:
    """A message with other records, its metadata the same but for `ids`, by Flower's names of attributes.

    The records are not looked at: a reply can hold anything, and its reader refuses faults.
    """
    return twin(message, _content=record_of(RecordDict, records), _metadata=twin(message.metadata, **ids))


def received(reply: Message, question: Message) -> Message:
    """A client's reply for the server: records of its own, arrays copied now.

    Without the client's later writes, and without shared arrays.

    Raises:
        Exception: the reply is not made of Flower's records.
    """
    if reply.has_error():
        return Message(Error(reply.error.code, reply.error.reason), reply_to=question)
    records = {
        str(name): _own_record(record, copied_array) for name, record in entries(reply.content).items()
    }
    asked = question.metadata
    return with_records(
        question, records, _message_id="", _reply_to_message_id=asked.message_id,
        _src_node_id=asked.dst_node_id, _dst_node_id=asked.src_node_id,
    )  # fmt: skip


def _own_record(record: Any, array: Callable[[Array], Array]) -> ArrayRecord | ConfigRecord | MetricRecord:
    """A separate record, with arrays made by `array`."""
    if isinstance(record, ArrayRecord):
        return record_of(ArrayRecord, {name: array(held) for name, held in entries(record).items()})
    values = entries(record).items()
    own = {name: list(value) if isinstance(value, list) else value for name, value in values}
    return record_of(ConfigRecord, own) if isinstance(record, ConfigRecord) else record_of(MetricRecord, own)


def send_tickets(message: Message, states: Mapping[str, State | None]) -> None:
    """Replace the arrays of states kept in files by tickets."""
    tickets = {
        name: ConfigRecord(asdict(state.ticket))
        for name, state in states.items()
        if isinstance(state, FileState) and state.ticket.checksum  # `map_state` gives none
    }
    message.content = record_of(RecordDict, {**entries(message.content), **tickets})


_NO_TRAFFIC = (OWN_CONTROL, MEMORY)


def total_payload_bytes(messages: Iterable[Message]) -> int:
    """The bytes of all arrays in messages with possibly shared records.

    Two control variates in files count as their difference, which is sent where files are not. Memories
    count for nothing: clients keep them.
    """
    known: dict[int, int] = {}
    total = 0
    for message in messages:
        for name, record in message.content.items():
            if name in _NO_TRAFFIC:
                continue
            if id(record) not in known:
                known[id(record)] = _record_bytes(record)
            total += known[id(record)]
    return total


def _record_bytes(record: ArrayRecord | ConfigRecord | MetricRecord) -> int:
    """The bytes of the arrays of a record, or of the state behind a ticket."""
    if isinstance(record, ArrayRecord):
        return record_bytes(record)
    size = record.get("array_bytes", 0)
    assert isinstance(size, int)
    return size


def work_of(reply: Message) -> list[float] | None:
    """Times in a client's reply; None where none can be read."""
    metrics = entries(reply.content).get(METRICS)
    numbers = entries(metrics).get(WORK) if isinstance(metrics, MetricRecord) else None
    return numbers if isinstance(numbers, list) and is_work(numbers) else None


def about_itself(work: Callable[[], list[float]]) -> dict[str, list[float]]:
    """A client's own account of its time, which `work` says last of all, and of its node."""
    held = as_numbers(measure_node())
    return marked_values({**({HELD: held} if held else {}), WORK: work()}, LEAVING)


def held_of(reply: Message) -> list[ProcessMemory]:
    """A reply's account of its node's processes; empty if missing or malformed."""
    metrics = entries(reply.content).get(METRICS)
    numbers = entries(metrics).get(HELD) if isinstance(metrics, MetricRecord) else None
    if not isinstance(numbers, list):
        return []
    work = work_of(reply)
    return of_numbers(numbers, work[PROCESS]) if work else []


def config_of(message: Message) -> ConfigRecord:
    """A message's config record. Looking it up by kind would copy all records of that kind."""
    record = entries(message.content)[CONFIG]
    assert isinstance(record, ConfigRecord)
    return record


def options_of(message: Message) -> dict[str, Any]:
    """The options of a message's run; empty where Flower says them.

    A leaf server's SuperLink knows one run, which lasts as long as the leaf server does: those of the cloud,
    each with options of its own, pass through it.
    """
    text = entries(config_of(message)).get(OPTIONS, "")
    return dict(json.loads(str(text))) if text else {}


def ticket_of(message: Message, name: str) -> Ticket | None:
    """A message's ticket for a state, or None."""
    record = entries(message.content).get(name)
    return Ticket(**entries(record)) if isinstance(record, ConfigRecord) else None


Metrics = Mapping[str, Any]
"""Entries of a metric record, as a message has them."""


def metrics_of(message: Message) -> Metrics:
    """Entries of a message's metric record."""
    record = entries(message.content)[METRICS]
    if not isinstance(record, MetricRecord):
        raise TypeError(f"{METRICS} must be numbers, but is {type(record).__name__}")
    return entries(record)


def single_metric(metrics: Metrics, name: str) -> float:
    """A single number among metrics.

    Raises:
        TypeError: a list, or not a number.
        OverflowError: no float is as large.
    """
    value = metrics[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, but is {shown(value)}")
    return float(value)


def whole_metric(metrics: Metrics, name: str) -> int:
    """A whole number among metrics."""
    value = metrics[name]
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, but is {shown(value)}")
    return int(value)


def metric_list(metrics: Metrics, name: str) -> np.ndarray | None:
    """A list of numbers among metrics, float64 (numbers,), or None if there is none."""
    if name not in metrics:
        return None
    values = metrics[name]
    if not isinstance(values, list) or not set(map(type, values)) <= {int, float}:
        raise TypeError(f"{name} must be a list of numbers, but is {shown(values)}")
    return np.array(values, dtype=np.float64)
