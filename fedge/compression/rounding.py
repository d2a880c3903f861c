"""Codes with rounded entries: to half precision, or stochastically to few levels."""

import math

import numpy as np

from fedge.compression.compressor import Compressor

_LARGEST = float(np.finfo(np.float16).max)
FLOAT_BITS = 32  # of a scale, and of an entry sent unchanged


class Float16(Compressor):
    """Half precision: entries rounded to the nearest float16, 65,504 at most."""

    def sent(self, update: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Rounded entries, (n,) float64."""
        return np.clip(update, -_LARGEST, _LARGEST).astype(np.float16).astype(np.float64)

    def bits(self, count: int) -> int:
        """16 an entry."""
        return 16 * count


class Int8(Compressor):
    """Entries stochastically rounded to signed multiples of a step, without a change of their mean.

    With s the largest size in the array and L levels, an entry v is sent as s / L · ⌊v L / s + u⌋, u uniform
    in [0, 1): its mean is v, and its variance at most (s / 2L)².

    Source: Alistarh et al. 2017 (QSGD), section 3.1, scaled by the largest entry in place of the 2-norm.
    """

    unbiased = True

    def __init__(self, levels: int = 127) -> None:
        """Set the number of levels from 0 to the largest size; 127 need 8 bits.

        Raises:
            ValueError: there are none.
        """
        if type(levels) is not int or not 1 <= levels <= 2**15:
            raise ValueError(f"levels must be a whole number from 1 to {2**15}, but is {levels}")
        self._levels = levels

    def sent(self, update: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Rounded entries, (n,) float64."""
        scale = _float32_above(float(np.abs(update).max()))
        if scale == 0.0:
            return np.zeros_like(update)
        step = scale / self._levels
        return np.floor(update / step + rng.random(update.shape)) * step

    def bits(self, count: int) -> int:
        """As many bits per entry as distinguish 0 and the levels of both signs, and the scale."""
        return math.ceil(math.log2(2 * self._levels + 1)) * count + FLOAT_BITS


def _float32_above(size: float) -> float:
    """The smallest float32 not below, so no entry is clipped."""
    nearest = np.float32(size)
    return float(nearest if float(nearest) >= size else np.nextafter(nearest, np.float32(np.inf)))
