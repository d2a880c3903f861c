"""Sources of noise: streams derived from the seed, or the system's cryptographic generator.

Noise derived from the seed repeats bit for bit, and anyone who knows the seed knows the noise, which is fine
for a simulation. It depends on the place of a release (round, leaf, client), not on its value: if a round is
repeated after a stop with other replies, the difference of both results has no noise. Deployments use
`SystemNormals`, whose noise nobody can compute or repeat.

A client may be asked again for what it sent (`guard.retries`), and two releases of one update with different
noise would spend twice. A client's noise is therefore derived from a key, drawn from this generator and known
only to the client, from the place and from the update: a repeated request gives the same bytes, and any other
update has other noise. (With key and place alone, the noise would cancel in the difference of two updates;
with key and update alone, equal updates in two rounds would be visible.)

Sources: Box and Muller 1958; the sum of several draws in place of one, which prevents an adversary from
enumerating the few floating-point values of one draw: Holohan and Braghin 2021, "Secure Random Sampling in
Differential Privacy". The generator is the operating system's (``getrandom(2)``); bytes from a key are
SHAKE256 (FIPS 202) of key, place, update and a counter.
"""

import hashlib
import math
import os
import struct
from collections.abc import Callable, Mapping
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

    def __init__(self, random_bytes: Callable[[int], bytes] | None = None) -> None:
        """Draw from the operating system, or from a function of a number of random bytes."""
        self._random_bytes = random_bytes or os.urandom

    def standard_normal(self, size: Any = None) -> Any:
        """Independent draws, float64 of a shape; one number by default.

        >>> SystemNormals().standard_normal((2, 3)).shape
        (2, 3)
        """
        shape = () if size is None else size
        count = int(np.prod(shape, dtype=np.int64))
        total = np.zeros(count)
        for _ in range(_DRAWS):
            uniform = _uniform(self._random_bytes(8 * 2 * count))
            radius = np.sqrt(-2 * np.log(1 - uniform[:count]))  # 1 − u is above 0
            total += radius * np.cos(2 * math.pi * uniform[count:])
        total /= math.sqrt(_DRAWS)
        return float(total[0]) if size is None else total.reshape(shape)


def _uniform(random: bytes) -> np.ndarray:
    """Numbers in [0, 1), each with 53 random bits of eight bytes."""
    words = np.frombuffer(random, np.uint64) >> np.uint64(64 - _BITS)
    return words.astype(np.float64) * 2.0**-_BITS


def normals(config: PrivacyConfig, seed: int, *keys: int) -> Normals:
    """Source of the noise of one release.

    Args:
        config: configuration of the run.
        seed: root of the run's streams.
        keys: leaf round, leaf or client and so on, from which seeded noise follows.
    """
    if config.noise_source == SYSTEM:
        return SystemNormals()
    return numpy_stream(seed, Purpose.NOISE, *keys)


def client_normals(
    config: PrivacyConfig, key: bytes, update: Mapping[str, np.ndarray], seed: int, *keys: int
) -> Normals:
    """Source of the noise of one client's releases: the same noise for the same release.

    Args:
        config: configuration of the run.
        key: secret key of the client; unused if noise follows from the seed.
        update: update to be released; names, dtypes, shapes and numbers count.
        seed: root of the run's streams.
        keys: leaf round, client and so on.
    """
    if config.noise_source != SYSTEM:
        return numpy_stream(seed, Purpose.NOISE, *keys)
    head = hashlib.sha256(struct.pack(f">{1 + len(keys)}Q", seed, *keys))
    for name, array in update.items():
        head.update(repr((name, array.dtype.str, array.shape)).encode())
        head.update(np.ascontiguousarray(array).data)
    return SystemNormals(_DerivedBytes(key, head.digest()))


class _DerivedBytes:
    """Bytes derived from a key and a head, different in every call."""

    def __init__(self, key: bytes, head: bytes) -> None:
        self._begin = struct.pack(">Q", len(key)) + key + head
        self._calls = 0

    def __call__(self, count: int) -> bytes:
        self._calls += 1
        return hashlib.shake_256(self._begin + struct.pack(">Q", self._calls)).digest(count)
