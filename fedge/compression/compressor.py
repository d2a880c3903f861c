"""Base class of lossy codes of arrays: the update as received, and its size in bits."""

from typing import ClassVar

import numpy as np


class Compressor:
    """Code of one array of an update; derive a class, and write `sent` and `bits`.

    The constructor gets the arguments of `uplink.clients-args` or `uplink.servers-args`, and instances keep
    no state between calls: memory is the sender's.

    Attributes:
        unbiased: the mean of `sent` over its random numbers is the update.
        keeps_feedback: the sender adds the unsent remainder to its next update (error feedback).
    """

    unbiased: ClassVar[bool] = False
    keeps_feedback: ClassVar[bool] = False

    def sent(self, update: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Decoded update, (n,) float64, added by the receiver to the model it sent.

        Args:
            update: (n,) float64, finite, at least one entry; not to be changed.
            rng: random stream of this array in this round.
        """
        raise NotImplementedError

    def bits(self, count: int) -> int:
        """Bits of an encoded array with the given number of entries, whatever their values."""
        raise NotImplementedError
