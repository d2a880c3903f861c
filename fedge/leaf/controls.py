"""SCAFFOLD's client control variates c_i, kept by the leaf so clients are stateless.

A client cannot know whether its reply counted: the reply may be refused, come too late, or never arrive. If
the client moved on to c_i⁺ regardless, the leaf's c would no longer be the mean of the c_i (contract C6). The
leaf does know, and has all inputs of Δc_i (`fedge.training.scaffold.control_delta`): the sent model, the
returned model and K. So it computes c_i⁺ = c_i + Δc_i itself, and sends c − c_i, which is no larger than c.
As a result, a client may be a different process in every round, and checkpoints hold all control variates.
The cost is 8 bytes × parameters × clients of the server's memory (or of its state files).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedge.exchange.content import CONTROL, OWN_CONTROL
from fedge.exchange.train import TrainReply
from fedge.states.averaging import State, batches, part_of
from fedge.states.files import FileState
from fedge.states.lazy_state import LazyState, kinds_of
from fedge.states.records import LazyArray, record_of
from fedge.training.scaffold import control_delta, updated_client_control, zero_control
from fedge.training.settings import LocalTraining

CONTROL_PART = 2**17  # numbers of a control variate processed at a time

Controls = dict[int, State]
"""Partition id → c_i, float64, trainable entries only; of who has none c_i is zero."""


def set_client_controls(
    messages: Iterable[Message],
    control: State,
    client_controls: Mapping[int, State],
    shares: Callable[[int], bool],
) -> None:
    """Replace c in train messages by each client's c − c_i; as two tickets if both are files.

    Args:
        messages: messages with c in the record `CONTROL`, as arrays or as a ticket; may share their content.
        control: c, as stored.
        client_controls: node id → c_i, for clients whose c_i is not zero.
        shares: whether a node sees the server's state files.
    """
    for message in messages:
        node = message.metadata.dst_node_id
        client_control = client_controls.get(node)
        if client_control is None:
            continue
        if isinstance(control, FileState) and isinstance(client_control, FileState) and shares(node):
            record: ArrayRecord | ConfigRecord = ConfigRecord(asdict(client_control.ticket))
            message.content = RecordDict({**message.content, OWN_CONTROL: record})
        else:
            message.content = RecordDict({**message.content, CONTROL: difference(control, client_control)})


def difference(control: State, client_control: State) -> ArrayRecord:
    """c − c_i as a record computed when read, so many pending messages need little memory."""
    return record_of(
        ArrayRecord,
        {
            name: LazyArray(array, partial(_difference_entry, control, client_control, name))
            for name, array in control.items()
        },
    )


def _difference_entry(control: State, client_control: State, name: str) -> np.ndarray:
    """One entry of c − c_i, float64."""
    return control[name] - client_control[name]


def moved_control(
    client_control: State | None, control: State, start: State, reply: TrainReply, settings: LocalTraining
) -> LazyState:
    """c_i⁺ = c_i + Δc_i, each entry computed on access.

    Args:
        client_control: c_i; None for zero.
        control: c as sent to the client.
        start: the model sent to the client.
        reply: the client's reply.
        settings: settings of its training.
    """
    return LazyState(
        kinds_of(control), partial(_moved_entry, client_control, control, start, reply, settings)
    )


def _moved_entry(
    client_control: State | None,
    control: State,
    start: State,
    reply: TrainReply,
    settings: LocalTraining,
    name: str,
) -> np.ndarray:
    """One entry of c_i⁺, float64, computed in parts."""
    moved = np.empty(control[name].shape, np.float64)
    for batch in batches({name: moved}, CONTROL_PART):
        control_part, end = (part_of(state, batch) for state in (control, reply.state))
        delta = control_delta(
            control_part, part_of(start, batch), end, reply.steps, settings.lr, settings.momentum
        )
        c_i = zero_control(delta) if client_control is None else part_of(client_control, batch)
        moved.reshape(-1)[batch[name]] = updated_client_control(c_i, delta)[name]
    return moved
