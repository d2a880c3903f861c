"""Losses and confusion matrices of one model: arrays in, arrays out.

Shape letters: N windows, C channels, T samples; images are (N, C, H, W).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedge.metrics import scores
from fedge.native.training import evaluated
from fedge.training.host import keep_freed_memory, torch_threads
from fedge.training.kernels import native_plan
from fedge.training.settings import check_data


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
