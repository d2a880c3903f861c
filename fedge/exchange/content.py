"""Common content of messages: names of records, states as arrays or tickets, numbers, sizes.

Numbers are sent as plain Python numbers, states as float arrays by name, or as tickets for files visible to
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
from fedge.process.client_app import as_numbers, measure_node, processes_from_numbers
from fedge.process.resources.memory import ProcessMemory
from fedge.states.averaging import State
from fedge.states.files import REPLY, FileState, StateFileError, Ticket, open_state
from fedge.states.records import (
    LentArray,
    copied_array,
    copy_with,
    entries,
    from_record,
    record_bytes,
    record_of,
    store_record_arrays,
)
from fedge.timing.calls import PROCESS, is_well_formed_call

ARRAYS = "arrays"  # the model; Flower's own strategies look for this name
CONFIG = "config"
OPTIONS = "options"  # entry of `CONFIG`: options of the run, if clients have others
METRICS = "metrics"
NUM_EXAMPLES = "num-examples"  # the averaging weight; Flower's own strategies look for this name
CONTROL = "control"  # SCAFFOLD's c − c_i, or c where c_i is zero or follows in a record of its own
OWN_CONTROL = "own-control"  # c_i, if both are in files, so their difference need not be written
MEMORY = "memory"  # a client's memory, in a message and its reply, if the server stores it
WORK = "work"  # among the metrics: the client's times, in the form of `fedge.timing.calls`
HELD = "held"  # among the metrics: memory of the node's processes, see `fedge.process.client_app`
LEAVING = {WORK: MACHINES, HELD: MACHINES}


def arrays_of(message: Message, name: str) -> State | None:
    """A state in a message (read-only arrays), or None if there is none of this name.

    Raises:
        StateFileError: the message has a ticket, and its file is missing or damaged.
    """
    record = entries(message.content).get(name)
    if isinstance(record, ArrayRecord):
        return from_record(record)
    ticket = ticket_of(message, name)
    return None if ticket is None else open_state(ticket)


def replied_state(reply: Message, folder: Path | None) -> State:
    """The model in a reply (read-only arrays), sent as arrays or in the file assigned to the reply.

    Args:
        reply: a client's reply.
        folder: folder for the models of this run's clients; None if models are not sent as files.

    Raises:
        StateFileError: the file is not the assigned one, or is missing or damaged.
    """
    record = reply.content[ARRAYS]
    if isinstance(record, ArrayRecord):
        return from_record(record)
    ticket = ticket_of(reply, ARRAYS)
    expected_path = folder and str(reply_path(folder, reply.metadata.reply_to_message_id))
    if ticket is None or expected_path is None or ticket.path != expected_path:
        raise StateFileError("the reply names a file that is not its own")
    return open_state(ticket)


def store_large_states(message: Message, keep: Callable[[State], State]) -> None:
    """Store the large states of a message by `keep`; its content is unchanged.

    Args:
        message: a reply from any sender.
        keep: see `fedge.states.state_files.SharedStates.keep`.
    """
    records = entries(message.content)
    stored = {
        name: store_record_arrays(record, keep)
        for name, record in records.items()
        if isinstance(record, ArrayRecord)
    }
    message.content = record_of(RecordDict, {**records, **stored})


def reply_path(folder: Path, message_id: str) -> Path:
    """The file for a client's model in its reply to a message."""
    return folder / f"{REPLY}{message_id}"


def detached_message(message: Message) -> Message:
    """A message for a client in this process: separate records, whose arrays are copied when read.

    A read-only view is not enough, because torch writes through it, and `message` shares content with the
    server and with messages to other clients.
    """
    records = {name: _copy_record(record, LentArray) for name, record in entries(message.content).items()}
    return with_records(message, records)


def with_records(message: Message, records: Mapping[str, Any], **ids: str | int) -> Message:
    """A message with other records, and the same metadata except `ids` (by Flower's attribute names).

    The records are not checked: a reply can hold anything, and its reader refuses faults.
    """
    return copy_with(
        message, _content=record_of(RecordDict, records), _metadata=copy_with(message.metadata, **ids)
    )


def detached_reply(reply: Message, question: Message) -> Message:
    """A client's reply for the server: separate records, whose arrays are copied at once.

    So later writes by the client have no effect, and no arrays are shared.

    Raises:
        Exception: the reply is not made of Flower's records.
    """
    if reply.has_error():
        return Message(Error(reply.error.code, reply.error.reason), reply_to=question)
    records = {
        str(name): _copy_record(record, copied_array) for name, record in entries(reply.content).items()
    }
    metadata = question.metadata
    return with_records(
        question, records, _message_id="", _reply_to_message_id=metadata.message_id,
        _src_node_id=metadata.dst_node_id, _dst_node_id=metadata.src_node_id,
    )  # fmt: skip


def _copy_record(
    record: Any, copy_array: Callable[[Array], Array]
) -> ArrayRecord | ConfigRecord | MetricRecord:
    """A separate record, with arrays made by `copy_array`."""
    if isinstance(record, ArrayRecord):
        return record_of(ArrayRecord, {name: copy_array(array) for name, array in entries(record).items()})
    values = entries(record).items()
    new = {name: list(value) if isinstance(value, list) else value for name, value in values}
    return record_of(ConfigRecord, new) if isinstance(record, ConfigRecord) else record_of(MetricRecord, new)


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

    Two control variates in files count as their difference, which would be sent without files. Memories are
    not counted, because clients keep them.
    """
    sizes: dict[int, int] = {}
    total = 0
    for message in messages:
        for name, record in message.content.items():
            if name in _NO_TRAFFIC:
                continue
            if id(record) not in sizes:
                sizes[id(record)] = _record_bytes(record)
            total += sizes[id(record)]
    return total


def _record_bytes(record: ArrayRecord | ConfigRecord | MetricRecord) -> int:
    """The bytes of the arrays of a record, or of the state behind a ticket."""
    if isinstance(record, ArrayRecord):
        return record_bytes(record)
    size = record.get("array_bytes", 0)
    assert isinstance(size, int)
    return size


def work_of(reply: Message) -> list[float] | None:
    """Times in a client's reply; None if missing or malformed."""
    metrics = entries(reply.content).get(METRICS)
    numbers = entries(metrics).get(WORK) if isinstance(metrics, MetricRecord) else None
    return numbers if isinstance(numbers, list) and is_well_formed_call(numbers) else None


def client_report(work: Callable[[], list[float]]) -> dict[str, list[float]]:
    """A client's report on its times, from `work`, which is called last, and on its node's memory."""
    processes = as_numbers(measure_node())
    return marked_values({**({HELD: processes} if processes else {}), WORK: work()}, LEAVING)


def node_processes(reply: Message) -> list[ProcessMemory]:
    """A reply's report on the processes of its node; empty if missing or malformed."""
    metrics = entries(reply.content).get(METRICS)
    numbers = entries(metrics).get(HELD) if isinstance(metrics, MetricRecord) else None
    if not isinstance(numbers, list):
        return []
    work = work_of(reply)
    return processes_from_numbers(numbers, work[PROCESS]) if work else []


def config_of(message: Message) -> ConfigRecord:
    """A message's config record, by name; a lookup by type would copy all config records."""
    record = entries(message.content)[CONFIG]
    assert isinstance(record, ConfigRecord)
    return record


def options_of(message: Message) -> dict[str, Any]:
    """The options of a message's run; empty if they come from Flower.

    A leaf server's SuperLink has a single run for its whole lifetime, through which all runs of the cloud
    pass, each with its own options.
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
