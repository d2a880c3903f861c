"""A lap clock: the wall time of a round cut into phases that add up to it, whatever happens in between."""

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
    "record",
    "checkpoint",
    "other",
)


class LapClock:
    """Charges every moment since `restart` to exactly one phase, so nothing is counted twice or lost."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        """Start the first round; `now` gives seconds."""
        self._now = now
        self._last = now()
        self._laps = dict.fromkeys(PHASES, 0.0)

    def lap(self, phase: str) -> None:
        """Charge the time since the last call to `phase`.

        Raises:
            KeyError: there is no such phase.
        """
        now = self._now()
        self._laps[phase] += now - self._last
        self._last = now

    def finish(self) -> dict[str, float]:
        """Charge the rest to "other", return seconds per phase of the round, and start the next one."""
        self.lap("other")
        laps = self._laps
        self._laps = dict.fromkeys(PHASES, 0.0)
        return laps
