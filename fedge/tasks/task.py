"""The task protocol, and scores from the sums of clients.

Shape letters: N examples of a batch or a split, U outputs (as many as `classes` names).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

Sums = Mapping[str, np.ndarray]
"""Sums over examples: name → float64 or int64 array of a fixed shape."""

_LARGEST_SUM = 1e60  # squares of float32 numbers of a million examples are smaller


@dataclass(frozen=True)
class Score:
    """A number by which models are compared, computed from sums over examples.

    Attributes:
        name: as in tables: lower-case letters, digits and underscores.
        of: sums over at least one example → the number.
        higher_is_better: whether higher scores are better.
        unit: unit of the number; "share" for 0..1.
        words: name in reports; if empty, `name` with spaces.
        lowest, highest: range of the number.
    """

    name: str
    of: Callable[[Sums], float]
    higher_is_better: bool
    unit: str = ""
    words: str = ""
    lowest: float = -math.inf
    highest: float = math.inf

    def __call__(self, sums: Sums) -> float:
        """The score of sums over at least one example."""
        return float(self.of(sums))

    @property
    def label(self) -> str:
        """The message text."""
        return self.words or self.name.replace("_", " ")

    @property
    def tail_label(self) -> str:
        """The percentile than which a tenth do worse, in words."""
        return "10th percentile" if self.higher_is_better else "90th percentile"

    def merit(self, value: float) -> float:
        """A value of this score, oriented so that more is better.

        >>> Score("rmse", lambda sums: 0.0, higher_is_better=False).merit(2.0)
        -2.0
        """
        return value if self.higher_is_better else -value


def total_sums(parts: Sequence[Sums]) -> dict[str, np.ndarray]:
    """Sums over the examples of all parts, at least one; the order of the parts does not matter.

    Whole numbers are added as such. Each sum of float64 numbers is the real sum, rounded once (Shewchuk 1997,
    "Adaptive Precision Floating-Point Arithmetic", as Python's `math.fsum` has it), so the order does not
    matter.

    >>> total_sums([{"n": np.array(2)}, {"n": np.array(3)}])
    {'n': np.int64(5)}
    >>> orders = [1e16, 1.0, -1e16], [1e16, -1e16, 1.0]
    >>> [float(total_sums([{"s": np.array(number)} for number in order])["s"]) for order in orders]
    [1.0, 1.0]
    """
    return {name: _sum([part[name] for part in parts]) for name in parts[0]}


def _sum(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The sum of arrays of one shape; each number is rounded once."""
    if len(arrays) == 1 or not np.issubdtype(np.asarray(arrays[0]).dtype, np.inexact):
        total: np.ndarray = np.sum(arrays, axis=0)
        return total
    stacked = np.stack(arrays).reshape(len(arrays), -1)
    try:
        exact = [math.fsum(column) for column in stacked.T.tolist()]
    except (OverflowError, ValueError):  # infinite, or beyond: of a diverged model
        exact = np.sum(stacked, axis=0).tolist()
    return np.array(exact, dtype=np.float64).reshape(np.shape(arrays[0]))


class Task:
    """One task; derive a class for a new one. Methods depend only on their arguments: a task has no state.

    Attributes:
        scores: the scores; gates, personal models and comparisons use the first.
        takes: the accepted y, in words.
        smooths: whether its loss supports `train.label-smoothing`.
        least_loss: the smallest possible loss.
        loss_unit: unit of the loss.
        has_classes: whether y is one class per example, by which windows can be dealt and counted.
        native: whether the native step computes its loss.
        says: kind of output: "class" (softmax over axis 1), "classes" (each a sigmoid) or "numbers".
    """

    scores: Sequence[Score] = ()
    takes: str = "any y"
    smooths: bool = False
    least_loss: float = 0.0
    loss_unit: str = ""
    has_classes: bool = False
    native: bool = False
    says: str = "numbers"

    def refuse(self, y: np.ndarray, outputs: int) -> None:
        """Raise ValueError with the rule and the value found, unless y (N, …) fits this task.

        Args:
            y: targets of all examples of a data set, or of a client.
            outputs: U.
        """

    def remarks(self, y: np.ndarray, classes: Sequence[str]) -> Sequence[str]:
        """Remarks on targets that fit this task, but are hard to learn; printed when a run starts.

        Args:
            y: targets (N, …) of all examples of a data set.
            classes: names of the U outputs.
        """
        return ()

    def answer_shape(self, outputs: int, y_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of a model's output for one example whose y has a shape; (U,) by default."""
        return (outputs,)

    def losses(self, answers: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """The differentiable loss of each example, (N,).

        Args:
            answers: of the model, float32 (N, …).
            y: (N, …).
            smoothing: `train.label-smoothing`, for tasks with support for it.
        """
        raise NotImplementedError(f"{type(self).__name__} must have losses(answers, y, smoothing)")

    def loss(self, answers: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """The mean loss of a batch, a float32 scalar; see `losses`."""
        return self.losses(answers, y, smoothing).mean()

    def form(self, outputs: int) -> Sums:
        """Zeros of the names, shapes and dtypes of `sums`."""
        raise NotImplementedError(f"{type(self).__name__} must have form(outputs)")

    def sums(self, answers: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        """Sums over examples, of the names and shapes of `form`."""
        raise NotImplementedError(f"{type(self).__name__} must have sums(answers, y)")

    def sums_of(self, predicted: Tensor, y: Tensor, outputs: int) -> Mapping[str, Tensor]:
        """`sums` of predicted classes (N,) int64, for a task of the native step."""
        raise NotImplementedError(f"{type(self).__name__} is not native")

    def values(self, answers: Tensor, y: Tensor) -> Tensor:
        """A number for each example, (N,), whose sum, the larger the better, orders the first score.

        Paired gates use its differences between two models.
        """
        raise NotImplementedError(f"{type(self).__name__} must have values(answers, y)")

    def impossible(self, sums: Sums, examples: int) -> tuple[str, str] | None:
        """Fault in a client's sums, as (kind, detail), or None.

        Args:
            sums: sums with the names, shapes and dtypes of `form`, and any numbers.
            examples: number of examples in the request to the client.
        """
        for name, array in sums.items():
            if not (np.abs(array.astype(np.float64)) <= _LARGEST_SUM).all():
                return "sum out of range", f"{name}: not finite, or beyond {_LARGEST_SUM:g}"
        return None

    def score(self, sums: Sums) -> float:
        """The first score of sums over at least one example."""
        return self.scores[0](sums)
