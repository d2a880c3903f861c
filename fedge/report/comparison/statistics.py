"""Means and intervals over seeds, the independent repetitions of a run.

Leaves, clients and rounds of one run share data and initial model, so an interval over them would be far too
narrow. Pure functions on numbers. Source: Student 1908; any textbook's t-interval, paired and unpaired.

A mean of scores between 0 and 1 lies in that range, but a t-interval may extend beyond it. The part outside
cannot contain the mean, so it is cut off, which leaves the coverage unchanged.
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
        std: sample standard deviation (divisor n − 1); None for n = 1.
        low, high: ends of the 95 % t-interval of the mean, within its bounds; None for n = 1.
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
        values: one value per seed.
        low, high: bounds of values.

    Raises:
        ValueError: there is no value.
    """
    n = len(values)
    if n == 0:
        raise ValueError("there is nothing to average")
    mean = statistics.fmean(values)
    if n == 1:
        return Estimate(mean, None, None, None, 1)
    std = statistics.stdev(values)  # exact: equal values give 0
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * std / n**0.5
    return Estimate(mean, std, max(mean - half, low), min(mean + half, high), n)


def paired_difference(
    values: Mapping[int, float],
    reference: Mapping[int, float],
    low: float = -math.inf,
    high: float = math.inf,
) -> Estimate | None:
    """Difference value − reference over the common seeds; None without any.

    Args:
        values, reference: seed → value.
        low, high: bounds of differences.
    """
    seeds = sorted(values.keys() & reference.keys())
    return estimate([values[seed] - reference[seed] for seed in seeds], low, high) if seeds else None
