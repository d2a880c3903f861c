"""Clocks of other machines relative to the server's, from readings and from messages.

A reading requested at `asked` and received at `answered`, by the server's clock, was made in between. So the
other clock is ahead by reading − answered at least, and reading − asked at most (Cristian 1989,
"Probabilistic clock synchronization", Distributed Computing 3). A message gives the same kind of bounds, but
wider: its call began after it was pushed, and ended before its reply was received. Together, several of them
give a narrow range.
"""

from dataclasses import dataclass

import numpy as np

_TOLERANCE_S = 1e-3


@dataclass(frozen=True)
class MachineClock:
    """Clock of another machine relative to the server's.

    Attributes:
        low, high: bounds on the seconds by which it is ahead of the server's clock.
        name: name of the machine.
    """

    low: float = -np.inf
    high: float = np.inf
    name: str = ""

    def asked(self, asked: float, reading: float, answered: float) -> "MachineClock":
        """Estimate that includes one more reading, with the times around it by the server's clock."""
        return MachineClock(max(self.low, reading - answered), min(self.high, reading - asked), self.name)


def clock_lead_s(low: np.ndarray, high: np.ndarray, clock: MachineClock | None = None) -> float:
    """Seconds by which the clock of another machine is ahead of the server's.

    Zero if possible, as for containers on one machine's clock; otherwise the middle of the possible range.
    NaN if the range is empty, because the clock has jumped.

    Args:
        low, high: (M,) bounds in seconds, from each message.
        clock: readings of the clock, if any.

    >>> float(clock_lead_s(np.array([99.0, 99.9]), np.array([100.2, 100.1])))
    100.0
    """
    bounds = clock or MachineClock()
    least, most = max(float(low.max()), bounds.low), min(float(high.min()), bounds.high)
    if least > most + _TOLERANCE_S or not (np.isfinite(least) and np.isfinite(most)):
        return np.nan
    if least <= _TOLERANCE_S and most >= -_TOLERANCE_S:
        return 0.0
    return (least + most) / 2
