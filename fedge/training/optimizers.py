"""Optimisers, which move the weights by a gradient: SGD with momentum, Adam, or any of `torch.optim`.

The first two call the kernels behind `torch.optim` directly, since its bookkeeping takes 50 us a step. Every
call of `train` starts with an empty optimiser state: clients keep nothing between rounds.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from fedge.config.registers.determinism import call_checked
from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.option import ConfigError, refuse_duplicate_arguments
from fedge.config.registers.parts import OPTIMIZERS
from fedge.config.sections.train import TrainConfig
from fedge.training.settings import LocalTraining, optimizer_arguments

_OPTIONS = {"lr": "train.lr", "weight_decay": "train.weight-decay"}  # argument → its option
BETAS, EPSILON = (0.9, 0.999), 1e-8  # Kingma and Ba's, and PyTorch's


class Optimizer(Protocol):
    """Optimiser of the weights.

    Attributes:
        memory: tensors kept between steps and changed in place; None if unknown.
    """

    memory: list[Tensor] | None

    def move(self, gradients: Sequence[Tensor]) -> None:
        """Move the weights by one step; gradients have their order, shapes, dtype and device."""


class HeavyBall:
    """g ← g + weight_decay w, v ← momentum v + g, w ← w − lr v, as `torch.optim.SGD` (Polyak 1964)."""

    def __init__(self, weights: Sequence[Tensor], settings: LocalTraining) -> None:
        """Begin; `weights` are float32 of any shape, and are changed in place."""
        self.memory = [torch.zeros_like(w) for w in weights] if settings.momentum else []
        self._weights = list(weights)
        self._settings = settings

    def move(self, gradients: Sequence[Tensor]) -> None:
        """Move the weights by one step; gradients have their order and shapes."""
        torch._fused_sgd_(
            self._weights,
            list(gradients),
            self.memory,
            lr=self._settings.lr,
            momentum=self._settings.momentum,
            weight_decay=self._settings.weight_decay,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,  # the velocity is zero then, which gives the same
        )


class Adam:
    """Adam (Kingma and Ba 2015, Algorithm 1) with `BETAS` and `EPSILON`; weight decay joins the gradient.

        g ← g + weight_decay w
        m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²
        w ← w − lr (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε),  t the number of the step

    as `torch.optim.Adam`.
    """

    def __init__(self, weights: Sequence[Tensor], settings: LocalTraining) -> None:
        """Begin; `weights` are float32 of any shape, and are changed in place."""
        self._weights = list(weights)
        self._means = [torch.zeros_like(w) for w in weights]
        self._squares = [torch.zeros_like(w) for w in weights]
        self._steps = [torch.zeros((), device=w.device) for w in weights]
        self.memory = [*self._means, *self._squares, *self._steps]
        self._settings = settings

    def move(self, gradients: Sequence[Tensor]) -> None:
        """Move the weights by one step; gradients have their order and shapes."""
        torch._foreach_add_(self._steps, 1.0)
        torch._fused_adam_(
            self._weights,
            list(gradients),
            self._means,
            self._squares,
            [],
            self._steps,
            lr=self._settings.lr,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=self._settings.weight_decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )


class OfTorch:
    """An optimiser of PyTorch, or one with the same interface.

    The constructor gets the parameters, `lr`, and `weight_decay` if it takes one; otherwise weight decay is
    added to the gradient. All further arguments come from `train.optimizer-args`.
    """

    memory: list[Tensor] | None = None

    def __init__(self, weights: Sequence[Tensor], settings: LocalTraining) -> None:
        """Begin; `weights` are float32 of any shape, and are changed in place."""
        self._weights = [nn.Parameter(w, requires_grad=True) for w in weights]  # on the same memory
        make, arguments = OPTIMIZERS.load(settings.optimizer), dict(settings.optimizer_args)
        takes_decay = "weight_decay" in inspect.signature(make).parameters
        if takes_decay:
            arguments = {"weight_decay": settings.weight_decay, **arguments}
        self._decay = 0.0 if takes_decay else settings.weight_decay
        self._optimizer: Any = make(self._weights, lr=settings.lr, **arguments)

    def move(self, gradients: Sequence[Tensor]) -> None:
        """Move the weights by one step; gradients have their order and shapes."""
        for weight, gradient in zip(self._weights, gradients, strict=True):
            weight.grad = gradient if not self._decay else gradient.add(weight.detach(), alpha=self._decay)
        with torch.no_grad():
            self._optimizer.step()


def optimizer_of(weights: Sequence[Tensor], settings: LocalTraining) -> Optimizer:
    """The configured optimiser for weights, float32 of any shape, which it changes in place."""
    factory = OPTIMIZERS.load(settings.optimizer)
    optimizer: Optimizer = (factory if factory in (HeavyBall, Adam) else OfTorch)(weights, settings)
    return optimizer


def refuse_optimizer(config: TrainConfig) -> None:
    """Raise ConfigError for an optimiser whose constructor fails, or whose step needs more than gradients.

    Args:
        config: configuration of the run.
    """
    label, arguments = f"train.optimizer {config.optimizer}", optimizer_arguments(config)
    code = OPTIMIZERS.load(config.optimizer)
    if code in (HeavyBall, Adam):
        if arguments:
            raise ConfigError(
                f"{label} takes no train.optimizer-args, but they are {config.optimizer_args}; remove them, "
                f'or name one of PyTorch\'s, as "torch.optim:Adam"'
            )
        return
    refuse_duplicate_arguments("train.optimizer-args", dict(arguments), _OPTIONS)
    settings = LocalTraining(
        lr=min(config.lr, 1.0), weight_decay=config.weight_decay, optimizer=config.optimizer,
        optimizer_args=arguments,
    )  # fmt: skip

    def take_steps() -> Tensor:
        weight = torch.ones(2, 2)
        optimizer = optimizer_of([weight], settings)
        optimizer.move([torch.full((2, 2), 0.5)])
        optimizer.move([torch.full((2, 2), 0.25)])
        return weight

    try:
        weight = call_checked(OPTIMIZERS, config.optimizer, take_steps, in_threads=True)
    except ConfigError:
        raise
    except own_errors() as error:
        raise ConfigError(
            f"{label} cannot take a step: {own_error(error)}; fix it, or change train.optimizer-args"
        ) from error
    if weight.eq(1).all() or not weight.isfinite().all():
        raise ConfigError(
            f"{label} must move weights to finite ones in a step, but 1 becomes {weight[0, 0].item():g} by "
            f"two gradients; it must change the parameters' memory in place"
        )
