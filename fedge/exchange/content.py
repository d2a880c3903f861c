"""What all messages have in common: names of records, states as arrays or as tickets, plain numbers, sizes.

Numbers travel as plain Python numbers, states as float arrays by name, or as tickets for files that both
sides see.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedge.states.averaging import State
from fedge.states.files import FileState, Ticket, open_state
from fedge.states.records import entries, from_record, record_bytes
from fedge.timing.calls import is_work

ARRAYS = "arrays"  # the model; Flower's own strategies look for this name
CONFIG = "config"
METRICS = "metrics"
NUM_EXAMPLES = "num-examples"  # the averaging weight; Flower's own strategies look for this name
CONTROL = "control"
WORK = "work"  # among the metrics: what the client did with its time, as `fedge.timing.calls` has it


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
    ticket = ticket_of(message, name)
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


def work_of(reply: Message) -> list[float] | None:
    """Return what a reply tells of the client's time; None if it tells nothing that could be read."""
    metrics = entries(reply.content).get(METRICS)
    numbers = entries(metrics).get(WORK) if isinstance(metrics, MetricRecord) else None
    return numbers if isinstance(numbers, list) and is_work(numbers) else None


def config_of(message: Message) -> ConfigRecord:
    """Return a message's config record. Looking it up by kind would copy all records of that kind."""
    record = message.content[CONFIG]
    assert isinstance(record, ConfigRecord)
    return record


def ticket_of(message: Message, name: str) -> Ticket | None:
    """Return the ticket that a message has for a state, or None."""
    record = message.content.get(name)
    if not isinstance(record, ConfigRecord):
        return None
    values: dict[str, Any] = dict(record)
    return Ticket(**values)


def metrics_of(message: Message) -> MetricRecord:
    """Return a message's metric record."""
    record = message.content[METRICS]
    assert isinstance(record, MetricRecord)
    return record


def number(metrics: MetricRecord, name: str) -> float:
    """Return a single number of a metric record."""
    value = metrics[name]
    assert not isinstance(value, list)
    return value


def whole(metrics: MetricRecord, name: str) -> int:
    """Return a whole number of a metric record."""
    value = number(metrics, name)
    if type(value) is not int:
        raise TypeError(f"{name} must be a whole number, but is {value!r}")
    return value


def pair_of(metrics: MetricRecord, name: str) -> tuple[int, int] | None:
    """Return two whole numbers of a metric record, or None if it has none of that name."""
    if name not in metrics:
        return None
    pair = metrics[name]
    if not isinstance(pair, list) or [type(value) for value in pair] != [int, int]:
        raise TypeError(f"{name} must be two whole numbers, but is {pair!r}")
    return int(pair[0]), int(pair[1])
