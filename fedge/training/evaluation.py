"""Evaluation of one model on arrays: its loss, and the sums from which its task's scores follow.

Shape letters: N windows, C channels, T samples; images are (N, C, H, W).
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor, nn

from fedge.metrics import scores
from fedge.native.training import evaluated
from fedge.tasks.classification import CONFUSION
from fedge.tasks.configured import CLASSIFICATION
from fedge.tasks.task import Sums, Task, total_sums
from fedge.training.host import LARGEST_KEPT, keep_freed_memory, torch_threads
from fedge.training.kernels import TORCH, native_plan
from fedge.training.networks.unsaved_state import Unsaved
from fedge.training.settings import check_data


@dataclass(frozen=True)
class EvalResult:
    """Measures of one evaluation on N windows."""

    samples: int  # N
    loss: float  # the mean, without label smoothing
    sums: Sums  # the task's sums over the windows
    values: np.ndarray  # (N,): the first score's terms, window by window; whether the prediction is right
    task: Task = CLASSIFICATION

    @property
    def confusion(self) -> np.ndarray:
        """At classification, int64 (classes, classes): rows true, columns predicted."""
        return self.sums[CONFUSION]

    @property
    def accuracy(self) -> float:
        """At classification, the share of windows on the diagonal, in [0, 1]."""
        return scores.accuracy(self.confusion)

    @property
    def macro_f1(self) -> float:
        """At classification, the mean F1 over the classes present as truth or prediction, in [0, 1]."""
        return scores.macro_f1(self.confusion)


def evaluate(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    batch_size: int = 512,
    threads: int = 1,
    task: Task = CLASSIFICATION,
) -> EvalResult:
    """Measures on x (N, …) float32 or int64, y (N, …): `evaluate_parts` with a single part."""
    return evaluate_parts(model, x, y, [len(y)], batch_size, threads, task=task)[0]


@torch.inference_mode()
def evaluate_parts(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    sizes: Sequence[int],
    batch_size: int = 512,
    threads: int = 1,
    kernel: str = "torch",
    task: Task = CLASSIFICATION,
) -> list[EvalResult]:
    """Measures of `model` on consecutive parts of the windows; the model's mode is restored.

    BatchNorm uses its running statistics and does not change them.

    Args:
        model: model on the device to evaluate on.
        x: float32 or int64 (N, …), N ≥ 1; any device; read only.
        y: (N, …), as the task takes it.
        sizes: windows of each part, e.g. validation and test; each at least 1, N in sum.
        batch_size: most windows per forward pass; fewer on a CPU if a layer's output would exceed the memory
            allocator's limit. Changes speed and memory only (and last bits of sums).
        threads: torch threads on the CPU.
        kernel: as in `LocalTraining`.
        task: task, for loss and sums.

    Raises:
        ValueError: there is no window, or shapes or sizes do not fit.
        FloatingPointError: a loss is not finite.
    """
    check_data(x, y)
    if sum(sizes) != len(y) or min(sizes) < 1:
        raise ValueError(f"sizes must be positive and sum to {len(y)} windows, got {list(sizes)}")
    keep_freed_memory()
    kernel_name = kernel if task.native else TORCH
    plan = native_plan(model, tuple(x.shape[1:]), kernel_name, tokens=x.dtype == torch.int64)
    if plan is None:
        losses, values, sums = _evaluate_by_torch(model, x, y, sizes, batch_size, threads, task)
    else:
        losses, predictions = evaluated(plan, model, x, y)
        values = predictions == y
        by_part = zip(_split(predictions, sizes), _split(y, sizes), strict=True)
        sums = [_to_arrays(task.sums_of(predicted, true, plan.classes)) for predicted, true in by_part]
    parts = zip(_split(losses, sizes), _split(values, sizes), sums, strict=True)
    return [_eval_result(*part, task) for part in parts]


def _split(tensor: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Consecutive parts of a tensor; `Tensor.split` takes four times as long."""
    return [tensor[end - size : end] for end, size in zip(accumulate(sizes), sizes, strict=True)]


def _evaluate_by_torch(
    model: nn.Module, x: Tensor, y: Tensor, sizes: Sequence[int], batch_size: int, threads: int, task: Task
) -> tuple[Tensor, Tensor, list[Sums]]:
    """Each window's loss (float64) and value, and each part's sums."""
    device = next(model.parameters()).device
    was_training = model.training
    ends = np.cumsum(sizes).tolist()
    model.eval()
    try:
        with torch_threads(threads):
            if device.type == "cpu":
                batch_size = windows_at_once(model, x, batch_size)
            losses, values = [], []
            part_sums: list[list[Sums]] = [[] for _ in sizes]
            for first in range(0, len(y), batch_size):
                inputs = x[first : first + batch_size].to(device, copy=True)
                labels = y[first : first + batch_size].to(device, copy=True)  # a loss of the user's may write
                answers = model(inputs)
                losses.append(task.losses(answers, labels))
                values.append(task.values(answers, labels))
                for part, (end, size) in enumerate(zip(ends, sizes, strict=True)):
                    rows = slice(max(0, end - size - first), max(0, min(end - first, len(labels))))
                    if rows.start < rows.stop:
                        part_sums[part].append(_to_arrays(task.sums(answers[rows], labels[rows])))
            return (
                torch.cat(losses).double().cpu(),
                torch.cat(values).cpu(),
                [total_sums(batch_sums) for batch_sums in part_sums],
            )
    finally:
        model.train(was_training)


def windows_at_once(model: nn.Module, x: Tensor, most: int) -> int:
    """Windows of x (N, …) per forward pass on a CPU: `most`, halved until a layer's output can be kept.

    Larger blocks of memory are mapped, faulted in page by page and unmapped in each pass: with 512 images of
    28 × 28, this doubles the time of two convolutions.
    """
    bytes_per_window = _output_bytes.setdefault(model, {})
    shape = tuple(x.shape[1:])
    if shape not in bytes_per_window:
        bytes_per_window[shape] = _largest_output(model, x[:2])
    while most > 1 and most * bytes_per_window[shape] > LARGEST_KEPT:
        most //= 2
    return most


_output_bytes: weakref.WeakKeyDictionary[nn.Module, dict[tuple[int, ...], int]] = weakref.WeakKeyDictionary()


def _largest_output(model: nn.Module, x: Tensor) -> int:
    """Bytes per window of the largest layer output for x (N, …), N at least 2 for norms."""
    sizes = [0]

    def record(_: nn.Module, __: object, output: object) -> None:
        outputs = output if isinstance(output, (tuple, list)) else (output,)
        sizes.extend(each.numel() * each.element_size() for each in outputs if isinstance(each, Tensor))

    with _unchanged(model):
        for layer in model.modules():
            layer.register_forward_hook(record)
        model(x.clone())
    return max(sizes) // len(x)


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """Context after which buffers, attributes and hooks of a model are as before.

    Only the first evaluation of a network needs the body's pass: a network that counts its calls would
    otherwise give other answers in it, and so by the thread on which a client is evaluated.
    """
    with torch.inference_mode(False), torch.no_grad():  # copies made in this mode could not be trained with
        unsaved, before = Unsaved(model), {name: entry.clone() for name, entry in model.named_buffers()}
    try:
        yield
    finally:
        with torch.inference_mode(False), torch.no_grad():
            unsaved.restore()
            for name, entry in model.named_buffers():
                if name in before:
                    entry.copy_(before[name])


def _to_arrays(sums: Mapping[str, Tensor]) -> Sums:
    """Sums as arrays, int64 or float64."""
    return {
        name: value.cpu().numpy().astype(np.float64 if value.is_floating_point() else np.int64)
        for name, value in sums.items()
    }


def _eval_result(losses: Tensor, values: Tensor, sums: Sums, task: Task) -> EvalResult:
    """The result of one part from each window's loss and value, and its sums."""
    loss = float(losses.mean())
    if not math.isfinite(loss):
        raise FloatingPointError(f"evaluation: loss is {loss} over {len(losses)} windows")
    return EvalResult(len(losses), loss, sums, values.numpy(), task)
