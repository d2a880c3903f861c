"""Local training with a method's changes: loss, proximal pulls, trained parameters, callbacks.

The step of `fedge.training.sgd`, with pulls added after its correction: g ← g + Σ_j μ_j (w − w_j).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from fedge.config.registers.option import shown
from fedge.states.averaging import State
from fedge.training.host import keep_freed_memory, torch_threads
from fedge.training.local import one_pass, pass_loss
from fedge.training.networks.module_state import get_state, tensor_of
from fedge.training.networks.own_models import OwnDraws
from fedge.training.optimizers import optimizer_of
from fedge.training.passes import mean_of_passes
from fedge.training.settings import LocalTraining, check_data
from fedge.training.sgd import Sgd, trained

BatchLoss = Callable[[nn.Module, Tensor, Tensor], Tensor]
"""(network, x (B, …), y (B, …)) → a scalar that can be differentiated."""


@dataclass(frozen=True)
class Fit:
    """Result of local training.

    Attributes:
        state: the whole model, copied.
        loss: mean training loss over all windows and epochs, including the method's penalty.
        steps: number of optimiser steps taken.
    """

    state: State = field(repr=False)
    loss: float
    steps: int


@dataclass(frozen=True)
class Changes:
    """A method's changes to local training.

    Attributes:
        pulls: (μ_j, w_j): strength, at least 0, and weights by name; parameters not in w_j are not pulled.
        correction: added to every gradient, one array per trainable parameter.
        only: names of the parameters to train; None for all trainable ones.
        loss: replaces the run's loss.
        penalty: added to the loss.
        after: called after every step with the `Trainer`.
    """

    pulls: Sequence[tuple[float, State]] = ()
    correction: State | None = None
    only: Sequence[str] | None = None
    loss: BatchLoss | None = None
    penalty: BatchLoss | None = None
    after: Callable[[Trainer], None] | None = None

    @property
    def needs_torch(self) -> bool:
        """Whether the step differs from the one of `fedge.training.local.train`."""
        return bool(
            self.pulls or self.only is not None or self.loss or self.penalty or self.after is not None
        )


class Trainer(Sgd):
    """A network trained step by step.

    Attributes:
        names, weights: names and values of the trained parameters, in the same order; weights may be changed
            in place.
        steps: number of steps taken.
    """

    def __init__(
        self, network: nn.Module, settings: LocalTraining, changes: Changes, draws: OwnDraws | None = None
    ) -> None:
        """Train the unfrozen parameters of `network` from their current weights."""
        super().__init__(network, settings, _trainable_part(network, changes.correction), draws)
        self._changes = changes
        self.pull_to(*changes.pulls)

    def pull_to(self, *pulls: tuple[float, Mapping[str, np.ndarray | Tensor]]) -> None:
        """Replace the pulls: each is (strength, name → array of the parameter's shape)."""
        self._pulls = []
        for strength, state in pulls:
            if not 0 <= strength < float("inf"):
                raise ValueError(f"a pull must be at least 0 and finite, but is {strength}")
            indices = [i for i, name in enumerate(self.names) if name in state]
            targets = [_copy_like(state[self.names[i]], self.weights[i]) for i in indices]
            self._pulls.append((strength, indices, targets))

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """Update the weights from a batch x (B, …), y (B, …); returns the scalar loss before the update."""
        loss = super().step(x, y)
        self.steps += 1
        if self._changes.after is not None:
            self._changes.after(self)
        return loss

    def move(self, gradients: Sequence[Tensor]) -> None:
        """Update the weights from gradients of the same shapes, with clipping, correction and pulls."""
        with torch.no_grad():
            self.optimizer.move(self._corrected(tuple(gradients)))
        self.steps += 1

    def reset_optimizer(self) -> None:
        """Reset the optimiser's state, such as its velocity; the weights are kept."""
        self.optimizer = optimizer_of(self.weights, self.settings)

    def state(self) -> State:
        """The state of the whole network, copied.

        Raises:
            FloatingPointError: a weight is not finite.
        """
        self.check_finite()
        return get_state(self.model)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Loss of a batch x (B, …), y (B, …) with the method's changes: a differentiable scalar."""
        changes = self._changes
        if changes.loss is None:
            loss = super().loss(x, y)
        else:
            with self.drawing():
                loss = _scalar("loss", changes.loss(self.model, x, y))
            if not loss.requires_grad:
                raise TypeError("loss must be computed from the network's weights, but has no gradient")
        if changes.penalty is None:
            return loss
        with self.drawing():
            return loss + _scalar("penalty", changes.penalty(self.model, x, y))

    def _corrected(self, gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Gradients corrected as in `Sgd`, then with the pulls added."""
        corrected = list(super()._corrected(gradients))
        for strength, indices, targets in self._pulls:
            for i, target in zip(indices, targets, strict=True):
                corrected[i] = corrected[i] + strength * (self.weights[i] - target)
        return tuple(corrected)


def _scalar(name: str, value: object) -> Tensor:
    """Value of a method's own loss or penalty on a batch; a plain number is a constant.

    Raises:
        TypeError: it is no single number.
    """
    if isinstance(value, (int, float, np.generic)):
        value = torch.tensor(float(value))
    if not isinstance(value, Tensor) or value.numel() != 1:
        description = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else shown(value)
        raise TypeError(
            f"{name} must answer one number for a batch, as a mean does, but answers {description}"
        )
    return value.reshape(()) if value.ndim else value


def _copy_like(value: np.ndarray | Tensor, like: Tensor) -> Tensor:
    """Copy of an array or tensor with the device and dtype of another tensor."""
    tensor = value.detach() if isinstance(value, Tensor) else tensor_of(np.array(value))
    return tensor.to(like.device, like.dtype, copy=True)


def _trainable_part(network: nn.Module, correction: State | None) -> State | None:
    """Part of a correction for the trainable parameters."""
    return None if correction is None else {name: correction[name] for name in trained(network)}


def descend(
    network: nn.Module,
    x: Tensor,
    y: Tensor,
    settings: LocalTraining,
    generator: torch.Generator,
    changes: Changes,
    draws: OwnDraws | None = None,
) -> Fit:
    """Train a network on all windows, for the epochs or steps in `settings`.

    Args:
        network: starts from its current weights, and ends in training mode with the new ones.
        x: windows (N, …), on any device.
        y: labels (N, …).
        settings: settings of local training.
        generator: random stream for one permutation per epoch.
        changes: the method's changes.
        draws: random stream for a model with draws during training.

    Raises:
        ValueError: there is no window, or a name is unknown.
        FloatingPointError: a loss or a weight is not finite.
    """
    check_data(x, y)
    keep_freed_memory()
    with torch_threads(settings.threads), training_only(network, changes.only):
        device = next(network.parameters()).device
        x, y = x.to(device), y.to(device)
        network.train()
        trainer = Trainer(network, settings, changes, draws)
        losses, passes = [], settings.passes(len(y))
        for count in passes:
            steps_before, batches = trainer.steps, one_pass(len(y), settings, count, generator)
            rows = batches.rows(device)
            step_losses = [trainer.step(batches.inputs(x, batch), y.index_select(0, batch)) for batch in rows]
            per_step = torch.stack(step_losses).double().cpu().numpy()
            losses.append(pass_loss(per_step, len(batches.order), settings.batch_size, steps_before))
        return Fit(
            trainer.state(), mean_of_passes(losses, passes, len(y), settings.batch_size), trainer.steps
        )


@contextmanager
def training_only(network: nn.Module, only: Sequence[str] | None) -> Iterator[None]:
    """Context in which only the named parameters can be trained; None for all trainable ones.

    Raises:
        ValueError: a name is not a trainable parameter, or no name is given.
    """
    trainable = trained(network)
    if only is None:
        yield
        return
    unknown = sorted(set(only) - set(trainable))
    if unknown or not only:
        raise ValueError(
            f"only must name parameters that train, but has {repr(unknown[0]) if unknown else 'none'}"
        )
    frozen = [p for name, p in trainable.items() if name not in set(only)]
    for parameter in frozen:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(True)
