"""Inputs of local training: its settings, and a check of the windows' form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedge.config.registers.option import nearest, shown
from fedge.config.registers.parts import OPTIMIZERS
from fedge.config.sections.train import TrainConfig
from fedge.tasks.configured import CLASSIFICATION
from fedge.tasks.task import Task
from fedge.training.augmentation import Augment
from fedge.training.passes import steps_of_passes


@dataclass(frozen=True)
class LocalTraining:
    """Settings of a client's training in one leaf round."""

    lr: float = 0.01  # η, > 0
    momentum: float = 0.0  # heavy ball, in [0, 1); Adam does without
    weight_decay: float = 0.0  # L2 coefficient on all parameters, >= 0
    clip_norm: float = 0.0  # largest norm of a batch gradient; 0 = off
    label_smoothing: float = 0.0  # in [0, 1)
    epochs: int = 1  # passes over the client's windows
    steps: int = 0  # in place of epochs, the same number for every client; 0 = epochs
    batch_size: int = 32  # windows; the last batch of an epoch may be smaller
    prox_mu: float = 0.0  # FedProx's μ, >= 0; 0 = off
    threads: int = 1  # torch threads on the CPU; the number changes the last bits
    kernel: str = "torch"  # of the steps; others than "torch" where a model is known to `fedge.native`
    precision: str = "float32"  # "bf16": the native step and GPUs round products; others do nothing here
    cuda_graph: bool = True  # on a GPU, record the step once and replay it
    optimizer: str = "sgd"  # see `fedge.training.optimizers`
    optimizer_args: tuple[tuple[str, Any], ...] = ()  # keyword arguments of one of PyTorch's
    task: Task = CLASSIFICATION  # whose loss is minimised
    augment: Augment | None = None  # changes inputs of training

    def __post_init__(self) -> None:
        _require(0 < self.lr < math.inf, "lr", "must be positive and finite", self.lr)
        _require(0 <= self.momentum < 1, "momentum", "must be in [0, 1)", self.momentum)
        for name in ("weight_decay", "clip_norm", "prox_mu"):
            value = getattr(self, name)
            _require(0 <= value < math.inf, name, "must be non-negative and finite", value)
        _require(0 <= self.label_smoothing < 1, "label_smoothing", "must be in [0, 1)", self.label_smoothing)
        for name in ("epochs", "batch_size", "threads"):
            _require(getattr(self, name) >= 1, name, "must be at least 1", getattr(self, name))
        _require(self.steps >= 0, "steps", "must be non-negative", self.steps)

    def passes(self, windows: int) -> list[int]:
        """Steps in each pass over a number of windows, see `fedge.training.passes`."""
        return steps_of_passes(windows, self.batch_size, self.epochs, self.steps)


_KINDS = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}


def with_changed(settings: LocalTraining, overrides: Mapping[str, Any]) -> LocalTraining:
    """Settings with some changed by a method's own code, by name.

    Another optimiser is PyTorch's, because native steps are those of SGD, and begins without the arguments of
    the run's.

    Raises:
        TypeError: a name is no setting's, or a value of another kind.
        ValueError: a value is out of range.
    """
    defaults = {field.name: field.default for field in fields(LocalTraining)}
    values = {name: _to_python(value) for name, value in overrides.items()}
    for name, value in values.items():
        if name not in defaults:
            hint = nearest(name, list(defaults)) or f"; it has {', '.join(defaults)}"
            raise TypeError(f"local training has no setting {shown(name)}{hint}")
        kind: type = {"task": Task}.get(name, type(defaults[name]))
        is_valid = type(value) in ((int, float) if kind is float else (kind,)) or (
            kind not in _KINDS and isinstance(value, kind)
        )
        if name != "augment" and not is_valid:
            raise TypeError(f"{name} must be {_KINDS.get(kind, f'a {kind.__name__}')}, but is {shown(value)}")
    choices = {"kernel": {"torch", settings.kernel}, "precision": {"float32", "tf32", "bf16"}}
    for name, known in choices.items():
        if (value := values.get(name, getattr(settings, name))) not in known:
            raise ValueError(f"{name} must be one of {', '.join(sorted(known))}, but is {shown(value)}")
    if values.get("optimizer", settings.optimizer) != settings.optimizer:
        OPTIMIZERS.entry(values["optimizer"])
        values = {"optimizer_args": (), "kernel": "torch", **values}
    return replace(settings, **values)


def _to_python(value: Any) -> Any:
    """A number of NumPy's or PyTorch's as one of Python's; anything else as it is."""
    return value.item() if isinstance(value, (np.generic, Tensor)) and np.ndim(value) == 0 else value


def optimizer_arguments(config: TrainConfig) -> tuple[tuple[str, Any], ...]:
    """Keyword arguments of `train.optimizer`, as Python spells them."""
    return tuple((key.replace("-", "_"), value) for key, value in config.arguments("optimizer").items())


def check_data(x: Tensor, y: Tensor) -> None:
    """Raise ValueError unless x is float32 or int64 (N, …), y int64 or float32 (N, …), N at least 1."""
    if x.dim() < 2 or x.dtype not in (torch.float32, torch.int64):
        raise ValueError(f"x must be float32 or int64 of shape (N, …), got {x.dtype} {tuple(x.shape)}")
    if y.dim() < 1 or y.dtype not in (torch.float32, torch.int64) or len(y) != len(x):
        raise ValueError(f"y must be int64 or float32 of shape ({len(x)}, …), got {y.dtype} {tuple(y.shape)}")
    if len(y) == 0:
        raise ValueError("there is no window to train on or evaluate: x has shape (0, …)")


def _require(condition: bool, name: str, rule: str, value: float) -> None:
    if not condition:
        raise ValueError(f"{name} {rule}, got {value}")
