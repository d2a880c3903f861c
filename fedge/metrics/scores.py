"""Accuracy and macro F1 of a confusion matrix (classes, classes): rows true, columns predicted; their spread.

Pure functions on arrays; they import nothing of Flower or torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_LARGEST = 1e140  # sum of squares of 10^27 such scores is a number


def accuracy(confusion: np.ndarray) -> float:
    """The share of windows on the diagonal, 0..1, of a confusion matrix (classes, classes) int64.

    At least one window.

    >>> accuracy(np.array([[8, 2], [1, 9]]))  # (8 + 9) / 20
    0.85
    """
    return float(confusion.trace() / confusion.sum())


def macro_f1(confusion: np.ndarray) -> float:
    """The unweighted mean of F1 = 2 TP / (2 TP + FP + FN) over the present classes, 0..1.

    The confusion matrix is (classes, classes) int64. A class is present as the truth or the prediction of at
    least one window: the convention of scikit-learn's ``f1_score(average="macro")`` without ``labels``.

    Of three classes, the last of which does not occur, (12 / 16 + 20 / 24) / 2:

    >>> round(macro_f1(np.array([[6, 2, 0], [2, 10, 0], [0, 0, 0]])), 4)
    0.7917
    """
    true_positive = confusion.diagonal()
    occurrences = confusion.sum(axis=0) + confusion.sum(axis=1)  # 2 TP + FP + FN
    present = occurrences > 0
    class_f1 = 2 * true_positive[present] / occurrences[present]
    return float(class_f1.sum() / len(class_f1))  # as np.mean, which takes five times as long


@dataclass(frozen=True)
class Spread:
    """Distribution of a score over clients or leaves, which all count equally.

    Attributes:
        mean: mean of the scores.
        std: population standard deviation (divisor n).
        worst: the smallest, or the largest where less is better.
        p10: 10th percentile, linear between neighbours, or the 90th if less is better: a tenth do worse.
        jain: fairness index of Jain et al. 1984, (Σx)² / (n Σx²): 1 if all are equal, 1/n if one has all.
        n: number of scores.
    """

    mean: float
    std: float
    worst: float
    p10: float
    jain: float
    n: int


def score_spread(scores: Sequence[float], higher_is_better: bool = True) -> Spread:
    """The spread of at least one score; all-zero scores are equal, so their index is 1.

    Scores of a diverged model may be infinite, or have squares beyond the range of floats.

    >>> of = score_spread([0.5, 1.0])
    >>> of.mean, of.std, of.worst, of.p10, of.jain  # Jain: 1.5² / (2 · 1.25)
    (0.75, 0.25, 0.5, 0.55, 0.9)
    """
    values = np.asarray(scores, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return Spread(
            float(values.mean()), float(values.std()),
            float(values.min() if higher_is_better else values.max()),
            float(np.quantile(values, 0.1 if higher_is_better else 0.9)), _jain(values), len(values),
        )  # fmt: skip


def _jain(values: np.ndarray) -> float:
    """Jain's index of scores; NaN if one is infinite."""
    largest = float(np.abs(values).max())
    if _LARGEST < largest < np.inf:  # the index does not depend on the scale
        values = values / largest
    squares = len(values) * float((values**2).sum())
    return float(values.sum()) ** 2 / squares if squares else 1.0


def counts_of(differences: tuple[float, float]) -> tuple[int, int]:
    """Numbers of windows on which only the own model, and only the other one, is right.

    Args:
        differences: c − b and b + c: sum, and sum of squares, of right (1) less right (0 or 1) by window.

    >>> counts_of((-1.0, 3.0))
    (2, 1)
    """
    total, squares = differences
    return int((squares - total) // 2), int((squares + total) // 2)
