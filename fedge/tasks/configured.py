"""The task of a run: `train.task`, with a user's loss or further scores if options name them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fedge.config.registers.determinism import call_twice
from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.hooks import refuse_misspelt
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import LOSSES, METRICS, OF_THE_TASK, TASKS, names_in
from fedge.config.registers.register import refuse_class
from fedge.config.sections.train import TrainConfig
from fedge.tasks.classification import Classification
from fedge.tasks.task import Score, Sums, Task

if TYPE_CHECKING:
    from torch import Tensor

CLASSIFICATION = Classification()
_COLUMN = re.compile(r"[a-z][a-z0-9_]*")
_RESERVED = ("loss",)  # names of columns in every run
_DEFAULT = str(TrainConfig.__dataclass_fields__["task"].default)


def task_of(config: TrainConfig) -> Task:
    """The task of a run.

    Args:
        config: its options on task, loss and metrics are read.

    Raises:
        ConfigError: one cannot be imported, or used as its option says.
    """
    if is_default_task(config):
        return CLASSIFICATION
    code = TASKS.load(config.task)  # a notebook may have defined it anew
    loss = None if config.loss == OF_THE_TASK else LOSSES.load(config.loss)
    metrics = tuple(METRICS.load(name) for name in names_in(config.metrics))
    return _build_task(config.task, code, config.task_args, config.loss, loss, config.loss_args, metrics)


def is_default_task(config: TrainConfig) -> bool:
    """Whether a run learns classes by cross entropy, with its standard scores."""
    is_plain = config.task == _DEFAULT and not config.task_args
    return is_plain and config.loss == OF_THE_TASK and not config.metrics


@lru_cache(maxsize=8)
def _build_task(
    name: str, code: Any, arguments: str, loss_name: str, loss: Any, loss_arguments: str,
    metrics: tuple[Any, ...],
) -> Task:  # fmt: skip
    """A task from its parts; cached, because every message needs it."""
    task = _create_task(name, code, TrainConfig(task=name, task_args=arguments).arguments("task"))
    for score in metrics:
        _refuse_score(score, "train.metrics")
    names = [score.name for score in (*task.scores, *metrics)]
    duplicate = next(
        (candidate for candidate in names if names.count(candidate) > 1 or candidate in _RESERVED), None
    )
    if duplicate is not None:
        subject = "train.metrics" if metrics else f"train.task {name}: scores"
        raise ConfigError(
            f"{subject} must have names of their own, but {duplicate} is a column already; rename its Score"
        )
    if loss is None and not metrics:
        return task
    keywords = TrainConfig(loss=loss_name, loss_args=loss_arguments).arguments("loss")
    if loss is not None:
        refuse_class(LOSSES, loss_name, "(answers, y)")
        LOSSES.refuse_wrong_arguments(loss_name, keywords, "answers", "y")
    return _Extended(task, loss_name, loss, keywords, metrics)


def _create_task(name: str, code: Any, arguments: Mapping[str, Any]) -> Task:
    """The task of a name: an object, or one made by its class from arguments."""
    if not TASKS.is_own(name) and not arguments:
        return CLASSIFICATION if name == _DEFAULT else code()
    task = code
    if not isinstance(code, Task):
        TASKS.refuse_wrong_arguments(name, arguments)
        with TASKS.explaining_errors(name):
            task = code(**arguments)
    if not isinstance(task, Task):
        raise ConfigError(
            f"train.task {name} must make a fedge.tasks.Task, but made {shown(task)}; derive it from "
            f"fedge.tasks.Task"
        )
    if TASKS.is_own(name):
        refuse_misspelt(type(task), Task, f"train.task {name}")
    if not task.scores:
        raise ConfigError(
            f"train.task {name} must have scores, by the first of which models are compared, but has none; "
            f"write scores = (Score(...),)"
        )
    for score in task.scores:
        _refuse_score(score, f"train.task {name}")
    if not _is_bound(task.least_loss):
        raise ConfigError(
            f"train.task {name} must have a number as least_loss, the smallest possible loss, but has "
            f"{shown(task.least_loss)}; set -1e30 if there is none"
        )
    return task


def _refuse_score(score: Any, source: str) -> None:
    """Raise ConfigError unless a score has all its attributes."""
    if not isinstance(score, Score):
        raise ConfigError(
            f"{source} must name fedge.tasks.Score objects, but {shown(score)} is none; write "
            f'NAME = Score("NAME", of=function, higher_is_better=True)'
        )
    if not isinstance(score.higher_is_better, bool):
        raise ConfigError(
            f"{source}: score {score.name} must say which direction is better, but higher_is_better is "
            f"{shown(score.higher_is_better)}; set True or False"
        )
    if not isinstance(score.name, str) or not _COLUMN.fullmatch(score.name):
        raise ConfigError(
            f"{source}: a score's name must be small letters, digits and underscores, as a column has it, "
            f"but is {shown(score.name)}; rename it"
        )
    if not callable(score.of):
        raise ConfigError(
            f"{source}: score {score.name} must be made by a function, but of is {shown(score.of)}"
        )
    for key in ("unit", "words"):
        if not isinstance(getattr(score, key), str):
            raise ConfigError(
                f"{source}: {key} of score {score.name} must be text, but is {shown(getattr(score, key))}; "
                f"leave it out if there is none"
            )
    bounds = (score.lowest, score.highest)
    if not all(map(_is_bound, bounds)) or score.lowest > score.highest:
        raise ConfigError(
            f"{source}: score {score.name} must have numbers as lowest and highest, in this order, but has "
            f"{shown(bounds)}; leave out the one that it does not have"
        )


def _is_bound(value: Any) -> bool:
    """Whether a value is a number or infinity."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return is_number and not math.isnan(value)


class _Extended(Task):
    """A task with a user's loss or further scores."""

    def __init__(
        self,
        task: Task,
        name: str,
        loss: Callable[..., Tensor] | None,
        arguments: Mapping[str, Any],
        metrics: tuple[Score, ...],
    ) -> None:
        """Extend `task`; without a `loss`, the task's own."""
        self.task = task
        self.scores = (*task.scores, *metrics)
        self.takes = task.takes
        self.has_classes = task.has_classes
        self.smooths = loss is None and task.smooths
        self.native = loss is None and task.native
        self.least_loss = task.least_loss if loss is None else -math.inf
        self.says = task.says
        self.loss_unit = task.loss_unit if loss is None else ""
        self._name, self._loss, self._arguments = name, loss, dict(arguments)

    def refuse(self, y: np.ndarray, outputs: int) -> None:
        self.task.refuse(y, outputs)

    def remarks(self, y: np.ndarray, classes: Sequence[str]) -> Sequence[str]:
        return self.task.remarks(y, classes)

    def answer_shape(self, outputs: int, y_shape: tuple[int, ...]) -> tuple[int, ...]:
        return self.task.answer_shape(outputs, y_shape)

    def losses(self, answers: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        if self._loss is None:
            return self.task.losses(answers, y, smoothing)
        result = self._loss(answers, y, **self._arguments)
        if tuple(getattr(result, "shape", ())) != (len(y),):
            raise ConfigError(
                f"train.loss {self._name} must return a loss for each of {len(y)} examples, but returned "
                f"{shown(getattr(result, 'shape', result))}; reduce over all axes but the first"
            )
        return result

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


def refuse_task_that_fails(
    config: TrainConfig, outputs: int, y: np.ndarray | None = None, answers: Tensor | None = None
) -> None:
    """Raise ConfigError if a user's task, loss or metric fails on a few examples.

    Args:
        config: configuration of the run.
        outputs: U.
        y: targets of at least two examples of the run; None: two of each class are made up.
        answers: of a model to them; None: normal noise in the task's shape.
    """
    import torch

    task = task_of(config)
    task_label = f"train.task {config.task}"
    targets = torch.arange(2 * outputs) % outputs if y is None else torch.from_numpy(np.array(y))
    if answers is None:
        with TASKS.explaining_errors(config.task):
            shape = task.answer_shape(outputs, tuple(targets.shape[1:]))
        answers = torch.randn(len(targets), *shape, generator=torch.Generator().manual_seed(0))
    answers = answers.detach().requires_grad_()
    is_own_loss = config.loss != OF_THE_TASK
    loss_label = f"train.loss {config.loss}" if is_own_loss else task_label
    shapes = _shapes_in_errors(answers, targets, outputs)
    with shapes, TASKS.explaining_errors(config.task), LOSSES.explaining_errors(config.loss):
        version = targets._version
        losses = call_twice(loss_label, lambda: task.losses(answers, targets), in_threads=True)
    if targets._version != version:
        raise ConfigError(
            f"{loss_label} must leave its arguments as they are, but writes to y; work on y.clone()"
        )
    if tuple(getattr(losses, "shape", ())) != (len(targets),):
        raise ConfigError(
            f"{loss_label} must return a loss for each of {len(targets)} examples, but returned "
            f"{shown(getattr(losses, 'shape', losses))}; reduce over all axes but the first"
        )
    if not losses.requires_grad:
        raise ConfigError(
            f"{loss_label} must be differentiable, but its losses follow from no answer; compute "
            f"them by PyTorch's functions, without detach() or no_grad()"
        )
    if not bool(torch.isfinite(losses.detach()).all()):
        raise ConfigError(
            f"{loss_label} must have finite losses, but has {losses.detach().min()} on a few examples; fix it"
        )
    detached = answers.detach()
    sums = call_twice(
        task_label, lambda: _try_sums(task_label, config, task, detached, targets, outputs), in_threads=True
    )
    if targets._version != version:
        raise ConfigError(
            f"{task_label} must leave its arguments as they are, but writes to y; work on y.clone()"
        )
    for score in task.scores:
        _try_score(score, sums, "train.metrics" if score not in _own_scores(config, task) else task_label)


@contextmanager
def _shapes_in_errors(answers: Tensor, y: Tensor, outputs: int) -> Iterator[None]:
    """Context that adds to a refusal the shapes given, where y has another than answers (N, U)."""
    try:
        yield
    except ConfigError as error:
        if answers.shape[1:] != (outputs,) or y.ndim == 1 or y.shape[1:] == answers.shape[1:]:
            raise
        raise ConfigError(
            f"{error}; it was given answers {tuple(answers.shape)} and y {tuple(y.shape)}: a task with other "
            "answers defines answer_shape(outputs, y_shape) (docs/tasks.md)"
        ) from error


def _own_scores(config: TrainConfig, task: Task) -> tuple[Score, ...]:
    """The task's scores."""
    return tuple(task.scores)[: len(task.scores) - len(names_in(config.metrics))]


def _try_sums(
    label: str, config: TrainConfig, task: Task, answers: Tensor, y: Tensor, outputs: int
) -> dict[str, np.ndarray]:
    """The sums of a few examples, or raise ConfigError unless they have the declared form."""
    with TASKS.explaining_errors(config.task):
        form = {name: np.asarray(zeros) for name, zeros in task.form(outputs).items()}
        parts = [task.sums(answers[rows], y[rows]) for rows in (slice(None), slice(1, None))]
        values = task.values(answers, y)
    if not form or any(array.dtype not in (np.int64, np.float64) or array.any() for array in form.values()):
        raise ConfigError(
            f"{label}: form must return int64 or float64 arrays of zeros by name, but returned "
            f"{shown({name: str(array.dtype) for name, array in form.items()})}; fix it"
        )
    unsendable = next((name for name in form if not isinstance(name, str) or "/" in name), None)
    if unsendable is not None:
        raise ConfigError(
            f"{label}: form must name its sums by texts without a slash, as messages have them, but has "
            f"{shown(unsendable)}; rename it"
        )
    for part in parts:
        actual = {name: (tuple(sum_.shape), sum_.is_floating_point()) for name, sum_ in part.items()}
        declared = {name: (zeros.shape, zeros.dtype == np.float64) for name, zeros in form.items()}
        if actual != declared:
            name = min(actual.items() ^ declared.items())[0]
            raise ConfigError(
                f"{label}: sums must be of the names, shapes and kinds that form({outputs}) says, but "
                f"{name} is {_kind_text(actual.get(name))} for {_kind_text(declared.get(name))}; fix one of "
                "them"
            )
    if tuple(getattr(values, "shape", ())) != (len(y),):
        raise ConfigError(
            f"{label}: values must return a number for each of {len(y)} examples, but returned "
            f"{shown(getattr(values, 'shape', values))}; fix it"
        )
    sums = {name: value.cpu().numpy().astype(form[name].dtype) for name, value in parts[0].items()}
    fault = task.impossible(sums, len(y))
    if fault is not None:
        raise ConfigError(f"{label}: its own sums of a few examples cannot be: {': '.join(fault)}; fix it")
    return sums


def _kind_text(form: tuple[tuple[int, ...], bool] | None) -> str:
    """Shape and kind in words."""
    return "absent" if form is None else f"{'float' if form[1] else 'int'} {form[0]}"


def _try_score(score: Score, sums: Sums, label: str) -> None:
    """Raise ConfigError if a score cannot be computed from sums, or is no number in its range."""
    source = "a made-up confusion matrix" if set(sums) == {"confusion"} else "the sums of a few examples"
    try:
        number = call_twice(f"{label}: score {score.name}", lambda: float(score.of(sums)))
    except ConfigError:
        raise
    except own_errors() as error:
        raise ConfigError(
            f"{label}: score {score.name} failed on {source}: {own_error(error)}; "
            f"it gets a table with {', '.join(sums)}; fix it"
        ) from error
    if not score.lowest <= number <= score.highest:
        raise ConfigError(
            f"{label}: score {score.name} must lie in {score.lowest:g}..{score.highest:g}, as declared, "
            f"but is {number:g} on {source}; fix it, or its range"
        )


def task_entry(config: TrainConfig) -> dict[str, Any]:
    """Entry of a task in a run's manifest: name, scores, unit of the loss."""
    task = task_of(config)
    names = ("name", "unit", "words", "higher_is_better")
    scores = [
        {name: getattr(score, name) for name in names}
        | {name: _finite_or_none(getattr(score, name)) for name in ("lowest", "highest")}
        for score in task.scores
    ]
    entry = {"name": config.task, "scores": scores, "loss_unit": task.loss_unit}
    return entry | {"least_loss": _finite_or_none(task.least_loss)}


def _finite_or_none(bound: float) -> float | None:
    """A bound for the manifest, None for infinity."""
    return float(bound) if math.isfinite(bound) else None


def _bound(value: Any, default: float) -> float:
    """A bound of a manifest."""
    return default if value is None else float(value)


def scores_of(entry: Mapping[str, Any] | None) -> tuple[tuple[Score, ...], str]:
    """Scores and unit of the loss from a manifest, for names and ranges only: they compute nothing.

    Args:
        entry: result of `task_entry`; None for classification, from a run without an entry.
    """
    if not entry:
        return tuple(CLASSIFICATION.scores), CLASSIFICATION.loss_unit
    scores = tuple(
        Score(
            str(s["name"]), _refuse_call, bool(s["higher_is_better"]), str(s["unit"]), str(s["words"]),
            _bound(s.get("lowest"), -math.inf), _bound(s.get("highest"), math.inf),
        )
        for s in entry["scores"]
    )  # fmt: skip
    return scores, str(entry["loss_unit"])


def least_loss_of(entry: Mapping[str, Any] | None) -> float:
    """The smallest possible loss of a run's task, from its manifest; see `scores_of`."""
    return _bound(entry.get("least_loss"), -math.inf) if entry else CLASSIFICATION.least_loss


def _refuse_call(sums: Sums) -> float:
    raise NotImplementedError("of a run that was read, scores are in its tables")
