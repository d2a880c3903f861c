"""Any of the classes per example: F1 and exact match; binary cross entropy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fedge.tasks.task import Score, Sums, Task

if TYPE_CHECKING:
    from torch import Tensor

_COUNTS = ("hits", "false_alarms", "misses")  # per class


def example_f1(sums: Sums) -> float:
    """Mean over examples of F1 of their classes (scikit-learn's ``average="samples"``), 0..1."""
    return float(sums["f1"]) / int(sums["n"])


def micro_f1(sums: Sums) -> float:
    """F1 = 2 TP / (2 TP + FP + FN) of all examples and classes together, 0..1; 1 if nothing is counted.

    >>> micro_f1({"hits": np.array([2, 1]), "false_alarms": np.array([1, 0]), "misses": np.array([0, 1])})
    0.75
    """
    hits, errors = int(sums["hits"].sum()), int(sums["false_alarms"].sum() + sums["misses"].sum())
    return 2 * hits / (2 * hits + errors) if hits + errors else 1.0


def _macro_f1(sums: Sums) -> float:
    """Mean F1 over the classes present in truth or predictions, 0..1; 1 if there is none."""
    hits = 2 * sums["hits"]
    totals = hits + sums["false_alarms"] + sums["misses"]
    present = totals > 0
    return float(np.mean(hits[present] / totals[present])) if present.any() else 1.0


def exact_match(sums: Sums) -> float:
    """Share of examples with all classes right, 0..1."""
    return float(int(sums["exact"]) / int(sums["n"]))


class Multilabel(Task):
    """Any of U classes per example; answers are logits (N, U), above 0 for yes; y is int64 (N, U), 0 or 1."""

    scores = (
        Score("f1", example_f1, True, "share", "F1", 0.0, 1.0),
        Score("micro_f1", micro_f1, True, "share", "micro-F1", 0.0, 1.0),
        Score("macro_f1", _macro_f1, True, "share", "macro-F1", 0.0, 1.0),
        Score("exact_match", exact_match, True, "share", "exact match", 0.0, 1.0),
    )
    takes = "int64 (N, classes), 1 for each class that an example has, else 0"
    loss_unit = "nat"
    says = "classes"

    def refuse(self, y: np.ndarray, outputs: int) -> None:
        """Raise ValueError unless y (N, U) is 0 or 1; see `Task.refuse`."""
        if y.dtype != np.int64 or y.shape[1:] != (outputs,):
            raise ValueError(f"y must be int64 (N, {outputs}), is {y.dtype} {y.shape}")
        if y.size and not 0 <= y.min() <= y.max() <= 1:
            raise ValueError(f"y must be 0 or 1, is {y.min()} to {y.max()}")

    def losses(self, answers: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """The binary cross entropy of each example, the mean over classes, (N,); see `Task.losses`."""
        from torch.nn.functional import binary_cross_entropy_with_logits

        entropies = binary_cross_entropy_with_logits(answers, y.to(answers.dtype), reduction="none")
        return entropies.mean(dim=1)

    def form(self, outputs: int) -> Sums:
        """Zeros: counts per class, examples all right, F1 added over examples, and the examples."""
        counts = {name: np.zeros((), dtype=np.int64) for name in ("exact", "n")}
        return {**{name: np.zeros(outputs, dtype=np.int64) for name in _COUNTS}, **counts, "f1": np.zeros(())}

    def sums(self, answers: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        """The sums of a batch, of the shapes and dtypes of `form`."""
        from torch import tensor

        predicted, true = answers > 0, y > 0
        return {
            "hits": (predicted & true).sum(dim=0), "false_alarms": (predicted & ~true).sum(dim=0),
            "misses": (~predicted & true).sum(dim=0), "exact": (predicted == true).all(dim=1).sum(),
            "n": tensor(len(y)), "f1": self.values(answers, y).sum(),
        }  # fmt: skip

    def values(self, answers: Tensor, y: Tensor) -> Tensor:
        """F1 of each example, (N,) float64; 1 for an example without classes and without predictions."""
        predicted, true = answers > 0, y > 0
        total = (predicted.sum(dim=1) + true.sum(dim=1)).double()
        return ((2 * (predicted & true).sum(dim=1)).double() / total.clamp(min=1)).where(total > 0, 1.0)

    def impossible(self, sums: Sums, examples: int) -> tuple[str, str] | None:
        """Fault of sums of a number of examples, or None."""
        fault = super().impossible(sums, examples)
        if fault is not None:
            return fault
        if int(sums["n"]) != examples:
            return "other number of windows", f"{int(sums['n'])} of {examples}"
        counts = [sums[name] for name in _COUNTS]
        if any((count < 0).any() for count in counts) or (np.sum(counts, axis=0) > examples).any():
            return "count out of range", f"{', '.join(_COUNTS)} of {examples}"
        if not 0 <= int(sums["exact"]) <= float(sums["f1"]) * (1 + 1e-9) <= examples * (1 + 2e-9):
            return (
                "counts do not add up",
                f"exact {int(sums['exact'])}, f1 {float(sums['f1']):g} of {examples}",
            )
        return None
