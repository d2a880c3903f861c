"""Random draws of a job, from a stream of (seed, device, attempt), which nothing else changes.

A stream for every number would take twenty microseconds each; so a few attempts of a device are drawn at a
time, and a job's numbers are its row in the block.
"""

import struct
from typing import NamedTuple

import numpy as np

from fedge.seeding import Purpose, numpy_stream

_BLOCK = 16  # attempts
_MOST_BLOCKS = 2**18  # kept, of half a kilobyte each
_ROW = struct.Struct("4d")


class Draw(NamedTuple):
    """Random draws of one job.

    Attributes:
        normal: standard normal, for its duration.
        uniform: in [0, 1), for non-normal durations.
        dropout: in [0, 1): the device drops out if below the dropout probability.
        where: in [0, 1): share of the job's time before the dropout.
    """

    normal: float
    uniform: float
    dropout: float
    where: float


class JobDraws:
    """The draws of all jobs of all devices."""

    def __init__(self, seed: int) -> None:
        """Draw from streams of `seed`."""
        self._seed = seed
        self._blocks: dict[int, tuple[int, bytes]] = {}  # device → number and rows of its newest block

    def of(self, device: int, attempt: int) -> Draw:
        """The draw of a device's attempt (1, 2, …)."""
        block, row = divmod(attempt, _BLOCK)
        known, rows = self._blocks.get(device, (-1, b""))
        if known != block:
            rng = numpy_stream(self._seed, Purpose.DEVICE_JOBS, device, block)
            normal, uniform = rng.standard_normal(_BLOCK), rng.random((3, _BLOCK))
            rows = np.vstack([normal, uniform]).T.tobytes()
            if len(self._blocks) >= _MOST_BLOCKS:
                self._blocks.clear()  # they are drawn anew when they are asked for
            self._blocks[device] = block, rows
        return Draw(*_ROW.unpack_from(rows, row * _ROW.size))


class PickDraws:
    """Uniform numbers by which a server picks among its idle devices, one after another."""

    def __init__(self, seed: int, server: int, count: int = 0) -> None:
        """Draw from streams of (seed, server); `count` numbers have been taken already."""
        self._seed = seed
        self._server = server
        self._rows: list[float] = []
        self._block = -1
        self.count = count

    def next(self, below: int) -> int:
        """A number of 0 … below − 1, each as likely."""
        return int(self.uniform() * below)

    def uniform(self) -> float:
        """A number in [0, 1)."""
        block, row = divmod(self.count, 16 * _BLOCK)
        if block != self._block:
            rng = numpy_stream(self._seed, Purpose.DEVICE_PICKS, self._server, block)
            self._rows, self._block = rng.random(16 * _BLOCK).tolist(), block
        self.count += 1
        return self._rows[row]
