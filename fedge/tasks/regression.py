"""Numbers per example: root mean squared error, mean absolute error and R²; half the squared error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedge.tasks.task import Score, Sums, Task

if TYPE_CHECKING:
    from torch import Tensor

_FAR = 30.0  # size of numbers, or its inverse, out of reach for a few steps


def rmse(sums: Sums) -> float:
    """Root mean squared error over all examples and outputs.

    >>> rmse({"n": np.array(2), "squares": np.array([8.0])})
    2.0
    """
    return math.sqrt(float(np.mean(sums["squares"])) / int(sums["n"]))


def mae(sums: Sums) -> float:
    """Mean absolute error over all examples and outputs."""
    return float(np.mean(sums["absolute"])) / int(sums["n"])


def r2(sums: Sums) -> float:
    """Coefficient of determination, the mean over outputs; 1 is perfect, 0 the mean of y.

    1 − Σ(y − ŷ)² / Σ(y − ȳ)², with ȳ of the summed examples. For constant y, the score is 1 without any error
    and else 0, as in scikit-learn's ``r2_score``.

    >>> r2({"n": np.array(2), "squares": np.array([1.0]), "y": np.array([4.0]), "y2": np.array([10.0])})
    0.5
    """
    errors = np.asarray(sums["squares"], dtype=np.float64)
    centred_squares = sums["y2"] - sums["y"] ** 2 / int(sums["n"])
    varies = centred_squares > 4 * np.finfo(np.float64).eps * sums["y2"]
    explained = 1 - errors / np.where(varies, centred_squares, 1.0)
    return float(np.mean(np.where(varies, explained, np.where(errors == 0, 1.0, 0.0))))


class Regression(Task):
    """Numbers per example; answers are float32 (N, U), y is float32 (N,) for one output, or (N, U)."""

    scores = (
        Score("rmse", rmse, False, "y", "RMSE", 0.0),
        Score("mae", mae, False, "y", "MAE", 0.0),
        Score("r2", r2, True, "", "R²", highest=1.0),
    )
    takes = "float32 (N,) or (N, outputs), numbers to predict"
    loss_unit = "y²"

    def refuse(self, y: np.ndarray, outputs: int) -> None:
        """Raise ValueError unless y (N, U) are finite numbers, one per output; see `Task.refuse`."""
        if y.dtype != np.float32 or y.shape[1:] not in ((outputs,), () if outputs == 1 else (outputs,)):
            raise ValueError(f"y must be float32 (N, {outputs}), is {y.dtype} {y.shape}")
        if not np.isfinite(y).all():
            raise ValueError("y must be finite, but has NaN or infinity")

    def remarks(self, y: np.ndarray, classes: Sequence[str]) -> Sequence[str]:
        """A remark if an output's numbers in y (N, U) are far from 1 in size; see `Task.remarks`.

        A network's first answers are near 0, and steps are short.
        """
        sizes = np.sqrt(np.square(y.reshape(len(y), -1), dtype=np.float64).mean(axis=0))
        odd = [at for at, size in enumerate(sizes.tolist()) if size and not 1 / _FAR <= size <= _FAR]
        if not odd:
            return ()
        more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        return (
            f"y of {classes[odd[0]]!r}{more} is far from 1 in size (root mean square {sizes[odd[0]]:.3g}), "
            "so training takes long or does not succeed; subtract its mean and divide by its deviation first",
        )

    def losses(self, answers: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
        """Half the squared error of each example, the mean over outputs, (N,); see `Task.losses`.

        Half: so its gradient is the error, and a step size means the same as for cross entropy.
        """
        return 0.5 * (answers - y.reshape(answers.shape)).square().mean(dim=1)

    def form(self, outputs: int) -> Sums:
        """Zeros: per output squared and absolute errors, y and its squares; and the examples."""
        per_output = {name: np.zeros(outputs) for name in ("squares", "absolute", "y", "y2")}
        return {**per_output, "n": np.zeros((), dtype=np.int64)}

    def sums(self, answers: Tensor, y: Tensor) -> Mapping[str, Tensor]:
        """The sums of a batch, in float64, of the shapes of `form`."""
        from torch import tensor

        true = y.reshape(answers.shape).double()
        errors = answers.double() - true
        return {
            "squares": errors.square().sum(dim=0), "absolute": errors.abs().sum(dim=0),
            "y": true.sum(dim=0), "y2": true.square().sum(dim=0), "n": tensor(len(y)),
        }  # fmt: skip

    def values(self, answers: Tensor, y: Tensor) -> Tensor:
        """Minus the squared error of each example, the mean over outputs, (N,) float64."""
        return -(answers.double() - y.reshape(answers.shape).double()).square().mean(dim=1)

    def impossible(self, sums: Sums, examples: int) -> tuple[str, str] | None:
        """Fault of sums of a number of examples, or None: (Σa)² ≤ n Σa², and counts."""
        fault = super().impossible(sums, examples)
        if fault is not None:
            return fault
        if int(sums["n"]) != examples:
            return "other number of windows", f"{int(sums['n'])} of {examples}"
        tolerance = 1 + 1e-9
        for first, second in (("absolute", "squares"), ("y", "y2")):
            if (sums[first] ** 2 > examples * sums[second] * tolerance).any():
                return "sums do not add up", f"{first} and {second}"
        if (sums["absolute"] < 0).any():
            return "sum out of range", f"absolute: {sums['absolute'].min():g}"
        return None
