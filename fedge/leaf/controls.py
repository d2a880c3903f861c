"""SCAFFOLD's control variates c_i of clients, which their leaf keeps: clients keep nothing between messages.

A client cannot know whether its reply counted: the reply may be refused, come too late, or never arrive. If
the client moved on to c_i⁺ regardless, the leaf's c would no longer be the mean of the c_i (contract C6). A
leaf knows, and has all inputs of Δc_i (`fedge.training.scaffold.control_delta`): the sent model, the returned
one, K. So c_i⁺ = c_i + Δc_i is worked out here, and a client is sent c − c_i in place of c, which is as
large. Each time, the client may be another process on another machine, checkpoints hold all controls, at the
cost of only 8 bytes × parameters × clients of the server's memory (or of its state files).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from functools import partial

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from fedge.exchange.content import CONTROL, OWN_CONTROL
from fedge.exchange.train import TrainReply
from fedge.states.averaging import State, batches, part_of
from fedge.states.due import DueState, kinds_of
from fedge.states.files import FileState
from fedge.states.records import DueArray, record_of
from fedge.training.scaffold import control_delta, updated_client_control, zero_control
from fedge.training.settings import LocalTraining

CONTROL_PART = 2**17  # numbers of a control variate per step

Controls = dict[int, State]
"""Partition id → c_i, float64, trainable entries only; of who has none c_i is zero."""


def tell_controls(
    messages: Iterable[Message], told: State, own_of: Mapping[int, State], shares: Callable[[int], bool]
) -> None:
    """Let train messages with c carry c − c_i, each client's own; both as tickets where both are files.

    Args:
        messages: with c in the record `CONTROL`, as arrays or as a ticket; they may share their content.
        told: c, as stored.
        own_of: node id → c_i, for clients with c_i other than zero.
        shares: whether a node sees the server's state files.
    """
    for message in messages:
        node = message.metadata.dst_node_id
        own = own_of.get(node)
        if own is None:
            continue
        if isinstance(told, FileState) and isinstance(own, FileState) and shares(node):
            record: ArrayRecord | ConfigRecord = ConfigRecord(asdict(own.ticket))
            message.content = RecordDict({**message.content, OWN_CONTROL: record})
        else:
            message.content = RecordDict({**message.content, CONTROL: difference(told, own)})


def difference(told: State, own: State) -> ArrayRecord:
    """c − c_i as a record computed on reading, so that many wait in little memory."""
    return record_of(
        ArrayRecord,
        {name: DueArray(array, partial(_entry, told, own, name)) for name, array in told.items()},
    )


def _entry(told: State, own: State, name: str) -> np.ndarray:
    """One entry of c − c_i, float64."""
    return told[name] - own[name]


def moved_control(
    own: State | None, told: State, start: State, reply: TrainReply, settings: LocalTraining
) -> DueState:
    """c_i⁺ = c_i + Δc_i, each entry computed on access.

    Args:
        own: c_i; None for zero.
        told: c, as the client was told.
        start: the sent model.
        reply: its answer.
        settings: for its training.
    """
    return DueState(kinds_of(told), partial(_moved_entry, own, told, start, reply, settings))


def _moved_entry(
    own: State | None, told: State, start: State, reply: TrainReply, settings: LocalTraining, name: str
) -> np.ndarray:
    """One entry of c_i⁺, float64, worked out in parts."""
    moved = np.empty(told[name].shape, np.float64)
    for batch in batches({name: moved}, CONTROL_PART):
        before, end = (part_of(state, batch) for state in (told, reply.state))
        delta = control_delta(before, part_of(start, batch), end, reply.steps, settings.lr, settings.momentum)
        c_i = zero_control(delta) if own is None else part_of(own, batch)
        moved.reshape(-1)[batch[name]] = updated_client_control(c_i, delta)[name]
    return moved
