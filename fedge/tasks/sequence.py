"""A class at every position, such as the next token of a text or the class of a pixel: cross entropy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedge.tasks.task import Score, Sums, Task

if TYPE_CHECKING:
    from torch import Tensor

NOWHERE = -1  # in y: an ignored position, as padding
_LARGEST = 700.0  # of a mean entropy whose exponential is a number


def _accuracy(sums: Sums) -> float:
    """Share of positions with the right class, 0..1."""
    return int(sums["right"]) / max(1, int(sums["positions"]))


def perplexity(sums: Sums) -> float:
    """Exponential of the mean cross entropy of a position; the number of classes for random guesses.

    >>> round(perplexity({"entropy": np.array(2 * math.log(5)), "positions": np.array(2)}), 6)
    5.0
    """
    return math.exp(min(float(sums["entropy"]) / max(1, int(sums["positions"])), _LARGEST))


class Sequence(Task):
    """A class at every position; answers are logits (N, U, …), y is int64 (N, …), -1 where none counts."""

    scores = (
        Score("accuracy", _accuracy, True, "share", "accuracy", 0.0, 1.0),
        Score("perplexity", perplexity, False, "", "perplexity", 1.0),
    )
    takes = "int64 (N, positions), a class at every position, -1 where none counts"
    smooths = True
    says = "class"
    loss_unit = "nat"

    def refuse(self, y: np.ndarray, outputs: int) -> None:
        """Raise ValueError unless y (N, …) has classes 0..U−1 or -1, and at least one class per example."""
        if y.dtype != np.int64 or y.ndim < 2:
            raise ValueError(f"y must be int64 (N, positions), is {y.dtype} {y.shape}")
        if y.size and not NOWHERE <= y.min() <= y.max() < outputs:
            raise ValueError(f"y must be {NOWHERE}..{outputs - 1}, is {y.min()} to {y.max()}")
        if (y.reshape(len(y), -1) == NOWHERE).all(axis=1).any():
            raise ValueError(f"y must count at one position of every example, but one has {NOWHERE} alone")

    def answer_shape(self, outputs: int, y_shape: tuple[int, ...]) -> tuple[int, ...]:
        """(U, …), with the positions of y after the classes, as `cross_entropy` takes them."""
        return (outputs, *y_shape)

    def losses(self, answers: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """The mean cross entropy of each example's positions, (N,); see `Task.losses`."""
        entropies, counts = self._entropies(answers, y, smoothing), (y != NOWHERE).flatten(1).sum(dim=1)
        return entropies.flatten(1).sum(dim=1) / counts

    def _entropies(self, answers: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(answers, y, reduction="none", label_smoothing=smoothing, ignore_index=NOWHERE)

    def form(self, outputs: int) -> Sums:
        """Zeros: right positions, positions, and their cross entropy."""
        counts = {name: np.zeros((), dtype=np.int64) for name in ("right", "positions")}
        return {**counts, "entropy": np.zeros(())}

    def sums(self, answers: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        """The sums of a batch, of the shapes and dtypes of `form`."""
        return {
            "right": (answers.argmax(dim=1) == y).sum(), "positions": (y != NOWHERE).sum(),
            "entropy": self._entropies(answers, y).double().sum(),
        }  # fmt: skip

    def values(self, answers: Tensor, y: Tensor) -> Tensor:
        """Number of right positions of each example, (N,) int64."""
        return (answers.argmax(dim=1) == y).flatten(1).sum(dim=1)

    def impossible(self, sums: Sums, examples: int) -> tuple[str, str] | None:
        """Fault of sums of a number of examples, or None."""
        fault = super().impossible(sums, examples)
        if fault is not None:
            return fault
        if not 0 <= int(sums["right"]) <= int(sums["positions"]) or int(sums["positions"]) < examples:
            return "count out of range", f"{int(sums['right'])} right of {int(sums['positions'])} positions"
        if not float(sums["entropy"]) >= 0:
            return "sum out of range", f"entropy: {float(sums['entropy']):g}"
        return None
