"""Local training and evaluation of one model: arrays in, arrays out.

Local SGD of federated averaging (McMahan et al. 2017), with FedProx's proximal term (Li et al. 2020) and
SCAFFOLD's correction (Karimireddy et al. 2020) as options.

One step, in this order, for the trainable parameters w (w₀ at the start of the call):

    g ← ∇ cross entropy(w)               of one batch
    g ← g · min(1, clip_norm / (|g| + 1e-6))    over all parameters together, as `clip_grad_norm_`
    g ← g + prox_mu (w − w₀)
    g ← g + correction                   SCAFFOLD's c − c_i
    g ← g + weight_decay w               as `torch.optim.SGD`
    v ← momentum v + g                   v = 0 at the start of the call
    w ← w − lr v

Clipping tames the noise of a batch gradient. The proximal term and weight decay are exact parts of the local
objective and are never clipped. The correction comes after the clip: Algorithm 1 says
y ← y − η (g(y) − c_i + c), where g is the (clipped) gradient of the local objective; a correction inside
the clip would be shortened with it, and c_i⁺ = c_i − c + (x − y) / (K η) would no longer be the mean of the
g along the path.
BatchNorm buffers are not parameters: no term above touches them.

Nothing draws from global random state.
Shape letters: N windows, C channels, T samples, K optimiser steps; images are (N, C, H, W).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedge.metrics import scores
from fedge.native.plan import Plan
from fedge.native.training import Descent, evaluated, training
from fedge.training.cuda_graph import Step, graphed_or_plain
from fedge.training.kernels import native_plan
from fedge.training.models import state_entries
from fedge.training.own_models import OwnDraws

_GRAPH_FROM = 30  # full batches per call from which recording a graph pays

State = dict[str, np.ndarray]
"""Name → array, in the order of the module's state dict; integer entries are counters."""


@dataclass(frozen=True)
class LocalTraining:
    """How a client trains in one leaf round."""

    lr: float = 0.01  # η, > 0
    momentum: float = 0.0  # heavy ball, in [0, 1)
    weight_decay: float = 0.0  # L2 coefficient on all parameters, >= 0
    clip_norm: float = 0.0  # largest norm of a batch gradient; 0 = off
    label_smoothing: float = 0.0  # in [0, 1)
    epochs: int = 1  # passes over the client's windows
    batch_size: int = 32  # windows; the last batch of an epoch may be smaller
    prox_mu: float = 0.0  # FedProx's μ, >= 0; 0 = off
    threads: int = 1  # torch threads on the CPU; the number changes the last bits
    kernel: str = "torch"  # what computes steps; others than "torch" where a model is known to `fedge.native`
    cuda_graph: bool = True  # on a GPU, record the step once and replay it

    def __post_init__(self) -> None:
        _require(0 < self.lr < math.inf, "lr", "must be positive and finite", self.lr)
        _require(0 <= self.momentum < 1, "momentum", "must be in [0, 1)", self.momentum)
        for name in ("weight_decay", "clip_norm", "prox_mu"):
            value = getattr(self, name)
            _require(0 <= value < math.inf, name, "must be non-negative and finite", value)
        _require(0 <= self.label_smoothing < 1, "label_smoothing", "must be in [0, 1)", self.label_smoothing)
        for name in ("epochs", "batch_size", "threads"):
            _require(getattr(self, name) >= 1, name, "must be at least 1", getattr(self, name))


@dataclass(frozen=True)
class TrainResult:
    """What local training leaves behind."""

    state: State  # the whole state dict, buffers included; copies
    loss: float  # mean over all windows of all epochs of the (smoothed) cross entropy during training
    steps: int  # K, optimiser steps taken


@dataclass(frozen=True)
class EvalResult:
    """What evaluation measures; sums of several clients' confusions are again a confusion."""

    samples: int  # N
    loss: float  # mean cross entropy, no label smoothing
    confusion: np.ndarray  # int64 (classes, classes): rows true, columns predicted
    right: np.ndarray  # bool (N,): window by window whether the prediction is right

    @property
    def accuracy(self) -> float:
        """Share of windows on the diagonal, in [0, 1]."""
        return scores.accuracy(self.confusion)

    @property
    def macro_f1(self) -> float:
        """Unweighted mean F1 over the classes that occur as truth or prediction, in [0, 1]."""
        return scores.macro_f1(self.confusion)


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    settings: LocalTraining,
    generator: torch.Generator,
    correction: Mapping[str, np.ndarray] | None = None,
    state: Mapping[str, np.ndarray] | None = None,
    draws: torch.Generator | None = None,
) -> TrainResult:
    """Train `model` on all windows for `settings.epochs` epochs of SGD and return its new state.

    The model is the workspace: it is left in training mode with the returned state loaded. The order of
    the windows comes from `generator` alone, one permutation per epoch. Same inputs, same bits, wherever
    `x` lies in memory.

    Args:
        model: on the device to train on.
        x: float32 (N, C, T), N ≥ 1; any device; read only, may be a memory-mapped file.
        y: int64 (N), labels in 0 … classes − 1.
        settings: step size, options and threads.
        generator: a CPU generator; it advances by one permutation per epoch.
        correction: SCAFFOLD's c − c_i, one array per trainable parameter; None for none.
        state: loaded first if given; otherwise training starts from the model as it is.
        draws: for a model that draws in training (dropout); None for one that does not.

    Raises:
        ValueError: there is no window, shapes or names do not fit.
        FloatingPointError: a loss or a weight is not finite; names which and the step.

    Source: McMahan et al. 2017, Algorithm 1, ClientUpdate; order of the terms in the module docstring.
    """
    check_data(x, y)
    if state is not None:
        load_state(model, state)
    keep_freed_memory()
    plan = native_plan(model, tuple(x.shape[1:]), settings.kernel)
    with torch_threads(settings.threads):
        device = next(model.parameters()).device
        x, y = x.to(device), y.to(device)
        model.train()
        if plan is not None:
            losses, steps = _train_natively(plan, model, x, y, settings, generator, correction, draws)
            return TrainResult(get_state(model), float(np.mean(losses)), steps)
        sgd = Sgd(model, settings, correction, None if draws is None else OwnDraws(draws))
        step = _full_batch_step(model, sgd, x, y)
        losses = [_train_epoch(sgd, step, x, y, generator, epoch) for epoch in range(settings.epochs)]
        sgd.check_finite()
        return TrainResult(get_state(model), float(np.mean(losses)), sgd.steps)


def _train_natively(
    plan: Plan,
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    settings: LocalTraining,
    generator: torch.Generator,
    correction: Mapping[str, np.ndarray] | None,
    draws: torch.Generator | None,
) -> tuple[list[float], int]:
    """Train by the native step; return the mean loss of each epoch and the number of steps. See `train`."""
    named = _trained(model)
    added = None
    if correction is not None:
        added = dict(zip(named, _correction_tensors(named, correction), strict=True))
    s = settings
    descent = Descent(
        s.lr, s.momentum, s.weight_decay, s.clip_norm, s.label_smoothing, s.prox_mu, s.batch_size
    )
    losses = []
    with training(plan, model, x, y, descent, added, draws) as epochs:
        for epoch in range(settings.epochs):
            order = torch.randperm(len(y), generator=generator).numpy()
            losses.append(epoch_loss(epochs.epoch(order), len(y), settings.batch_size, epoch))
    _refuse_what_is_not_finite(list(named), [p.detach() for p in named.values()], epochs.steps)
    return losses, epochs.steps


def evaluate(model: nn.Module, x: Tensor, y: Tensor, batch_size: int = 512, threads: int = 1) -> EvalResult:
    """Loss and confusion matrix on x (N, C, T) float32, y (N,) int64: `evaluate_parts` with a single part."""
    return evaluate_parts(model, x, y, [len(y)], batch_size, threads)[0]


@torch.inference_mode()
def evaluate_parts(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    sizes: Sequence[int],
    batch_size: int = 512,
    threads: int = 1,
    kernel: str = "torch",
) -> list[EvalResult]:
    """Loss and confusion matrix of `model` on consecutive parts of the windows; the model's mode is put back.

    BatchNorm uses its running statistics and does not change them.

    Args:
        model: on the device to evaluate on.
        x: float32 (N, C, T), N ≥ 1; any device; read only.
        y: int64 (N).
        sizes: windows of each part, e.g. validation and test; each at least 1, N in sum.
        batch_size: windows per forward pass; changes speed and memory only (and last bits of the loss).
        threads: torch threads on the CPU.
        kernel: as in `LocalTraining`.

    Raises:
        ValueError: there is no window, or shapes or sizes do not fit.
        FloatingPointError: a loss is not finite.
    """
    check_data(x, y)
    if sum(sizes) != len(y) or min(sizes) < 1:
        raise ValueError(f"sizes must be positive and sum to {len(y)} windows, got {list(sizes)}")
    keep_freed_memory()
    plan = native_plan(model, tuple(x.shape[1:]), kernel)
    if plan is None:
        losses, cells, classes = _evaluated_by_torch(model, x, y, batch_size, threads)
    else:
        losses, predictions = evaluated(plan, model, x, y)
        cells, classes = y * plan.classes + predictions, plan.classes
    parts = zip(losses.split(list(sizes)), cells.split(list(sizes)), strict=True)
    return [_eval_result(part_losses, part_cells, classes) for part_losses, part_cells in parts]


def _evaluated_by_torch(
    model: nn.Module, x: Tensor, y: Tensor, batch_size: int, threads: int
) -> tuple[Tensor, Tensor, int]:
    """Return each window's loss (float64), its cell of the confusion matrix, row by row, and the classes."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        with torch_threads(threads):
            losses, cells, classes = [], [], 0
            for first in range(0, len(y), batch_size):
                inputs = x[first : first + batch_size].to(device, copy=True)
                labels = y[first : first + batch_size].to(device)
                logits = model(inputs)
                classes = logits.shape[1]
                losses.append(F.cross_entropy(logits, labels, reduction="none"))
                cells.append(labels * classes + logits.argmax(dim=1))
            return torch.cat(losses).double().cpu(), torch.cat(cells).cpu(), classes
    finally:
        model.train(was_training)


def _eval_result(losses: Tensor, cells: Tensor, classes: int) -> EvalResult:
    """The result of one part from each window's loss and cell of the confusion matrix, row by row."""
    loss = float(losses.mean())
    if not math.isfinite(loss):
        raise FloatingPointError(f"evaluation: loss is {loss} over {len(losses)} windows")
    confusion = torch.bincount(cells, minlength=classes * classes).reshape(classes, classes)
    right = cells // classes == cells % classes
    return EvalResult(len(losses), loss, confusion.numpy(), right.numpy())


def get_state(model: nn.Module) -> State:
    """A copy of the model's state dict as arrays on the host; a tensor of two names is in it once."""
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in state_entries(model).items()}


def load_state(model: nn.Module, state: Mapping[str, np.ndarray]) -> None:
    """Copy `state` into the model, in the model's precision; they share no memory afterwards.

    Raises:
        ValueError: an entry is missing, unknown or of another shape.
    """
    own = state_entries(model)
    differing = sorted(own.keys() ^ state.keys())
    if differing:
        where = "is missing from the state" if differing[0] in own else "is unknown to the model"
        raise ValueError(f"load_state: entry {differing[0]!r} {where}")
    with torch.no_grad():
        for name, tensor in own.items():
            array = np.asarray(state[name])
            if array.shape != tuple(tensor.shape):
                raise ValueError(
                    f"load_state: entry {name!r} must have shape {tuple(tensor.shape)}, got {array.shape}"
                )
            tensor.copy_(tensor_of(array))


def tensor_of(array: np.ndarray) -> Tensor:
    """A CPU tensor on the memory of `array`, of its shape and dtype.

    The array may be read-only or memory-mapped: never write to the tensor.
    """
    _silence_read_only_warning()
    return torch.from_numpy(array)


@functools.cache
def _silence_read_only_warning() -> None:
    """Let PyTorch give its only warning about read-only arrays now, unseen: it warns once per process."""
    read_only = np.zeros(1)
    read_only.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.from_numpy(read_only)


@contextlib.contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Run the body with this many torch threads on the CPU, then put the number back."""
    before = torch.get_num_threads()
    if threads == before:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@functools.cache
def keep_freed_memory() -> None:
    """Have glibc keep freed memory for reuse instead of handing it back to the system. No-op elsewhere.

    Every layer's output is a block of about 1 MiB that lives for one step. By default glibc maps and unmaps
    such blocks each time, and the page faults take as long as the arithmetic. Holds for the whole process,
    from its first training on; up to 512 MiB of freed memory stay with it; results do not change.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        m_trim_threshold, m_mmap_threshold = -1, -3  # <malloc.h>
        mallopt(m_mmap_threshold, 32 * 2**20)  # larger blocks are still mapped one by one
        mallopt(m_trim_threshold, 512 * 2**20)


class Sgd:
    """The step of the module docstring for all parameters of one model; lives for one `train` call.

    Calls the kernel behind `torch.optim.SGD(fused=True)` itself, since the optimiser's bookkeeping takes
    50 us a step. One vector of all parameters was slower: gathering the gradients costs what it saves.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: LocalTraining,
        correction: Mapping[str, np.ndarray] | None,
        draws: OwnDraws | None = None,
    ) -> None:
        self.model = model  # answers; who trains on several processes puts another one in its place
        self.draws = draws
        named = _trained(model)
        assert all(p.is_contiguous() for p in named.values()), "the fused kernel needs contiguous parameters"
        self.names = list(named)
        self.parameters = list(named.values())
        self.weights = [p.detach() for p in self.parameters]  # same memory, no gradient
        self.settings = settings
        self.start = [w.clone() for w in self.weights] if settings.prox_mu else None
        self.correction = None if correction is None else _correction_tensors(named, correction)
        self.velocity = [torch.zeros_like(w) for w in self.weights] if settings.momentum else []
        self.steps = 0

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """One update of the weights from a batch x (B, …), y (B,); its loss before the update, a scalar."""
        loss, gradients = self.gradients(x, y)
        with torch.no_grad():
            torch._fused_sgd_(
                self.weights,
                self._corrected(gradients),
                self.velocity,
                lr=self.settings.lr,
                momentum=self.settings.momentum,
                weight_decay=self.settings.weight_decay,
                dampening=0.0,
                nesterov=False,
                maximize=False,
                is_first_step=False,  # the velocity is zero then, which gives the same
            )
        return loss

    def gradients(self, x: Tensor, y: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The mean loss, a scalar, of a batch x (B, …), y (B,), and its gradient for every parameter."""
        loss = self.loss(x, y)
        # Convolution hands back its weight gradient in its own memory order; the kernels of `step` go by
        # address. A parameter that has no part in the loss gets zeros.
        found = torch.autograd.grad(loss, self.parameters, materialize_grads=True)
        return loss.detach(), tuple(g.contiguous() for g in found)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean (smoothed) cross entropy of x (B, …), y (B,), a scalar that can be differentiated."""
        return F.cross_entropy(self._logits(x), y, label_smoothing=self.settings.label_smoothing)

    def _logits(self, x: Tensor) -> Tensor:
        """The model's answer; what it draws, if it draws in its first step, comes from its own stream."""
        if self.draws is None:
            return self.model(x)
        with self.draws:
            logits: Tensor = self.model(x)
        if not self.draws.drew:
            self.draws = None
        return logits

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
        _refuse_what_is_not_finite(self.names, self.weights, self.steps)


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _refuse_what_is_not_finite(names: Sequence[str], weights: Sequence[Tensor], steps: int) -> None:
    """Raise FloatingPointError naming the first parameter that is not finite."""
    finite = torch.stack([torch.isfinite(w).all() for w in weights]).tolist()
    if not all(finite):
        name = names[finite.index(False)]
        raise FloatingPointError(f"training: weight {name!r} is not finite after {steps} steps")


def _correction_tensors(named: Mapping[str, Tensor], correction: Mapping[str, np.ndarray]) -> list[Tensor]:
    """The correction in the order, precision and place of the parameters."""
    differing = sorted(named.keys() ^ correction.keys())
    if differing:
        raise ValueError(
            f"training: correction must name the trainable parameters, but differs in {differing[0]!r}"
        )
    tensors = []
    for name, p in named.items():
        array = np.array(correction[name])
        if array.shape != tuple(p.shape):
            raise ValueError(
                f"training: correction {name!r} must have shape {tuple(p.shape)}, got {array.shape}"
            )
        tensors.append(torch.from_numpy(array).to(p.device, p.dtype))
    return tensors


def _full_batch_step(model: nn.Module, sgd: Sgd, x: Tensor, y: Tensor) -> Step:
    """The step for full batches: on a GPU, recorded as a graph if there are enough of them to pay for it.

    A model that draws keeps its plain step: a graph would draw other numbers. Its first step tells.
    """
    settings = sgd.settings
    full_batches = len(y) // settings.batch_size * settings.epochs
    if x.device.type != "cuda" or not settings.cuda_graph or full_batches < _GRAPH_FROM:
        return sgd.step
    state = [*sgd.weights, *sgd.velocity, *model.buffers()]
    return recorded_when_known(sgd, lambda *batch: graphed_or_plain(sgd.step, state, *batch))


def recorded_when_known(sgd: Sgd, record: Callable[[Tensor, Tensor], Step]) -> Step:
    """The step of `sgd`, replaced by what `record` makes of a batch as soon as it is known not to draw.

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


def _train_epoch(
    sgd: Sgd, full_batch_step: Step, x: Tensor, y: Tensor, generator: torch.Generator, epoch: int
) -> float:
    """One pass over all windows in random order; mean loss. One wait for the device, at the end."""
    order = torch.randperm(len(y), generator=generator).to(x.device)
    losses, batch_size = [], sgd.settings.batch_size
    for batch in order.split(batch_size):
        step = full_batch_step if len(batch) == batch_size else sgd.step
        losses.append(step(x.index_select(0, batch), y.index_select(0, batch)))
    sgd.steps += len(losses)
    return epoch_loss(torch.stack(losses).double().cpu().numpy(), len(y), batch_size, epoch)


def epoch_loss(per_step: np.ndarray, windows: int, batch_size: int, epoch: int) -> float:
    """Mean loss over an epoch's windows, from that of each batch (K,); all but the last are of one size.

    Raises:
        FloatingPointError: one is not finite.
    """
    wrong = np.flatnonzero(~np.isfinite(per_step))
    if len(wrong):
        number = epoch * len(per_step) + int(wrong[0]) + 1
        raise FloatingPointError(f"training: loss is {per_step[wrong[0]]} at step {number}")
    sizes = np.full(len(per_step), batch_size)
    sizes[-1] = windows - sizes[:-1].sum()
    return float((per_step * sizes).sum() / windows)


def check_data(x: Tensor, y: Tensor) -> None:
    """Raise ValueError unless x is float32 (N, C, T) or (N, C, H, W), y int64 (N,) and N at least 1."""
    if x.dim() not in (3, 4) or x.dtype != torch.float32:
        raise ValueError(
            f"x must be float32 of shape (N, C, T) or (N, C, H, W), got {x.dtype} {tuple(x.shape)}"
        )
    if y.dtype != torch.int64 or tuple(y.shape) != (len(x),):
        raise ValueError(f"y must be int64 of shape ({len(x)},), got {y.dtype} {tuple(y.shape)}")
    if len(y) == 0:
        raise ValueError("there is no window to train on or evaluate: x has shape (0, …)")


def _require(holds: bool, name: str, rule: str, value: float) -> None:
    if not holds:
        raise ValueError(f"{name} {rule}, got {value}")
