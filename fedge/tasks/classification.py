"""One class per example: accuracy and macro F1 of a confusion matrix, cross entropy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedge.metrics import scores
from fedge.tasks.task import Score, Sums, Task

if TYPE_CHECKING:
    from torch import Tensor

CONFUSION = "confusion"


class Classification(Task):
    """A class 0..U−1 per example; answers are logits (N, U), y is int64 (N,)."""

    scores = (
        Score("accuracy", lambda sums: scores.accuracy(sums[CONFUSION]), True, "share", "accuracy", 0.0, 1.0),
        Score("macro_f1", lambda sums: scores.macro_f1(sums[CONFUSION]), True, "share", "macro-F1", 0.0, 1.0),
    )
    takes = "int64 (N,), a class of each example"
    smooths = True
    loss_unit = "nat"
    has_classes = True
    native = True
    says = "class"

    def refuse(self, y: np.ndarray, outputs: int) -> None:
        """Raise ValueError unless y (N,) has classes 0..U−1; see `Task.refuse`."""
        if y.dtype != np.int64 or y.ndim != 1:
            raise ValueError(f"y must be int64 (N,), is {y.dtype} {y.shape}")

    def losses(self, answers: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """The cross entropy of each example, (N,); see `Task.losses`."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(answers, y, reduction="none", label_smoothing=smoothing)

    def loss(self, answers: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """The mean cross entropy of a batch, a float32 scalar, in one call; see `Task.losses`."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(answers, y, label_smoothing=smoothing)

    def form(self, outputs: int) -> Sums:
        """An empty confusion matrix (U, U)."""
        return {CONFUSION: np.zeros((outputs, outputs), dtype=np.int64)}

    def sums(self, answers: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        """The confusion matrix (U, U) int64, rows true, columns predicted."""
        return self.sums_of(answers.argmax(dim=1), y, answers.shape[1])

    def sums_of(self, predicted: Tensor, y: Tensor, outputs: int) -> Mapping[str, Tensor]:
        """The sums of predictions (N,) int64."""
        from torch import bincount

        cells = bincount(y * outputs + predicted, minlength=outputs * outputs)
        return {CONFUSION: cells.reshape(outputs, outputs)}

    def values(self, answers: Tensor, y: Tensor) -> Tensor:
        """Whether each prediction is right, (N,) bool."""
        return answers.argmax(dim=1) == y

    def impossible(self, sums: Sums, examples: int) -> tuple[str, str] | None:
        """Fault of a confusion matrix of a number of windows, or None."""
        confusion = sums[CONFUSION]
        if ((confusion < 0) | (confusion > examples)).any():
            return "count out of range", f"{confusion.min()} to {confusion.max()}"
        if int(confusion.sum()) != examples:
            return "other number of windows", f"{int(confusion.sum())} of {examples}"
        return None
