"""Train messages: a leaf's model is sent to a client for one leaf round, and returns trained."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedge.config.registers.option import shown
from fedge.exchange.algorithm import (
    EXTRA,
    KEPT,
    kept_record,
    read_extra,
    read_kept,
    read_lost,
    read_memory_of,
)
from fedge.exchange.content import (
    ARRAYS,
    CONFIG,
    MEMORY,
    METRICS,
    NUM_EXAMPLES,
    Metrics,
    client_report,
    config_of,
    metrics_of,
    replied_state,
    reply_path,
    single_metric,
    ticket_of,
    whole_metric,
)
from fedge.exchange.round_context import VERSION, RoundContext, asked_version
from fedge.privacy.marks import (
    ARRAYS_BESIDE,
    CHECKSUMS,
    CLIPPED,
    LOSSES,
    MACHINES,
    MEMORIES,
    MODELS,
    PLACES,
    WEIGHTS,
    WINDOWS,
    Leaving,
    marked_values,
)
from fedge.states.averaging import State
from fedge.states.files import StateFileError, state_bytes, write_state
from fedge.states.memory import KeptVersion
from fedge.states.records import entries, record_of, to_record
from fedge.training.local import TrainResult

logger = logging.getLogger(__name__)

TRAIN = "train"
WEIGHT = "weight"  # among the metrics: weight in the leaf's means, if not the number of windows
KEY_CLIPPING_NORM, KEY_NORM_BIT = "clipping_norm", "norm_bit"  # as Flower's own wrappers call them
STEPS, LOSS, SECONDS = "steps", "train-loss", "train-seconds"
LEAVING: Leaving = {
    ARRAYS: MODELS, EXTRA: ARRAYS_BESIDE, KEPT: CHECKSUMS, MEMORY: MEMORIES, VERSION: PLACES,
    NUM_EXAMPLES: WINDOWS, WEIGHT: WEIGHTS, STEPS: WINDOWS, LOSS: LOSSES, SECONDS: MACHINES,
    KEY_NORM_BIT: CLIPPED,
}  # fmt: skip


@dataclass(frozen=True)
class TrainReply:
    """A client's result of one leaf round.

    Attributes:
        state: the trained model.
        samples: number of training windows, the averaging weight.
        steps: optimiser steps taken (K); with the model they give SCAFFOLD's Δc_i.
        loss: mean training loss over windows and epochs.
        seconds: time the client took.
        uplink_bytes: size of the arrays in the reply.
        clipped: whether the client had to clip its update; None if not reported.
        version: version of the starting model, as in the message.
        weight: weight in the leaf's means; None for `samples`.
        extra: arrays beside the model, packed.
        kept: stored version of its memory; None without one.
        lost: the client's reason why its memory started over; empty if it did not.
        memory: new version of its memory, packed, if replies carry it; else None.
    """

    state: State
    samples: int
    steps: int
    loss: float
    seconds: float
    uplink_bytes: int
    clipped: bool | None = None
    version: int = 0
    weight: float | None = None
    extra: State = field(default_factory=dict, repr=False)
    kept: KeptVersion | None = None
    lost: str = ""
    memory: State | None = field(default=None, repr=False)

    @property
    def mean_weight(self) -> float:
        """Weight in the leaf's means."""
        return float(self.samples) if self.weight is None else self.weight


def train_messages(node_ids: Sequence[int], model: ArrayRecord, round_context: RoundContext) -> list[Message]:
    """Messages asking clients to train a model, without control variates; they share their content."""
    content = RecordDict({ARRAYS: model, CONFIG: round_context.to_record()})
    return [Message(content, node_id, TRAIN) for node_id in node_ids]


def train_reply(
    message: Message,
    result: TrainResult,
    samples: int,
    seconds: float,
    clipped: bool | None = None,
    work: Callable[[], list[float]] = list,
    weight: float | None = None,
    extra: State | None = None,
    kept: KeptVersion | None = None,
    lost: str = "",
    memory: State | None = None,
) -> Message:
    """The reply to a train message; a model received as a file is returned as one.

    Args:
        message: the train message.
        result: result of the training.
        samples: number of training windows.
        seconds: time taken by the client.
        clipped: whether it clipped its update, if requested.
        work: returns the client's times; called last.
        weight: weight in means; None for `samples`.
        extra: arrays beside the model, packed.
        kept: stored version of its memory.
        lost: reason why its memory started over; empty if it did not.
        memory: new version of its memory, packed, if the server stores it.
    """
    values = {
        VERSION: asked_version(message),
        NUM_EXAMPLES: samples,
        STEPS: result.steps,
        LOSS: result.loss,
        SECONDS: seconds,
    }
    if clipped is not None:
        values[KEY_NORM_BIT] = int(clipped)
    if weight is not None:
        values[WEIGHT] = weight
    arrays: ArrayRecord | ConfigRecord = to_record(result.state)
    ticket = ticket_of(message, ARRAYS)
    if ticket:
        path = reply_path(Path(ticket.path).parent, message.metadata.message_id)
        try:
            arrays = ConfigRecord(asdict(write_state(path, result.state)))
        except StateFileError as error:
            logger.warning("%s; the model goes in the message", error)
    metrics = record_of(MetricRecord, {**marked_values(values, LEAVING), **client_report(work)})
    content: dict[str, ArrayRecord | ConfigRecord | MetricRecord] = {ARRAYS: arrays}
    if extra:
        content[EXTRA] = to_record(extra)
    if kept is not None:
        content[KEPT] = kept_record(kept, lost)
    if memory is not None:
        content[MEMORY] = to_record(memory)
    return Message(
        record_of(RecordDict, {**marked_values(content, LEAVING), METRICS: metrics}), reply_to=message
    )


def read_train(reply: Message, folder: Path | None = None) -> TrainReply:
    """Read a client's reply to a train message; the model may be a file in `folder`."""
    metrics = metrics_of(reply)
    state, extra = replied_state(reply, folder), read_extra(reply)
    version = whole_metric(metrics, VERSION)
    return TrainReply(
        state=state,
        samples=whole_metric(metrics, NUM_EXAMPLES),
        steps=whole_metric(metrics, STEPS),
        loss=single_metric(metrics, LOSS),
        seconds=single_metric(metrics, SECONDS),
        uplink_bytes=state_bytes(state) + state_bytes(extra),
        clipped=_flag(metrics, KEY_NORM_BIT),
        version=version,
        weight=single_metric(metrics, WEIGHT) if WEIGHT in metrics else None,
        extra=extra,
        kept=read_kept(reply, version),
        lost=read_lost(reply),
        memory=read_memory_of(reply),
    )


def _flag(metrics: Metrics, name: str) -> bool | None:
    """A metric of 0 or 1 as a bool, or None if there is none of this name."""
    if name not in metrics:
        return None
    value = whole_metric(metrics, name)
    if value not in (0, 1):
        raise ValueError(f"{name} must be 0 or 1, but is {shown(value)}")
    return bool(value)


def clip_norm_of(message: Message) -> float | None:
    """The clipping norm sent by a leaf's privacy wrapper, or None."""
    value = entries(config_of(message)).get(KEY_CLIPPING_NORM)
    return None if value is None else float(value)
