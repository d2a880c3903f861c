"""The clocks of other machines, set by the server's: by their readings, checked against messages.

A reading requested at `asked` and received at `answered`, by the server's clock, was made in between: so the
other clock is between reading − answered and reading − asked ahead (Cristian 1989, "Probabilistic clock
synchronization", Distributed Computing 3). A message says the same less closely: its call began after its
push and ended before the receipt of its reply. Several of both narrow it down.
"""

from dataclasses import dataclass

import numpy as np

_TOLERANCE_S = 1e-3


@dataclass(frozen=True)
class MachineClock:
    """Clock of another machine against the server's.

    Attributes:
        low, high: seconds ahead of the server's clock, at least and at most.
        name: of the machine.
    """

    low: float = -np.inf
    high: float = np.inf
    name: str = ""

    def asked(self, asked: float, reading: float, answered: float) -> "MachineClock":
        """Estimate after one more reading, with the moments around it by the server's clock."""
        return MachineClock(max(self.low, reading - answered), min(self.high, reading - asked), self.name)


def ahead_s(low: np.ndarray, high: np.ndarray, clock: MachineClock | None = None) -> float:
    """Seconds by which the clock of another machine is ahead of the server's.

    Zero whenever possible, as for containers of one machine with one clock; else the middle of the possible
    range. NaN where nothing is: the clock has jumped meanwhile.

    Args:
        low, high: (M,) seconds, at least and at most, from each message.
        clock: its readings, if asked.

    >>> float(ahead_s(np.array([99.0, 99.9]), np.array([100.2, 100.1])))
    100.0
    """
    known = clock or MachineClock()
    least, most = max(float(low.max()), known.low), min(float(high.min()), known.high)
    if least > most + _TOLERANCE_S or not (np.isfinite(least) and np.isfinite(most)):
        return np.nan
    if least <= _TOLERANCE_S and most >= -_TOLERANCE_S:
        return 0.0
    return (least + most) / 2
