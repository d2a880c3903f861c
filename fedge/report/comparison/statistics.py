"""Means and intervals over seeds, the independent repetitions of a run.

Leaves, clients and rounds of one run share data and initial model, so an interval over them would be far too
narrow. Pure functions on numbers. Source: Student 1908; any textbook's t-interval, paired and unpaired.

A mean of scores between 0 and 1 lies in that range, but a t-interval may extend beyond it. The part outside
cannot contain the mean, so it is cut off, which leaves the coverage unchanged.

A score of a diverged model may be infinite. The mean is infinite then, and has no interval.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over n seeds.

    Attributes:
        mean: mean of the n values.
        std: sample standard deviation (divisor n − 1); None for n = 1, and beyond the range of floats.
        low, high: ends of the 95 % t-interval of the mean, within its bounds; None without std.
        n: number of seeds.
    """

    mean: float
    std: float | None
    low: float | None
    high: float | None
    n: int


def estimate(values: Sequence[float], low: float = -math.inf, high: float = math.inf) -> Estimate:
    """Mean ± std and t-interval: mean ± t(0.975, n − 1) · std / √n, cut at the bounds.

    Args:
        values: one value per seed, none of them NaN; the mean of infinities of both signs is NaN.
        low, high: bounds of values.

    Raises:
        ValueError: there is no value.
    """
    n = len(values)
    if n == 0:
        raise ValueError("there is nothing to average")
    mean = _mean(values)
    std = _std(values) if n > 1 else None
    if std is None:
        return Estimate(mean, None, None, None, n)
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * std / n**0.5
    return Estimate(mean, std, max(mean - half, low), min(mean + half, high), n)


def _mean(values: Sequence[float]) -> float:
    """The mean of values whose sum may be beyond the range of floats."""
    try:
        return statistics.fmean(values)
    except OverflowError:
        return math.fsum(value / len(values) for value in values)
    except ValueError:  # infinities of both signs
        return math.nan


def _std(values: Sequence[float]) -> float | None:
    """The sample standard deviation; None if it is not a finite number."""
    if not all(map(math.isfinite, values)):
        return None
    try:
        return statistics.stdev(values)  # exact: equal values give 0
    except OverflowError:
        return None


def paired_difference(
    values: Mapping[int, float],
    reference: Mapping[int, float],
    low: float = -math.inf,
    high: float = math.inf,
) -> Estimate | None:
    """Difference value − reference over the common seeds; None without any, or if both diverged in one.

    Args:
        values, reference: seed → value.
        low, high: bounds of differences.
    """
    differences = [values[seed] - reference[seed] for seed in sorted(values.keys() & reference.keys())]
    is_known = bool(differences) and not any(map(math.isnan, differences))  # infinity − infinity
    return estimate(differences, low, high) if is_known else None
