"""A compression of clients' updates."""

import numpy as np

from fedge.compression import Compressor


class RandomK(Compressor):
    """A random selection of entries, scaled to be unbiased (Wangni et al. 2018, with equal probabilities)."""

    unbiased = True

    def __init__(self, share=0.1):
        self.share = share

    def sent(self, update, rng):
        """Received values (n,) of an update (n,), both float64."""
        return np.where(rng.random(update.shape) < self.share, update / self.share, 0.0)

    def bits(self, count):
        """Bits of an update of `count` entries."""
        return round(self.share * count) * (32 + (count - 1).bit_length())
