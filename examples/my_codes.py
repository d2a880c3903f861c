"""A code of updates that clients upload."""

import numpy as np

from fedge.compression import Compressor


class RandomK(Compressor):
    """Entries drawn at random, scaled up so that the mean is right (Wangni et al. 2018, with equal odds)."""

    unbiased = True

    def __init__(self, share=0.1):
        self.share = share

    def sent(self, update, rng):
        """Values (n,) that arrive of an update (n,), both float64."""
        return np.where(rng.random(update.shape) < self.share, update / self.share, 0.0)

    def bits(self, count):
        """Bits of an update of `count` entries."""
        return round(self.share * count) * (32 + (count - 1).bit_length())
