"""The step of local training: a batch's gradient, all optional terms, and the optimiser.

One step, in this order, for the trainable parameters w (w₀ at the start of the call):

    g ← ∇ loss(w)                        of one batch, as the task says (`fedge.tasks`)
    g ← g · min(1, clip_norm / (|g| + 1e-6))    over all parameters together, as `clip_grad_norm_`
    g ← g + prox_mu (w − w₀)
    g ← g + correction                   SCAFFOLD's c − c_i
    g ← g + weight_decay w               as `torch.optim.SGD`
    v ← momentum v + g                   v = 0 at the start of the call
    w ← w − lr v

With another `optimizer` the last three lines are its own (`fedge.training.optimizers`).

Clipping tames the noise of a batch gradient. The proximal term and weight decay are exact parts of the local
objective and are never clipped. The correction comes after the clip: Algorithm 1 says y ← y − η (g(y) − c_i +
c), where g is the (clipped) gradient of the local objective; a correction inside the clip would be shortened,
too, and c_i⁺ = c_i − c + (x − y) / (K η) would no longer be the mean of the g along the path. BatchNorm
buffers are not parameters: no term above touches them.

Shape letters: B windows of a batch, C channels, T samples; images are (B, C, H, W).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn

from fedge.training.cuda_graph import Step, graphed_or_plain
from fedge.training.gpu import products
from fedge.training.networks.own_models import OwnDraws
from fedge.training.optimizers import Optimizer, optimizer_of
from fedge.training.settings import LocalTraining

GRAPH_FROM = 30  # full batches per call from which recording a graph pays


class Sgd:
    """The step of the module docstring for all parameters of one model, during one `train` call.

    Working on one vector of all parameters was slower: gathering the gradients costs more than it saves.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: LocalTraining,
        correction: Mapping[str, np.ndarray] | None,
        draws: OwnDraws | None = None,
    ) -> None:
        self.model = model  # answers; training on several processes replaces it
        self.draws = draws
        parameters = trained(model)
        assert all(p.is_contiguous() for p in parameters.values()), (
            "the fused kernel needs contiguous parameters"
        )
        self.names = list(parameters)
        self.parameters = list(parameters.values())
        self.weights = [p.detach() for p in self.parameters]  # same memory, no gradient
        self.settings = settings
        self.start = [w.clone() for w in self.weights] if settings.prox_mu else None
        self.correction = None if correction is None else correction_tensors(parameters, correction)
        self.optimizer: Optimizer = optimizer_of(self.weights, settings)
        self.steps = 0

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """One update of the weights from a batch x (B, …), y (B,); its loss before the update, a scalar."""
        loss, gradients = self.gradients(x, y)
        with torch.no_grad():
            self.optimizer.move(self._corrected(gradients))
        return loss

    def gradients(self, x: Tensor, y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The mean loss, a scalar, of a batch x (B, …), y (B,), and its gradient for every parameter."""
        loss = self.loss(x, y)
        # Convolution hands back its weight gradient in its own memory order; the kernels of `step` go by
        # address. A parameter without a part in the loss gets zeros.
        gradients = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        return loss.detach(), tuple(g.contiguous() for g in gradients)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The task's mean loss of x (B, …), y (B, …), a differentiable scalar."""
        return self.settings.task.loss(self.answers(x), y, self.settings.label_smoothing)

    def answers(self, x: Tensor) -> Tensor:
        """The model's answers to x (B, …); random draws come from the model's own stream.

        Products are rounded as the settings say; answers are in the precision of the weights.
        """
        with products(x.device, self.settings.precision), self.drawing():
            logits: Tensor = self.model(x)
        return logits.float() if logits.dtype == torch.bfloat16 else logits

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Context with random draws from the model's own stream; the first records whether there are any."""
        with self.draws or nullcontext():
            yield
        if self.draws is not None and not self.draws.drew:
            self.draws = None

    def _corrected(self, gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Clipping, the proximal term and the correction, in this order."""
        if self.settings.clip_norm:
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
            scale = torch.clamp(self.settings.clip_norm / (norm + 1e-6), max=1.0)
            gradients = torch._foreach_mul(gradients, scale)
        if self.start is not None:
            drift = torch._foreach_sub(self.weights, self.start)
            gradients = torch._foreach_add(gradients, drift, alpha=self.settings.prox_mu)
        if self.correction is not None:
            gradients = torch._foreach_add(gradients, self.correction)
        return gradients

    def check_finite(self) -> None:
        """Raise FloatingPointError naming the first parameter that is not finite."""
        refuse_nonfinite_weights(self.names, self.weights, self.steps)


def trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def refuse_nonfinite_weights(names: Sequence[str], weights: Sequence[Tensor], steps: int) -> None:
    """Raise FloatingPointError naming the first weight array, of any shape, with non-finite values."""
    if all(map(math.isfinite, torch.stack([w.detach().sum() for w in weights]).tolist())):
        return  # a sum with a non-finite number is not finite, and takes a tenth of the time
    finite = torch.stack([torch.isfinite(w).all() for w in weights]).tolist()
    if not all(finite):
        name = names[finite.index(False)]
        raise FloatingPointError(f"training: weight {name!r} is not finite after {steps} steps")


def correction_tensors(
    parameters: Mapping[str, Tensor], correction: Mapping[str, np.ndarray]
) -> list[Tensor]:
    """The correction in the order, dtype, shape and place of the parameters."""
    mismatched = sorted(parameters.keys() ^ correction.keys())
    if mismatched:
        raise ValueError(
            f"training: correction must name the trainable parameters, but differs in {mismatched[0]!r}"
        )
    tensors = []
    for name, p in parameters.items():
        array = np.array(correction[name])
        if array.shape != tuple(p.shape):
            raise ValueError(
                f"training: correction {name!r} must have shape {tuple(p.shape)}, got {array.shape}"
            )
        tensors.append(torch.from_numpy(array).to(p.device, p.dtype))
    return tensors


def pays_recording(settings: LocalTraining, windows: int) -> bool:
    """Whether a call with `windows` windows has enough full batches for a graph, if graphs are enabled."""
    per_epoch = windows // settings.batch_size
    full_batches = sum(min(steps, per_epoch) for steps in settings.passes(windows))
    return settings.cuda_graph and full_batches >= GRAPH_FROM


def full_batch_step(model: nn.Module, sgd: Sgd, x: Tensor, y: Tensor) -> Step:
    """The step for full batches x (B, …), y (B,): on a GPU, recorded as a graph if enough of them pay for it.

    A model with random draws keeps its plain step, since a graph would draw other numbers; its first step
    shows whether it has any.
    """
    settings = sgd.settings
    memory = sgd.optimizer.memory
    if x.device.type != "cuda" or not pays_recording(settings, len(y)) or memory is None:
        return sgd.step
    state = [*sgd.weights, *memory, *model.buffers()]
    return recorded_when_known(sgd, lambda *batch: graphed_or_plain(sgd.step, state, *batch))


def recorded_when_known(sgd: Sgd, record: Callable[[Tensor, Tensor], Step]) -> Step:
    """The step of `sgd`, replaced by `record`'s result for a batch once known to be free of random draws.

    A batch is x (B, …) and y (B,); a step returns its loss, a scalar.
    """
    recorded: list[Step] = []

    def step(x: Tensor, y: Tensor) -> Tensor:
        if sgd.draws is not None:
            return sgd.step(x, y)
        if not recorded:
            recorded.append(record(x, y))
        return recorded[0](x, y)

    return step
