"""A link with fair sharing: all transfers get equal rates, except those limited by a lower cap.


    Σ min(cap_i, share) = capacity of the link; if the link is not full, every transfer runs at its cap

(max-min fairness, Bertsekas and Gallager 1992). Caps and shares are integers in thousandths of a byte per
second; remaining bytes are integers in units of 10⁻⁹ bytes, and times in microseconds. Shares are rounded
down, ends to the nearest microsecond, at least one ahead; nothing else is rounded, so numbers are the same on
all machines and after a checkpoint. Each start or end of a transfer changes all rates: O(n log n) for n
transfers.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

SLOWEST, QUICKEST = 1e-3, 1e11  # bytes per second
MOST_BYTES = 9 * 10**9  # of a transfer, which fit into 64 bits in units of 10⁻⁹ bytes
_MILLI, _NANO = 10**3, 10**9


def rate_of(bytes_s: float) -> int:
    """A rate in thousandths of a byte per second, at least one."""
    return round(min(max(bytes_s, SLOWEST), QUICKEST) * _MILLI)


def fair_rates(caps: np.ndarray, capacity: int) -> np.ndarray:
    """Rates (n,) int64 of transfers with caps (n,) int64 on a link of capacity `capacity`, in one unit.

    >>> fair_rates(np.array([100, 10, 100]), 90)
    array([40, 10, 40])
    >>> fair_rates(np.array([20, 10]), 90)
    array([20, 10])
    """
    ordered = np.sort(caps)
    used = np.concatenate([[0], np.cumsum(ordered)[:-1]])  # exact up to the first transfer at its fair share
    share = (capacity - used) // np.arange(len(caps), 0, -1)
    is_limited = ordered > share
    if not is_limited.any():
        return caps
    rates: np.ndarray = np.minimum(caps, max(1, int(share[np.argmax(is_limited)])))
    return rates


def duration_us(model_bytes: int, rate: int) -> int:
    """Microseconds of a transfer, at least one, at a rate in thousandths of a byte per second.

    >>> duration_us(1_000_000, rate_of(500_000.0))
    2000000
    """
    return int(_time_left(np.array([model_bytes * _NANO], np.int64), np.array([rate], np.int64))[0])


def _time_left(remaining: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Microseconds until transfers end, (n,) int64, from remaining bytes and rates, (n,) int64 each."""
    quotient, remainder = np.divmod(remaining, rates)
    microseconds: np.ndarray = np.maximum(1, quotient + (2 * remainder >= rates))
    return microseconds


class SharedLink:
    """One direction of a link.

    Attributes:
        changes: number of starts and ends so far; shows whether a scheduled end is outdated.
    """

    def __init__(self, bytes_s: float) -> None:
        """Start without transfers, with a capacity of `bytes_s` bytes per second."""
        self.whole = rate_of(bytes_s)
        self.changes = 0
        self._now_us = 0
        self._keys: list[int] = []
        self._caps, self._remaining, self._rates, self._ends = (np.empty(0, np.int64) for _ in range(4))

    def __len__(self) -> int:
        """Number of transfers under way."""
        return len(self._keys)

    def join(self, key: int, model_bytes: int, most_bytes_s: float, now_us: int) -> None:
        """Start a transfer under an unused key, limited to `most_bytes_s` bytes per second."""
        self._advance(now_us)
        self._keys.append(key)
        self._caps = np.append(self._caps, min(rate_of(most_bytes_s), self.whole))
        self._remaining = np.append(self._remaining, model_bytes * _NANO)
        self._update_rates(now_us)

    def leave(self, key: int, now_us: int) -> None:
        """Abort a transfer, if under way."""
        if key in self._keys:
            self._advance(now_us)
            index = self._keys.index(key)
            self._remove(np.arange(len(self._keys)) == index)
            self._update_rates(now_us)

    def ended(self, now_us: int) -> list[int]:
        """Remove the transfers ending now; returns their keys, ascending."""
        is_due = self._ends <= now_us
        ended = sorted(key for key, is_over in zip(self._keys, is_due.tolist(), strict=True) if is_over)
        if ended:
            self._advance(now_us)
            self._remove(is_due)
            self._update_rates(now_us)
        return ended

    @property
    def next_us(self) -> int | None:
        """When the next transfer ends, if none starts before; None without transfers."""
        return int(self._ends.min()) if len(self._ends) else None

    def _advance(self, now_us: int) -> None:
        """Advance transfers until now."""
        self._remaining = np.maximum(0, self._remaining - self._rates * (now_us - self._now_us))
        self._now_us = now_us

    def _remove(self, removed: np.ndarray) -> None:
        """Remove transfers, given as (n,) bool."""
        self._keys = [
            key for key, is_removed in zip(self._keys, removed.tolist(), strict=True) if not is_removed
        ]
        self._caps, self._remaining = self._caps[~removed], self._remaining[~removed]

    def _update_rates(self, now_us: int) -> None:
        """Recompute the rates."""
        self.changes += 1
        self._rates = fair_rates(self._caps, self.whole)
        self._ends = now_us + _time_left(self._remaining, self._rates)

    def facts(self) -> list[Any]:
        """The transfers under way as JSON, for `restore`."""
        return [
            self.changes, self._now_us, list(self._keys), self._caps.tolist(), self._remaining.tolist(),
            self._rates.tolist(), self._ends.tolist(),
        ]  # fmt: skip

    def restore(self, facts: Sequence[Any]) -> None:
        """Restore the result of `facts`."""
        self.changes, self._now_us, keys, *arrays = facts
        self._keys = list(keys)
        self._caps, self._remaining, self._rates, self._ends = (np.array(each, np.int64) for each in arrays)
