"""A code of the largest entries only."""

import math

import numpy as np

from fedge.compression.compressor import Compressor
from fedge.compression.rounding import FLOAT_BITS


class TopK(Compressor):
    """The largest entries of every array, with their places; the rest waits in the sender's memory.

    Source: Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory".
    """

    keeps_feedback = True

    def __init__(self, share: float = 0.01) -> None:
        """Set the share of entries to send, at least one.

        Raises:
            ValueError: it is no share.
        """
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, but is {share!r}")
        self._share = float(share)

    def sent(self, update: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The largest entries as float32, others 0, (n,) float64; among equals, the first are sent."""
        sizes, count = np.abs(update), self._sent_count(len(update))
        threshold = np.partition(sizes, len(sizes) - count)[len(sizes) - count]
        is_sent = sizes > threshold
        ties = np.flatnonzero(sizes == threshold)[: count - int(is_sent.sum())]
        is_sent[ties] = True
        return np.where(is_sent, update.astype(np.float32).astype(np.float64), 0.0)

    def bits(self, count: int) -> int:
        """A float32 and an index for each sent entry."""
        return self._sent_count(count) * (FLOAT_BITS + math.ceil(math.log2(count)))

    def _sent_count(self, count: int) -> int:
        """Number of sent entries of `count`."""
        return max(1, round(self._share * count))
