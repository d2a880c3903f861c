"""Where noise comes from: streams that follow from the seed, or the system's cryptographic generator.

Noise that follows from the seed repeats bit for bit, and whoever knows the seed knows the noise: right for
a simulation. For a deployment there is `SystemNormals`: nobody can work its noise out, nor repeat it.

Sources: Box and Muller 1958; the sum of several draws in place of one, which keeps an adversary from looking
for the few floating-point numbers that one draw can be: Holohan and Braghin 2021, "Secure Random Sampling in
Differential Privacy". The generator is the operating system's, as ``getrandom(2)`` describes it.
"""

import math
import os
from typing import Any, Protocol

import numpy as np

from fedge.config.sections.privacy import PrivacyConfig
from fedge.seeding import Purpose, numpy_stream

SYSTEM = "system"
_DRAWS = 4  # normal numbers of which each number of noise is the sum; their root is the divisor
_BITS = 53  # of a float64's significand


class Normals(Protocol):
    """Sources of noise."""

    def standard_normal(self, size: Any = None) -> Any:
        """Independent draws of N(0, 1), float64 of a shape; one number by default."""


class SystemNormals:
    """Draws of N(0, 1) from the operating system's cryptographic generator; no two runs have the same."""

    def standard_normal(self, size: Any = None) -> Any:
        """Independent draws, float64 of a shape; one number by default.

        >>> SystemNormals().standard_normal((2, 3)).shape
        (2, 3)
        """
        shape = () if size is None else size
        count = int(np.prod(shape, dtype=np.int64))
        total = np.zeros(count)
        for _ in range(_DRAWS):
            uniform = _uniform(2 * count)
            radius = np.sqrt(-2 * np.log(1 - uniform[:count]))  # 1 − u is above 0
            total += radius * np.cos(2 * math.pi * uniform[count:])
        total /= math.sqrt(_DRAWS)
        return float(total[0]) if size is None else total.reshape(shape)


def _uniform(count: int) -> np.ndarray:
    """Numbers in [0, 1), each with 53 random bits."""
    words = np.frombuffer(os.urandom(8 * count), np.uint64) >> np.uint64(64 - _BITS)
    return words.astype(np.float64) * 2.0**-_BITS


def normals(config: PrivacyConfig, seed: int, *where: int) -> Normals:
    """Source of the noise of one release.

    Args:
        config: of the run.
        seed: root of the run's streams.
        where: leaf round, leaf or client and so on, from which seeded noise follows.
    """
    if config.noise_source == SYSTEM:
        return SystemNormals()
    return numpy_stream(seed, Purpose.NOISE, *where)
