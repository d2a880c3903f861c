"""Numbers too coarse in float32: small changes of large numbers, as of times, counters, positions.

float32 has 24 binary digits: from 2²⁹ to 2³⁰ its steps are 64. A signal smaller than these steps is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_LOST = 0.05  # of a channel's deviation, by the rounding error's


def too_coarse(values: NDArray[Any], cast: NDArray[np.float32]) -> str:
    """Step and deviation of numbers (n,) losing more than a twentieth of their signal; else empty.

    >>> too_coarse(np.array([1e9, 1e9 + 1]), np.array([1e9, 1e9], np.float32))
    'steps of 64, deviation 0.5'
    >>> too_coarse(np.array([0.1, 0.2]), np.array([0.1, 0.2], np.float32))
    ''
    >>> too_coarse(np.array([1e300, 0]), np.array([np.inf, 0], np.float32))
    ''
    """
    if not values.size or values.dtype.itemsize < 4 or values.min() == values.max():
        return ""
    exact, largest = values.astype(np.float64), float(np.abs(cast).max())
    if not np.isfinite(largest):  # refused for another reason
        return ""
    deviation = float(exact.std())
    step = float(np.spacing(np.float32(largest)))
    if step <= _MOST_LOST * deviation:
        return ""
    lost = float(np.sqrt(np.square(exact - cast).mean()))
    return f"steps of {step:.3g}, deviation {deviation:.3g}" if lost > _MOST_LOST * deviation else ""


def coarse_words(coarse: Sequence[tuple[str, str]]) -> str:
    """Words on columns too coarse in float32, given as (name, words of `too_coarse`).

    >>> coarse_words([("a", ""), ("b", "steps of 64, deviation 0.5")])
    ", too coarse for 'b' (steps of 64, deviation 0.5): subtract a constant first"
    """
    found = [(name, words) for name, words in coarse if words]
    if not found:
        return ""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f", too coarse for {found[0][0]!r} ({found[0][1]}){more}: subtract a constant first"
