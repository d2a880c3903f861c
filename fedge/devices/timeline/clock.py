"""The virtual clock: events in the order of simulated time.

An event is a plain record, (microseconds, kind, subject, number): time and kind of event, and its device or
server, and its job or exchange. Records are compared from left to right, so events of one moment come in the
order of their kinds, then of their subjects: arrivals of the same time are taken in the order of device ids
before anything is begun anew.
"""

import heapq
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

SECOND_US = 1_000_000


class Kind(IntEnum):
    """Kind of event; of one moment, the smaller number first."""

    SENT = -5  # transfers over a shared link end
    SEND = -4  # a device begins to receive or to send over the link of its leaf
    SEND_BETWEEN = -3  # a server, or the one above it, begins to send over the link of the latter
    SERVED_ABOVE = -2  # a server is done with the model of one below
    SERVED = -1  # a leaf is done with an arrival
    ARRIVE = 0  # a device's job ends
    UP = 1  # a server's model reaches the one above
    DOWN = 2  # the answer reaches a server
    ROUND_END = 3  # a leaf that works in rounds combines its arrivals
    LEAVE = 4  # a region's model leaves for servers below; what came from above is in it
    EVALUATE = 5
    START = 6  # a server gives work to an idle device, or to those of a round


class Event(NamedTuple):
    """An event.

    Attributes:
        time_us: when, in virtual microseconds.
        kind: of event.
        subject: id of the device or number of the server.
        number: of the job or exchange; distinguishes otherwise equal events.
    """

    time_us: int
    kind: int
    subject: int
    number: int


class Clock:
    """Gives events in their order.

    Attributes:
        now_us: virtual time of the newest event.
        events: how many there have been.

    >>> clock = Clock()
    >>> clock.at(30, Kind.START, subject=0)
    >>> clock.at(30, Kind.ARRIVE, subject=7, number=1)
    >>> clock.at(30, Kind.ARRIVE, subject=2, number=2)
    >>> [clock.next()[1:3] for _ in range(3)], clock.now_us
    ([(0, 2), (0, 7), (6, 0)], 30)
    """

    def __init__(self, now_us: int = 0, events: int = 0, ahead: Iterable[Sequence[int]] = ()) -> None:
        """Begin, or restore the result of `facts`."""
        self.now_us = now_us
        self.events = events
        self._heap = [Event(*event) for event in ahead]
        heapq.heapify(self._heap)

    def at(self, time_us: int, kind: Kind, subject: int, number: int = 0) -> None:
        """Record a future event, never one in the past."""
        assert time_us >= self.now_us, f"an event at {time_us} µs, but it is {self.now_us} µs"
        heapq.heappush(self._heap, Event(time_us, int(kind), subject, number))

    def next(self) -> Event:
        """The next event; now is its time.

        Raises:
            IndexError: nothing will ever happen.
        """
        event = heapq.heappop(self._heap)
        self.now_us = event.time_us
        self.events += 1
        return event

    def __len__(self) -> int:
        """The number of events ahead."""
        return len(self._heap)

    def facts(self) -> dict[str, object]:
        """The clock as JSON: keyword arguments of `Clock`."""
        return {"now_us": self.now_us, "events": self.events, "ahead": sorted(map(list, self._heap))}
