"""Queue of arrivals at a server with a rule taking virtual time."""

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass
class Line(Generic[T]):
    """A line before one server, which is busy with the first.

    Attributes:
        waiting: in the order in which they are taken in.
        busy_us: virtual microseconds for which the rule has occupied the server, the rest of `until_us`
            included.
        until_us: end of its work on the first.
    """

    waiting: deque[T] = field(default_factory=deque)
    busy_us: int = 0
    until_us: int = 0

    def occupy(self, item: T, busy_us: int, now_us: int) -> int:
        """Let the server be busy with an item, now the first; until when."""
        self.waiting.appendleft(item)
        self.busy_us += busy_us
        self.until_us = now_us + busy_us
        return self.until_us

    def done_us(self, now_us: int) -> int:
        """Virtual microseconds for which the server has been busy until now."""
        return self.busy_us - max(0, self.until_us - now_us)
