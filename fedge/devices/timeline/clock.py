"""The virtual clock: events in the order of simulated time.

An event is a record (microseconds, kind, subject, number) of its time, its kind, its device or server, and
its job or exchange. Records are compared from left to right, so events at one moment happen in the order of
kinds and then of subjects: arrivals by device id, and all of them before new jobs start.
"""

import heapq
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

SECOND_US = 1_000_000


class Kind(IntEnum):
    """Kind of an event; at one moment, smaller numbers come first."""

    SENT = -5  # transfers over a shared link end
    SEND = -4  # a device starts to receive or to send over its leaf's link
    SEND_BETWEEN = -3  # a transfer between a server and its parent starts
    SERVED_ABOVE = -2  # a server has finished with a child's model
    SERVED = -1  # a leaf has finished with an arrival
    ARRIVE = 0  # a device's job ends
    UP = 1  # a server's model reaches its parent
    DOWN = 2  # the parent's answer reaches the server
    ROUND_END = 3  # a leaf working in rounds combines its arrivals
    LEAVE = 4  # a region's model, with the change from above, is sent to its children
    EVALUATE = 5
    START = 6  # a server gives a job to an idle device, or to those of a round


class Event(NamedTuple):
    """An event.

    Attributes:
        time_us: time in virtual microseconds.
        kind: kind of event.
        subject: id of the device or number of the server.
        number: number of the job or exchange; distinguishes otherwise equal events.
    """

    time_us: int
    kind: int
    subject: int
    number: int


class Clock:
    """Queue of events in order.

    Attributes:
        now_us: virtual time of the latest event.
        events: number of events so far.

    >>> clock = Clock()
    >>> clock.schedule(30, Kind.START, subject=0)
    >>> clock.schedule(30, Kind.ARRIVE, subject=7, number=1)
    >>> clock.schedule(30, Kind.ARRIVE, subject=2, number=2)
    >>> [clock.next()[1:3] for _ in range(3)], clock.now_us
    ([(0, 2), (0, 7), (6, 0)], 30)
    """

    def __init__(self, now_us: int = 0, events: int = 0, ahead: Iterable[Sequence[int]] = ()) -> None:
        """Start at a time, or restore the result of `facts`."""
        self.now_us = now_us
        self.events = events
        self._heap = [Event(*event) for event in ahead]
        heapq.heapify(self._heap)

    def schedule(self, time_us: int, kind: Kind, subject: int, number: int = 0) -> None:
        """Schedule an event, not in the past."""
        assert time_us >= self.now_us, f"an event at {time_us} µs, but it is {self.now_us} µs"
        heapq.heappush(self._heap, Event(time_us, int(kind), subject, number))

    def next(self) -> Event:
        """The next event, whose time becomes the current one.

        Raises:
            IndexError: there are no more events.
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
