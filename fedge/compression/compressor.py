"""A lossy code of arrays: what of an update arrives, and how many bits it takes."""

from typing import ClassVar

import numpy as np


class Compressor:
    """Code of one array of an update; derive from it, and write `sent` and `bits`.

    It is made with the arguments of `uplink.clients-args` or `uplink.servers-args`, and keeps nothing between
    calls: memory is the sender's.

    Attributes:
        unbiased: the mean of `sent` over its random numbers is the update.
        keeps_feedback: the sender adds what it could not send to its next update (error feedback).
    """

    unbiased: ClassVar[bool] = False
    keeps_feedback: ClassVar[bool] = False

    def sent(self, update: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Decoded update, (n,) float64: what the receiver adds to the model that it gave.

        Args:
            update: (n,) float64, finite, at least one entry; not to be changed.
            rng: random stream of this array in this round.
        """
        raise NotImplementedError

    def bits(self, count: int) -> int:
        """Bits of an encoded array of so many entries, whatever they are."""
        raise NotImplementedError
