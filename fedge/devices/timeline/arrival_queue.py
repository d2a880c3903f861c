"""Queue of arrivals at a server whose rule takes virtual time."""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class ServerQueue(Generic[T]):
    """Queue at a server, which works on the first item.

    Attributes:
        waiting: items in order.
        busy_us: virtual microseconds of work so far, including the rest until `until_us`.
        until_us: when the work on the first item ends.
    """

    waiting: deque[T] = field(default_factory=deque)
    busy_us: int = 0
    until_us: int = 0

    def occupy(self, item: T, busy_us: int, now_us: int) -> int:
        """Start the work on an item, which becomes the first; returns its end."""
        self.waiting.appendleft(item)
        self.busy_us += busy_us
        self.until_us = now_us + busy_us
        return self.until_us

    def done_us(self, now_us: int) -> int:
        """Virtual microseconds for which the server has been busy until now."""
        return self.busy_us - max(0, self.until_us - now_us)
