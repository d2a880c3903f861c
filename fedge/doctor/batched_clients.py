"""Steps of several clients computed as one: stacked weights, gradients by `torch.func.vmap`, one update.

This is a measurement, not a way to train: it shows whether a GPU whose kernels wait for each other would do
more steps per second if clients shared them. Clients need batches of one size and the same settings. Source:
PyTorch's notes on model ensembling.

Shape letters: K clients, B windows of a batch, C channels, T samples.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, stack_module_state, vmap

from fedge.native.trace import answer_with
from fedge.training.gpu import products
from fedge.training.optimizers import HeavyBall
from fedge.training.settings import LocalTraining


class BatchedStep:
    """A step of K clients at once, like that of `fedge.training.sgd` without correction and proximal term.

    Attributes:
        state: stacked weights, velocities and buffers, each (K, …); changed in place.
    """

    def __init__(self, models: Sequence[nn.Module], settings: LocalTraining) -> None:
        """Stack K models of one kind, which are not changed.

        Args:
            models: models on one device, in training mode.
            settings: settings common to all.
        """
        weights, buffers = stack_module_state(list(models))
        self._weights = {name: w.detach().contiguous() for name, w in weights.items()}
        self._buffers = {name: b.detach().clone() for name, b in buffers.items()}
        self._model, self._settings = models[0], settings
        self._optimizer = HeavyBall(list(self._weights.values()), settings)
        self.state = [*self._weights.values(), *self._optimizer.memory, *self._buffers.values()]
        self._gradients = vmap(
            grad_and_value(self._loss, has_aux=True), in_dims=(0, 0, 0, 0), randomness="error"
        )

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        """Take a step for each client on its batch, x (K, B, C, T) and y (K, B); returns the losses (K,)."""
        gradients, (losses, buffers) = self._gradients(self._weights, self._buffers, x, y)
        with torch.no_grad():
            for name, buffer in buffers.items():
                self._buffers[name].copy_(buffer)
            self._optimizer.move(self._clipped([gradients[name].contiguous() for name in self._weights]))
        return losses.detach()

    def _loss(
        self, weights: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of one client, and its buffers afterwards."""
        new_buffers = {name: buffer.clone() for name, buffer in buffers.items()}
        with products(x.device, self._settings.precision):
            logits = answer_with(self._model, {**weights, **new_buffers}, x)
        loss = self._settings.task.loss(logits.float(), y, self._settings.label_smoothing)
        return loss, new_buffers

    def _clipped(self, gradients: list[Tensor]) -> list[Tensor]:
        """Gradients (K, …), clipped by each client's own norm."""
        if not self._settings.clip_norm:
            return gradients
        norms = torch.stack([g.flatten(1).square().sum(1) for g in gradients]).sum(0).sqrt()
        scale = torch.clamp(self._settings.clip_norm / (norms + 1e-6), max=1.0)
        return [g * scale.view(-1, *[1] * (g.dim() - 1)) for g in gradients]

    def weights_of(self, client: int) -> dict[str, Tensor]:
        """Weights of one of the K clients by name, in the shapes of its network."""
        return {name: w[client] for name, w in self._weights.items()}
