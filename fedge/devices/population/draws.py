"""Random draws of a job, from its own stream of (seed, device, attempt).

Creating a stream for every job would take twenty microseconds each, so a block of attempts of a device is
drawn at a time, and a job's numbers are its row in the block.
"""

import struct
from typing import NamedTuple

import numpy as np

from fedge.seeding import Purpose, numpy_stream

_BLOCK = 16  # attempts
_MOST_BLOCKS = 2**18  # kept, half a kilobyte each
_ROW = struct.Struct("4d")


class Draw(NamedTuple):
    """Random draws of one job.

    Attributes:
        normal: standard normal number, for the duration.
        uniform: in [0, 1), for durations not normally distributed.
        dropout: in [0, 1): the device drops out if below the dropout probability.
        dropout_point: in [0, 1): share of the job's time before the dropout.
    """

    normal: float
    uniform: float
    dropout: float
    dropout_point: float


class JobDraws:
    """Random draws of all jobs of all devices."""

    def __init__(self, seed: int) -> None:
        """Use random streams of `seed`."""
        self._seed = seed
        self._blocks: dict[int, tuple[int, bytes]] = {}  # device → number and rows of its latest block

    def draw(self, device: int, attempt: int) -> Draw:
        """The draw of a device's attempt (1, 2, …)."""
        block, row = divmod(attempt, _BLOCK)
        latest, rows = self._blocks.get(device, (-1, b""))
        if latest != block:
            rng = numpy_stream(self._seed, Purpose.DEVICE_JOBS, device, block)
            normal, uniform = rng.standard_normal(_BLOCK), rng.random((3, _BLOCK))
            rows = np.vstack([normal, uniform]).T.tobytes()
            if len(self._blocks) >= _MOST_BLOCKS:
                self._blocks.clear()  # blocks are drawn again when needed
            self._blocks[device] = block, rows
        return Draw(*_ROW.unpack_from(rows, row * _ROW.size))


class PickDraws:
    """Random numbers with which a server picks among its idle devices."""

    def __init__(self, seed: int, server: int, count: int = 0) -> None:
        """Use the random stream of (seed, server), from which `count` numbers have been taken before."""
        self._seed = seed
        self._server = server
        self._rows: list[float] = []
        self._block = -1
        self.count = count

    def next(self, below: int) -> int:
        """A random integer in 0 … below − 1, uniform."""
        return int(self.uniform() * below)

    def uniform(self) -> float:
        """A random number in [0, 1), uniform."""
        block, row = divmod(self.count, 16 * _BLOCK)
        if block != self._block:
            rng = numpy_stream(self._seed, Purpose.DEVICE_PICKS, self._server, block)
            self._rows, self._block = rng.random(16 * _BLOCK).tolist(), block
        self.count += 1
        return self._rows[row]
