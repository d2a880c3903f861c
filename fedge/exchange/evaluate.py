"""Evaluate messages: any number of models, each under its role, on validation and test windows."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedge.config.registers.option import shown
from fedge.exchange.content import (
    CONFIG,
    METRICS,
    Metrics,
    arrays_of,
    client_report,
    metric_list,
    metrics_of,
    single_metric,
    whole_metric,
)
from fedge.exchange.round_context import VERSION, RoundContext, asked_version
from fedge.privacy.marks import ACCURACIES, DESCRIPTIONS, LOSSES, PLACES, WINDOWS, Leaving, marked_values
from fedge.states.averaging import State
from fedge.states.records import entries, record_of
from fedge.tasks.classification import CONFUSION
from fedge.tasks.configured import CLASSIFICATION
from fedge.tasks.task import Sums, Task, total_sums

EVALUATE = "evaluate"
SPLITS = "splits"
LEAVING: Leaving = {
    VERSION: PLACES, "loss": LOSSES, "windows": WINDOWS, "sums/*": ACCURACIES, "differences": ACCURACIES,
    "moments": DESCRIPTIONS,
}  # fmt: skip
_EVALUATED = "model/"  # prefix of the role of a model to evaluate

# Roles of evaluated models: those of a leaf's leaf rounds, those offered to it by the cloud (see
# `fedge.cloud.offers` for several offers) and its cluster's model; its own line beside a tentative offer and
# the one fine-tuned for its clients are called as their lines (`fedge.exchange.round_context`).
OWN: Final = "own"
OFFERED: Final = "offered"
CLUSTER: Final = "cluster"
DESCRIBED: Final = "described"  # the model whose outputs describe a client's windows, beside its evaluation
SplitName = Literal["val", "test", "train"]


@dataclass(frozen=True)
class Evaluation:
    """One model on one split of one client.

    Attributes:
        sums: the task's sums over the windows.
        loss: mean loss per window.
        windows: number of windows.
        differences: on validation windows, gain over the own model in the terms of the task's first score:
            its sum and its sum of squares.
        moments: description of the windows by the model (`fedge.training.describe`), only for the role
            `DESCRIBED`.
        task: task of the run.
    """

    sums: Sums
    loss: float
    windows: int
    differences: tuple[float, float] | None = None
    moments: np.ndarray | None = None
    task: Task = CLASSIFICATION

    @property
    def confusion(self) -> np.ndarray | None:
        """Confusion matrix (classes, classes), int64, rows true, columns predicted; None without classes."""
        return self.sums.get(CONFUSION)

    @property
    def score(self) -> float:
        """The task's first score."""
        return self.task.score(self.sums)

    @property
    def further(self) -> dict[str, float]:
        """The task's other scores, by name."""
        return {score.name: score(self.sums) for score in self.task.scores[1:]}


def gain_sums(own: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    """Sum, and sum of squares, of each window's gain by another model.

    For right and wrong, with b windows right in the own model only and c in the other only, these are c − b
    and b + c.

    Args:
        own: (N,) terms of the first score per window, for the own model.
        other: (N,) the same for the other model.

    >>> gain_sums(np.array([True, True, False]), np.array([True, False, False]))
    (-1.0, 1.0)
    """
    gains = other.astype(np.float64) - own.astype(np.float64)
    return float(gains.sum()), float((gains**2).sum())


@dataclass(frozen=True)
class Pooled:
    """One model on the windows of several clients.

    Attributes:
        score: the task's first score.
        loss: mean loss per window.
        further: the task's other scores, by name.
        merit: the first score, oriented to be better if larger.
    """

    score: float
    loss: float
    further: Mapping[str, float]
    merit: float


def pool_evaluations(evaluations: Sequence[Evaluation]) -> Pooled | None:
    """Scores and loss over the windows of all evaluations; None without any.

    Clients' sums are added, so the result is weighted by windows.
    """
    if not evaluations:
        return None
    task = evaluations[0].task
    sums = total_sums([e.sums for e in evaluations])
    loss = sum(e.loss * e.windows for e in evaluations) / sum(e.windows for e in evaluations)
    score, *further = [score(sums) for score in task.scores]
    names = [score.name for score in task.scores[1:]]
    return Pooled(score, loss, dict(zip(names, further, strict=True)), task.scores[0].merit(score))


EvaluateReply = dict[tuple[str, SplitName], Evaluation]  # by role and split


def evaluate_messages(
    node_ids: Sequence[int],
    models: Mapping[str, ArrayRecord],
    splits: Sequence[SplitName],
    round_context: RoundContext,
) -> list[Message]:
    """Messages asking clients to evaluate models; they share their content.

    Args:
        node_ids: nodes of the clients.
        models: role → model as a record, for example "own" and "offered".
        splits: splits of their windows to evaluate on.
        round_context: context of the round.
    """
    record = ConfigRecord({SPLITS: [str(split) for split in splits]})
    content = RecordDict({CONFIG: round_context.to_record(), SPLITS: record})
    content.update({evaluated_record(role): model for role, model in models.items()})
    return [Message(content, node_id, EVALUATE) for node_id in node_ids]


def evaluated_record(role: str) -> str:
    """Name of the record of a model to evaluate."""
    return _EVALUATED + role


def models_to_evaluate(message: Message) -> Iterator[tuple[str, State]]:
    """Yield (role, model) one by one; large models are opened when reached."""
    for name in entries(message.content):
        if name.startswith(_EVALUATED):
            state = arrays_of(message, name)
            assert state is not None
            yield name.removeprefix(_EVALUATED), state


def splits_to_evaluate(message: Message) -> list[SplitName]:
    """The splits to evaluate on."""
    record = entries(message.content)[SPLITS]
    assert isinstance(record, ConfigRecord)
    return list(record[SPLITS])  # type: ignore[arg-type]


def evaluate_reply(
    message: Message, evaluations: EvaluateReply, work: Callable[[], list[float]] | None = None
) -> Message:
    """Reply to an evaluate message; `work` is called last and returns the client's times."""
    values: dict[str, Any] = {VERSION: asked_version(message)}
    for (role, split), evaluation in evaluations.items():
        values[f"{role}/{split}/loss"] = float(evaluation.loss)
        values[f"{role}/{split}/windows"] = evaluation.windows
        for name, array in evaluation.sums.items():
            values[f"{role}/{split}/sums/{name}"] = array.ravel().tolist()
        if evaluation.differences is not None:
            values[f"{role}/{split}/differences"] = list(evaluation.differences)
        if evaluation.moments is not None:
            values[f"{role}/{split}/moments"] = evaluation.moments.tolist()
    values = marked_values(values, LEAVING)
    if work is not None:
        values.update(client_report(work))
    metrics = record_of(MetricRecord, values)
    return Message(record_of(RecordDict, {METRICS: metrics}), reply_to=message)


def read_evaluate(reply: Message, task: Task = CLASSIFICATION, outputs: int = 0) -> EvaluateReply:
    """Read a client's reply to an evaluate message.

    Args:
        reply: the reply.
        task: task of the run.
        outputs: number of outputs of its models.

    Raises:
        Exception: the reply is malformed; a client can put anything into a message.
    """
    metrics = metrics_of(reply)
    form = task.form(outputs)
    evaluations: EvaluateReply = {}
    for name in metrics:
        if name.endswith("/loss") and "/sums/" not in name:  # a task may have a sum named loss
            role, split, _ = name.rsplit("/", 2)
            prefix = f"{role}/{split}"
            evaluations[role, cast(SplitName, split)] = Evaluation(
                {name: _sum(metrics, f"{prefix}/sums/{name}", zeros) for name, zeros in form.items()},
                single_metric(metrics, name),
                whole_metric(metrics, f"{prefix}/windows"),
                _differences(metrics, f"{prefix}/differences"),
                metric_list(metrics, f"{prefix}/moments"),
                task,
            )
    return evaluations


def _sum(metrics: Metrics, name: str, zeros: np.ndarray) -> np.ndarray:
    """A sum among metrics, of the shape and dtype of `zeros`."""
    values = metrics[name]
    kinds: set[type] = {int} if zeros.dtype == np.int64 else {int, float}
    if not isinstance(values, list) or not set(map(type, values)) <= kinds or len(values) != zeros.size:
        raise TypeError(f"{name} must be {zeros.size} numbers of {zeros.dtype}, but is {shown(values)}")
    return np.array(values, dtype=zeros.dtype).reshape(zeros.shape)


def _differences(metrics: Metrics, name: str) -> tuple[float, float] | None:
    """The two numbers among metrics, or None without this name."""
    values = metric_list(metrics, name)
    if values is None:
        return None
    if len(values) != 2:
        raise TypeError(f"{name} must be two numbers, but is {shown(metrics[name])}")
    return float(values[0]), float(values[1])
