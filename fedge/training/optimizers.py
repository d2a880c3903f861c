"""How a step moves the weights once its gradient is known: SGD with momentum, or Adam.

Both call the kernels behind `torch.optim` themselves, since its bookkeeping takes 50 us a step. What an
optimiser remembers begins anew in every call of `train`: clients keep nothing between rounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from fedge.training.settings import LocalTraining

SGD, ADAM = "sgd", "adam"
BETAS, EPSILON = (0.9, 0.999), 1e-8  # Kingma and Ba's, and PyTorch's


class Optimizer(Protocol):
    """Optimiser of the weights.

    Attributes:
        memory: tensors that it keeps between steps and changes in place.
    """

    memory: list[Tensor]

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


OPTIMIZERS: Mapping[str, type[HeavyBall] | type[Adam]] = {SGD: HeavyBall, ADAM: Adam}
