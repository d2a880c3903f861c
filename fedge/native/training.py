"""Training and evaluation of one model by the native step, from a plan (`fedge.native.plan`).

The step is the same as in `fedge.training.sgd`, term by term. Windows come in the order drawn there, and
dropout masks are drawn as in PyTorch, so both kernels use the same masks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedge.native.library import Session
from fedge.native.plan import Plan, flat_array
from fedge.native.program import DropoutLayer, Entries

_MASK_BYTES = 16 * 2**20  # bytes of masks drawn at a time
_EVALUATION_BATCH = 64  # windows per batch without gradients; results do not depend on this


@dataclass(frozen=True)
class Descent:
    """Terms of a step, as in `fedge.training.settings.LocalTraining`."""

    lr: float
    momentum: float
    weight_decay: float
    clip_norm: float
    label_smoothing: float
    prox_mu: float
    batch_size: int

    def numbers(self) -> np.ndarray:
        """Arguments of the library, in its order: float64 of shape (6,)."""
        return np.array(
            [self.lr, self.momentum, self.weight_decay, self.clip_norm, self.label_smoothing, self.prox_mu],
            np.float64,
        )


class Epochs:
    """Trainer of a model, epoch by epoch; created by `training`."""

    def __init__(
        self, plan: Plan, session: Session, x: np.ndarray, y: np.ndarray, batch_size: int,
        draws: torch.Generator | None,
    ) -> None:  # fmt: skip
        self._plan = plan
        self._session = session
        self._x, self._y = x, y
        self._batch_size = batch_size
        self._draws = draws
        self.steps = 0

    def epoch(self, order: np.ndarray) -> np.ndarray:
        """Take one step per batch of `order` (N,) int64; returns the mean loss of each batch, float64.

        Raises:
            ValueError: the last batch is too small for a BatchNorm.
        """
        size, plan = self._batch_size, self._plan
        if (len(order) % size or size) < plan.smallest_batch:
            raise ValueError(
                "Expected more than 1 value per channel when training, but the last batch has 1 window"
            )
        chunk = len(order)
        if plan.drops:
            chunk = size * max(1, _MASK_BYTES // (plan.mask_bytes * size))
        losses = []
        for first in range(0, len(order), chunk):
            part = order[first : first + chunk]
            masks = self._draw_masks(len(part)) if plan.drops else None
            losses.append(self._session.train(self._x, self._y, part, masks, -(-len(part) // size)))
        self.steps += sum(map(len, losses))
        return np.concatenate(losses)

    def _draw_masks(self, windows: int) -> np.ndarray:
        """Dropout masks of some windows, drawn by batch and layer: one uint8 row per window."""
        rows = []
        for first in range(0, windows, self._batch_size):
            count = min(self._batch_size, windows - first)
            rows.append(
                np.concatenate([_draw_mask(drop, count, self._draws) for drop in self._plan.drops], axis=1)
            )
        return np.ascontiguousarray(np.concatenate(rows))


def _draw_mask(drop: DropoutLayer, windows: int, draws: torch.Generator | None) -> np.ndarray:
    """One dropout's mask, drawn as in PyTorch, with channels side by side."""
    steps = 1 if drop.whole_channels else drop.steps
    sizes = {"N": windows, "C": drop.channels, "T": steps}
    drawn = torch.empty([sizes[axis] for axis in drop.order]).bernoulli_(1 - drop.rate, generator=draws)
    places = [drop.order.index(axis) for axis in "NTC"]
    return drawn.to(torch.uint8).permute(places).reshape(windows, -1).numpy()


@contextmanager
def training(
    plan: Plan,
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    descent: Descent,
    correction: Mapping[str, Tensor] | None,
    draws: torch.Generator | None,
) -> Iterator[Epochs]:
    """Context with the trainer of a model, which has the new weights and statistics on exit.

    Args:
        plan: the model's plan.
        model: model on the CPU.
        x: float32 (N, C, T), or int64 (N, T) for tokens.
        y: int64 (N).
        descent: terms of a step.
        correction: SCAFFOLD's c − c_i, float32, by name; None without SCAFFOLD.
        draws: generator of dropout's draws.

    Raises:
        IndexError: a label is not a class, or a token has no embedding row.
    """
    _refuse_labels(plan, y)
    _refuse_tokens(plan, x)
    entries = _entries(model)
    weights, buffers = flat_array(plan.weights, entries), flat_array(plan.buffers, entries)
    flat_correction = None if correction is None else flat_array(plan.weights, correction)
    with Session(plan.training, min(descent.batch_size, len(y)), plan.kernel) as session:
        session.begin(weights, buffers, flat_correction, descent.numbers())
        epochs = Epochs(plan, session, windows_of(x), _contiguous_array(y), descent.batch_size, draws)
        try:
            yield epochs
        finally:
            session.end(weights, buffers)
            with torch.no_grad():
                _write_back(plan.weights, weights, entries)
                _write_back(plan.buffers, buffers, entries)
                for name in plan.counters:
                    entries[name].add_(epochs.steps)


def evaluated(plan: Plan, model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Cross entropy (float64) and most likely class (int64) of each window.

    Raises:
        IndexError: a label is not a class, or a token has no embedding row.
    """
    _refuse_labels(plan, y)
    _refuse_tokens(plan, x)
    entries = _entries(model)
    with Session(plan.evaluation, min(_EVALUATION_BATCH, len(y)), plan.kernel) as session:
        session.begin(flat_array(plan.weights, entries), flat_array(plan.buffers, entries), None, np.zeros(6))
        losses, predictions = session.evaluate(windows_of(x), _contiguous_array(y))
    return torch.from_numpy(losses), torch.from_numpy(predictions)


def _entries(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, without gradients, sharing the model's memory."""
    return {name: entry.detach() for name, entry in [*model.named_parameters(), *model.named_buffers()]}


def _contiguous_array(tensor: Tensor) -> np.ndarray:
    """A tensor as a contiguous array, sharing memory if possible."""
    return tensor.contiguous().numpy()


def windows_of(x: Tensor) -> np.ndarray:
    """Windows for the library: float32, which represents tokens below 2²⁴ exactly."""
    return _contiguous_array(x.float())


def _refuse_tokens(plan: Plan, x: Tensor) -> None:
    """Raise IndexError for a token without an embedding row, as PyTorch does."""
    if plan.tokens and (int(x.min()) < 0 or int(x.max()) >= plan.tokens):
        raise IndexError("index out of range in self")


def _refuse_labels(plan: Plan, y: Tensor) -> None:
    """Raise IndexError for a label outside the classes, as PyTorch does."""
    low, high = int(y.min()), int(y.max())
    if low < 0 or high >= plan.classes:
        raise IndexError(f"Target {low if low < 0 else high} is out of bounds.")


def _write_back(entries: Entries, flat: np.ndarray, tensors: Mapping[str, Tensor]) -> None:
    """Copy a flat array back into the tensors of its entries."""
    numbers = torch.from_numpy(flat)
    for name, first in entries.offsets.items():
        tensors[name].copy_(numbers[first : first + tensors[name].numel()].view(tensors[name].shape))
