"""What chance decides about a job, from a stream of (seed, device, attempt): nothing else has a say in it.

A stream for every number would take twenty microseconds each; so those of a few attempts of a device are
drawn at a time, and a job's numbers are its row in that block.
"""

from typing import NamedTuple

from fedge.seeding import Purpose, numpy_stream

_BLOCK = 16  # attempts


class Draw(NamedTuple):
    """What chance decides about one job.

    Attributes:
        normal: standard normal, for how long it takes.
        uniform: in [0, 1), for the same where it is not normal.
        dropout: in [0, 1): the device drops out if this is below the probability of that.
        where: in [0, 1): share of the job's time after which it does.
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
        self._blocks: dict[int, tuple[int, list[Draw]]] = {}  # device → number and rows of its newest block

    def of(self, device: int, attempt: int) -> Draw:
        """Return the draw of a device's attempt (1, 2, …)."""
        block, row = divmod(attempt, _BLOCK)
        known, rows = self._blocks.get(device, (-1, []))
        if known != block:
            rng = numpy_stream(self._seed, Purpose.DEVICE_JOBS, device, block)
            normal, uniform = rng.standard_normal(_BLOCK), rng.random((3, _BLOCK))
            rows = [Draw(*numbers) for numbers in zip(normal.tolist(), *uniform.tolist(), strict=True)]
            self._blocks[device] = block, rows
        return rows[row]


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
        """Return a number in 0 … below − 1, each as likely."""
        block, row = divmod(self.count, 16 * _BLOCK)
        if block != self._block:
            rng = numpy_stream(self._seed, Purpose.DEVICE_PICKS, self._server, block)
            self._rows, self._block = rng.random(16 * _BLOCK).tolist(), block
        self.count += 1
        return int(self._rows[row] * below)
