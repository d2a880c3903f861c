"""Lap clock splitting the wall time of a round into phases, without gaps."""

import time
from collections.abc import Callable

PHASES = (
    "configure",
    "push",
    "wait",
    "check",
    "aggregate",
    "cluster",
    "gate",
    "report",
    "record",
    "checkpoint",
    "other",
)


class LapClock:
    """Charges every moment since its construction to exactly one phase.

    Attributes:
        now: clock, in seconds.
        began: reading at the start of the current round.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        """Start the first round; `now` gives seconds, by default of a clock shared by all processes."""
        self.now = now
        self._last = self.began = now()
        self._laps = dict.fromkeys(PHASES, 0.0)

    def lap(self, phase: str) -> float:
        """Charge the time since the last call to `phase`; returns the clock's reading.

        Raises:
            KeyError: there is no such phase.
        """
        now = self.now()
        self._laps[phase] += now - self._last
        self._last = now
        return now

    def finish(self) -> dict[str, float]:
        """Charge the rest to "other", return seconds per phase of the round, and start the next one."""
        self.began = self.lap("other")
        laps = self._laps
        self._laps = dict.fromkeys(PHASES, 0.0)
        return laps
