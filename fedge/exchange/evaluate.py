"""Evaluate: any number of models, each under its role, on validation and test windows, all in one call."""

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
    about_itself,
    arrays_of,
    metric_list,
    metrics_of,
    single_metric,
    whole_metric,
)
from fedge.exchange.round_context import VERSION, RoundContext, asked_version
from fedge.privacy.marks import ACCURACIES, DESCRIPTIONS, LOSSES, PLACES, WINDOWS, Leaving, marked_values
from fedge.states.averaging import State
from fedge.states.records import entries, record_of
from fedge.tasks.chosen import CLASSIFICATION
from fedge.tasks.classification import CONFUSION
from fedge.tasks.task import Sums, Task, total_sums

EVALUATE = "evaluate"
SPLITS = "splits"
LEAVING: Leaving = {
    VERSION: PLACES, "loss": LOSSES, "windows": WINDOWS, "sums/*": ACCURACIES, "differences": ACCURACIES,
    "moments": DESCRIPTIONS,
}  # fmt: skip
_EVALUATED = "model/"  # before the role of a model for evaluation

# Roles of models that are evaluated: those of a leaf's leaf rounds, those that the cloud offers it (see
# `fedge.cloud.offers` for several offers) and its cluster's model; its own line beside a tentative offer and
# the one fine-tuned for its clients are called as their lines (`fedge.exchange.round_context`).
OWN: Final = "own"
OFFERED: Final = "offered"
CLUSTER: Final = "cluster"
DESCRIBED: Final = "described"  # the model by which clients describe their windows beside evaluating it
SplitName = Literal["val", "test", "train"]


@dataclass(frozen=True)
class Evaluation:
    """One model on one split of one client.

    Attributes:
        sums: the task's, over the windows.
        loss: mean per window.
        windows: how many.
        differences: on validation windows, beside the own model: sum, and sum of squares, of the windows'
            gains by this model in the values behind the task's first score.
        moments: the description of the windows by the model (`fedge.training.describe`), of the role
            `DESCRIBED` alone.
        task: of the run.
    """

    sums: Sums
    loss: float
    windows: int
    differences: tuple[float, float] | None = None
    moments: np.ndarray | None = None
    task: Task = CLASSIFICATION

    @property
    def confusion(self) -> np.ndarray | None:
        """(classes, classes) int64, rows true, columns predicted; None where the task has none."""
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
    """The sum and the sum of squares of windows' gains by another model.

    For right and wrong, with b windows right in the own model only and c in the other only, these are c − b
    and b + c.

    Args:
        own: (N,) the first score's terms, window by window, of the own model.
        other: (N,) the same windows, of the other model.

    >>> gain_sums(np.array([True, True, False]), np.array([True, False, False]))
    (-1.0, 1.0)
    """
    gains = other.astype(np.float64) - own.astype(np.float64)
    return float(gains.sum()), float((gains**2).sum())


@dataclass(frozen=True)
class Pooled:
    """One model on the windows of several clients.

    Attributes:
        score: the task's first.
        loss: mean per window.
        further: the other scores, by name.
        merit: the first score, oriented so that more is better.
    """

    score: float
    loss: float
    further: Mapping[str, float]
    merit: float


def pooled(evaluations: Sequence[Evaluation]) -> Pooled | None:
    """Scores and loss over the windows of all evaluations; None without any.

    Sample-weighted by construction: clients' sums are added.
    """
    if not evaluations:
        return None
    task = evaluations[0].task
    sums = total_sums([j.sums for j in evaluations])
    loss = sum(j.loss * j.windows for j in evaluations) / sum(j.windows for j in evaluations)
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
    """The name of the record of a model for evaluation."""
    return _EVALUATED + role


def models_to_evaluate(message: Message) -> Iterator[tuple[str, State]]:
    """Yield (role, model) one by one: large models are opened when their turn comes."""
    for name in entries(message.content):
        if name.startswith(_EVALUATED):
            state = arrays_of(message, name)
            assert state is not None
            yield name.removeprefix(_EVALUATED), state


def splits_to_evaluate(message: Message) -> list[SplitName]:
    """The splits on which models are to be evaluated."""
    record = entries(message.content)[SPLITS]
    assert isinstance(record, ConfigRecord)
    return list(record[SPLITS])  # type: ignore[arg-type]


def evaluate_reply(
    message: Message, evaluations: EvaluateReply, work: Callable[[], list[float]] | None = None
) -> Message:
    """Answer an evaluate message; `work` gives the client's times, once all else is done."""
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
        values.update(about_itself(work))
    metrics = record_of(MetricRecord, values)
    return Message(record_of(RecordDict, {METRICS: metrics}), reply_to=message)


def read_evaluate(reply: Message, task: Task = CLASSIFICATION, outputs: int = 0) -> EvaluateReply:
    """Read a client's answer to an evaluate message.

    Args:
        reply: the answer.
        task: of the run.
        outputs: of its models.

    Raises:
        Exception: not such a message; a client can put anything into a message.
    """
    metrics = metrics_of(reply)
    form = task.form(outputs)
    evaluations: EvaluateReply = {}
    for name in metrics:
        if name.endswith("/loss"):
            role, split, _ = name.rsplit("/", 2)
            at = f"{role}/{split}"
            evaluations[role, cast(SplitName, split)] = Evaluation(
                {name: _sum(metrics, f"{at}/sums/{name}", zeros) for name, zeros in form.items()},
                single_metric(metrics, name),
                whole_metric(metrics, f"{at}/windows"),
                _differences(metrics, f"{at}/differences"),
                metric_list(metrics, f"{at}/moments"),
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
    found = metric_list(metrics, name)
    if found is None:
        return None
    if len(found) != 2:
        raise TypeError(f"{name} must be two numbers, but is {shown(metrics[name])}")
    return float(found[0]), float(found[1])
