"""FedBuff with central differential privacy: noise on a buffer's sum, and the privacy cost of devices.

With C the clipping norm, z the noise multiplier, s(τ) ≤ 1 the weight by staleness and p ≤ 1 a device's share
of steps, the sum over a buffer of K updates is released as

    Σ s(τ_i) p_i Δ_i · min(1, C / |Δ_i|) + N(0, (z C)² I)

K and the end of every job are fixed in advance, so times do not depend on learning. A failed job fills its
place in the buffer with an update of zero, so a device's message affects only its own terms. A device with
m jobs in a buffer moves the sum by at most m C. Over its buffers f, this equals one Gaussian
release of multiplier z / √(Σ_f m_f²), however later updates depend on earlier models: Gaussian mechanisms
compose in this way, one after another (Dong et al. 2022, "Gaussian Differential Privacy", corollary 3.3). No
gain from sampling is claimed: arrivals are not drawn at random, and fast devices arrive more often.

Nguyen et al. 2022 (AISTATS; only the abstract could be read) state compatibility of FedBuff with differential
privacy; the accounting here follows from the above.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedge.config.sections.privacy import PrivacyConfig
from fedge.devices.servers.arrivals import Arrival, Memory
from fedge.privacy.mechanism import clip_scale
from fedge.privacy.noise import normals

_BUFFERS, _SQUARES = "private-buffers", "private-squares"  # in a server's memory, and so in checkpoints


@dataclass(frozen=True)
class PrivateSum:
    """Noisy sum of a buffer, at one leaf.

    Attributes:
        config: section `privacy`.
        seed: root of random streams.
        leaf: number of the leaf.
        devices: number of clients; ids are below it.
        sent: (P,) bool, numbers of the model sent by devices, to which noise is added; None for all.
    """

    config: PrivacyConfig
    seed: int
    leaf: int
    devices: int
    sent: np.ndarray | None = None

    def released(
        self, memory: Memory, arrivals: Sequence[Arrival], weights: Sequence[float], largest: float
    ) -> np.ndarray:
        """Sum of clipped updates plus noise, (P,) float64; the buffer's devices are counted.

        Args:
            memory: memory of the leaf, which counts the devices.
            arrivals: the buffer, at least one arrival.
            weights: weight of each arrival, at most `largest`.
            largest: upper bound of any weight: the rule's step size.
        """
        assert max(weights) <= largest, "a weight above what the noise is measured by"
        clip_norm = self.config.clip_norm
        total = np.zeros(len(arrivals[0].end))
        for arrival, weight in zip(arrivals, weights, strict=True):
            delta = arrival.delta
            total += weight * clip_scale(float(np.linalg.norm(delta)), clip_norm) * delta
        number = self._count(memory, arrivals)
        if std := largest * self.config.noise_multiplier * clip_norm:
            is_noisy = np.ones(len(total), bool) if self.sent is None else self.sent
            draws = normals(self.config, self.seed, number, self.leaf)
            total[is_noisy] += std * draws.standard_normal(int(is_noisy.sum()))
        return total

    def _count(self, memory: Memory, arrivals: Sequence[Arrival]) -> int:
        """Count the devices of a buffer; returns its number, 1, 2, …"""
        arrays = memory.arrays
        arrays[_BUFFERS] = arrays.get(_BUFFERS, np.zeros(1, np.int64)) + 1
        squares = arrays.setdefault(_SQUARES, np.zeros(self.devices, np.int64))
        for device, times in Counter(arrival.child for arrival in arrivals).items():
            squares[device] += times**2
        return int(arrays[_BUFFERS][0])


def releases_of(memories: Sequence[Memory]) -> int:
    """Largest Σ_f m_f² of a device over all leaves: the equivalent number of releases of one update each.

    >>> from fedge.devices.servers.arrivals import Memory
    >>> releases_of([Memory(2), Memory(2, arrays={_SQUARES: np.array([0, 0, 5, 2])})])
    5
    """
    return max(
        (int(memory.arrays[_SQUARES].max()) for memory in memories if _SQUARES in memory.arrays), default=0
    )


def private_sum(
    config: PrivacyConfig, seed: int, leaf: int, devices: int, sent: np.ndarray | None = None
) -> PrivateSum | None:
    """Noisy sum of a leaf; None if leaves add no noise. Arguments as in `PrivateSum`; `sent` (P,) bool."""
    return None if config.kind in ("off", "local") else PrivateSum(config, seed, leaf, devices, sent)
