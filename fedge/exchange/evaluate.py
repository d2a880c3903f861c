"""Evaluate: any number of models, each under its role, on validation and test windows, all in one call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedge.exchange.content import (
    CONFIG,
    METRICS,
    about_itself,
    arrays_of,
    metrics_of,
    number,
    numbers_of,
    pair_of,
    wholes,
)
from fedge.exchange.round_context import VERSION, RoundContext
from fedge.metrics.scores import accuracy, macro_f1
from fedge.states.averaging import State
from fedge.states.records import fill

EVALUATE = "evaluate"
SPLITS = "splits"
_EVALUATED = "model/"  # before the role of a model that is to be evaluated

# Roles of models that are evaluated: what a leaf's leaf rounds made, what the cloud offers it (see
# `fedge.cloud.offers` for several offers) and its cluster's model; its own line beside a tentative offer and
# the one fine-tuned for its clients are called as what trains them (`fedge.exchange.round_context`).
OWN: Final = "own"
OFFERED: Final = "offered"
CLUSTER: Final = "cluster"
DESCRIBED: Final = "described"  # the model by which clients describe their windows beside evaluating it
SplitName = Literal["val", "test", "train"]


@dataclass(frozen=True)
class Evaluation:
    """One model on one split of one client.

    Attributes:
        confusion: (classes, classes) int64, rows true, columns predicted.
        loss: mean cross entropy per window.
        only_one_right: on validation windows, beside the own model: on how many windows only the own model
            is right, and on how many only this one.
        moments: the description of the windows by the model (`fedge.training.describe`), of the role
            `DESCRIBED` alone.
    """

    confusion: np.ndarray
    loss: float
    only_one_right: tuple[int, int] | None = None
    moments: np.ndarray | None = None


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
        round_context: of the round.
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
    message: Message, evaluations: EvaluateReply, work: Callable[[], list[float]] | None = None
) -> Message:
    """Answer an evaluate message; `work` tells, once all else is done, what the client did with its time."""
    values: dict[str, Any] = {VERSION: RoundContext.of(message).version}
    for (role, split), evaluation in evaluations.items():
        values[f"{role}/{split}/loss"] = float(evaluation.loss)
        values[f"{role}/{split}/confusion"] = evaluation.confusion.ravel().tolist()
        if evaluation.only_one_right is not None:
            values[f"{role}/{split}/only-one-right"] = list(evaluation.only_one_right)
        if evaluation.moments is not None:
            values[f"{role}/{split}/moments"] = evaluation.moments.tolist()
    if work is not None:
        values.update(about_itself(work))
    return Message(RecordDict({METRICS: fill(MetricRecord(), values)}), reply_to=message)


def read_evaluate(reply: Message) -> EvaluateReply:
    """Read a client's answer to an evaluate message."""
    metrics = metrics_of(reply)
    evaluations: EvaluateReply = {}
    for name in metrics:
        if name.endswith("/loss"):
            role, split, _ = name.rsplit("/", 2)
            cells = np.array(wholes(metrics, f"{role}/{split}/confusion"), dtype=np.int64)
            classes = round(len(cells) ** 0.5)
            evaluations[role, cast(SplitName, split)] = Evaluation(
                cells.reshape(classes, classes),
                number(metrics, name),
                pair_of(metrics, f"{role}/{split}/only-one-right"),
                numbers_of(metrics, f"{role}/{split}/moments"),
            )
    return evaluations
