"""A code of one bit per entry: the signs, and the mean size of entries."""

import numpy as np

from fedge.compression.compressor import Compressor
from fedge.compression.rounding import FLOAT_BITS


class Sign(Compressor):
    """Signs of all entries times their mean size, ‖v‖₁ / n; the remainder stays in the sender's memory.

    Source: Karimireddy et al. 2019, "Error Feedback Fixes SignSGD", algorithm 1, array by array.
    """

    keeps_feedback = True

    def sent(self, update: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Mean size with the sign of each entry, (n,) float64; 0 counts as positive: a bit has two values."""
        scale = float(np.float32(np.abs(update).mean()))
        return np.where(update >= 0, scale, -scale)

    def bits(self, count: int) -> int:
        """One per entry, and the mean size."""
        return count + FLOAT_BITS
