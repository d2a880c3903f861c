"""The task of a run: classification, with a loss or further scores of the user's where options name those."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fedge.config.option import ConfigError, shown
from fedge.config.parts import LOSSES, METRICS, OF_THE_TASK, names_in
from fedge.config.sections.train import TrainConfig
from fedge.tasks.classification import Classification
from fedge.tasks.task import Score, Sums, Task

if TYPE_CHECKING:
    from torch import Tensor

CLASSIFICATION = Classification()
_COLUMN = re.compile(r"[a-z][a-z0-9_]*")
_TAKEN = ("loss",)  # names of columns that every run has


def task_of(config: TrainConfig) -> Task:
    """Return the task of a run.

    Args:
        config: its options on loss and metrics are read.

    Raises:
        ConfigError: one cannot be imported, or used as what it is named for.
    """
    if config.loss == OF_THE_TASK and not config.metrics:
        return CLASSIFICATION
    loss = None if config.loss == OF_THE_TASK else LOSSES.load(config.loss)
    metrics = tuple(METRICS.load(name) for name in names_in(config.metrics))
    return _made(config.loss, loss, config.loss_args, metrics)


@lru_cache(maxsize=8)
def _made(name: str, loss: Any, arguments: str, metrics: tuple[Any, ...]) -> Task:
    """Return a task by what it is made of; made once, since every message asks for it."""
    task = CLASSIFICATION
    for score in metrics:
        _refuse_score(score, "train.metrics")
    names = [score.name for score in (*task.scores, *metrics)]
    twice = next((each for each in names if names.count(each) > 1 or each in _TAKEN), None)
    if twice is not None:
        raise ConfigError(
            f"train.metrics must have names of their own, but {twice} is a column already; rename its Score"
        )
    given = TrainConfig(loss=name, loss_args=arguments).arguments("loss")
    if loss is not None:
        LOSSES.refuse_wrong_arguments(name, given, "answers", "y")
    return _Extended(task, name, loss, given, metrics)


def _refuse_score(score: Any, what: str) -> None:
    """Raise ConfigError unless a score says what it must."""
    if not isinstance(score, Score):
        raise ConfigError(
            f"{what} must name fedge.tasks.Score objects, but {shown(score)} is none; write "
            f'NAME = Score("NAME", of=function, higher_is_better=True)'
        )
    if not isinstance(score.higher_is_better, bool):
        raise ConfigError(
            f"{what}: score {score.name} must say which direction is better, but higher_is_better is "
            f"{shown(score.higher_is_better)}; set True or False"
        )
    if not isinstance(score.name, str) or not _COLUMN.fullmatch(score.name):
        raise ConfigError(
            f"{what}: a score's name must be small letters, digits and underscores, as a column has it, but "
            f"is {shown(score.name)}; rename it"
        )
    if not callable(score.of):
        raise ConfigError(
            f"{what}: score {score.name} must be made by a function, but of is {shown(score.of)}"
        )


class _Extended(Task):
    """A task with a loss, or further scores, of the user's."""

    def __init__(
        self,
        task: Task,
        name: str,
        loss: Callable[..., Tensor] | None,
        arguments: Mapping[str, Any],
        metrics: tuple[Score, ...],
    ) -> None:
        """Extend `task`; without a `loss` it keeps its own."""
        self.task = task
        self.scores = (*task.scores, *metrics)
        self.takes = task.takes
        self.has_classes = task.has_classes
        self.smooths = loss is None and task.smooths
        self.native = loss is None and task.native
        self.least_loss = task.least_loss if loss is None else -math.inf
        self.loss_unit = task.loss_unit if loss is None else ""
        self._name, self._loss, self._arguments = name, loss, dict(arguments)

    def refuse(self, y: np.ndarray, outputs: int) -> None:
        self.task.refuse(y, outputs)

    def answer_shape(self, outputs: int, y_shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.task.answer_shape(outputs, y_shape)

    def losses(self, answers: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        if self._loss is None:
            return self.task.losses(answers, y, smoothing)
        found = self._loss(answers, y, **self._arguments)
        if tuple(getattr(found, "shape", ())) != (len(y),):
            raise ConfigError(
                f"train.loss {self._name} must return a loss for each of {len(y)} examples, but returned "
                f"{shown(getattr(found, 'shape', found))}; reduce over all axes but the first"
            )
        return found

    def loss(self, answers: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        if self._loss is None:
            return self.task.loss(answers, y, smoothing)
        return super().loss(answers, y, smoothing)

    def form(self, outputs: int) -> Sums:
        return self.task.form(outputs)

    def sums(self, answers: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        return self.task.sums(answers, y)

    def sums_of(self, predicted: Tensor, y: Tensor, outputs: int) -> Mapping[str, Tensor]:
        return self.task.sums_of(predicted, y, outputs)

    def values(self, answers: Tensor, y: Tensor) -> Tensor:
        return self.task.values(answers, y)

    def impossible(self, sums: Sums, examples: int) -> tuple[str, str] | None:
        return self.task.impossible(sums, examples)


def refuse_task_that_fails(config: TrainConfig, outputs: int) -> None:
    """Raise ConfigError when a loss or a metric of the user's fails on two examples of each class.

    Args:
        config: of the run.
        outputs: classes, U.
    """
    import torch

    task = task_of(config)
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(2 * outputs) % outputs
    answers = torch.randn(len(y), outputs, generator=generator).requires_grad_()
    with LOSSES.carried_out(config.loss):
        losses = task.losses(answers, y)
    if not losses.requires_grad:
        raise ConfigError(
            f"train.loss {config.loss} must be differentiable, but its losses follow from no answer; compute "
            f"them by PyTorch's functions, without detach() or no_grad()"
        )
    sums = {name: value.numpy() for name, value in task.sums(answers.detach(), y).items()}
    for score in task.scores:
        _try_score(score, sums)


def _try_score(score: Score, sums: Sums) -> None:
    """Raise ConfigError when a score cannot be made of sums, or is no number of its range."""
    try:
        number = float(score.of(sums))
    except Exception as error:
        place = inspect.getmodule(score.of)
        raise ConfigError(
            f"train.metrics: score {score.name} failed on a made-up confusion matrix: "
            f"{type(error).__name__}: {' '.join(str(error).split())}"
            f"{f' (in {place.__name__})' if place else ''}; it gets a table with {', '.join(sums)}; mend it"
        ) from error
    if not score.lowest <= number <= score.highest:
        raise ConfigError(
            f"train.metrics: score {score.name} must lie in {score.lowest:g}..{score.highest:g}, as it says "
            f"itself, but is {number:g} on a made-up confusion matrix; mend it, or its range"
        )


def described(config: TrainConfig) -> dict[str, Any]:
    """Return what a run's manifest says of its task: name, scores, unit of the loss."""
    task = task_of(config)
    names = ("name", "unit", "words", "higher_is_better")
    scores = [{name: getattr(score, name) for name in names} for score in task.scores]
    return {"name": "classification", "scores": scores, "loss_unit": task.loss_unit}


def scores_of(described: Mapping[str, Any] | None) -> tuple[tuple[Score, ...], str]:
    """Return scores and unit of the loss as a manifest has them; they can be named, not made.

    Args:
        described: what `described` returned; None for classification, of runs of before there were tasks.
    """
    if not described:
        return tuple(CLASSIFICATION.scores), CLASSIFICATION.loss_unit
    scores = tuple(
        Score(str(s["name"]), _not_here, bool(s["higher_is_better"]), str(s["unit"]), str(s["words"]))
        for s in described["scores"]
    )
    return scores, str(described["loss_unit"])


def _not_here(sums: Sums) -> float:
    raise NotImplementedError("of a run that was read, scores are in its tables")
