"""Devices waiting for work: one is picked, or put back, in the same time however many there are."""

from array import array
from collections.abc import Iterable, Iterator

import numpy as np


class Idle:
    """A set of devices, in an order determined by removals and returns alone.

    >>> idle = Idle([4, 5, 6])
    >>> idle.take(4)
    >>> idle.put(4)
    >>> list(idle)
    [6, 5, 4]
    """

    def __init__(self, devices: Iterable[int], known: Iterable[int] | None = None) -> None:
        """Begin with these, in this order; `known` are all possible members, by default these."""
        self._devices = array("q", devices)
        members = array("q", self._devices if known is None else known)
        self._first = min(members, default=0)
        self._place = array("q", [-1]) * (max(members, default=-1) + 1 - self._first)
        for place, device in enumerate(self._devices):
            self._place[device - self._first] = place

    def __len__(self) -> int:
        return len(self._devices)

    def __iter__(self) -> Iterator[int]:
        return iter(self._devices)

    def __contains__(self, device: object) -> bool:
        place = device - self._first if isinstance(device, int) else -1
        return 0 <= place < len(self._place) and self._place[place] >= 0

    def at(self, place: int) -> int:
        """The device at a place 0 … len − 1."""
        return self._devices[place]

    def ids(self) -> np.ndarray:
        """All of them in their order, (n,) int64, copied."""
        return np.array(self._devices, dtype=np.int64)

    def take(self, device: int) -> None:
        """Take a device out; the last one takes its place."""
        place, last = self._place[device - self._first], self._devices.pop()
        assert place >= 0, f"device {device} is not idle"
        self._place[device - self._first] = -1
        if last != device:
            self._devices[place] = last
            self._place[last - self._first] = place

    def put(self, device: int) -> None:
        """Put a device back, at the end."""
        assert self._place[device - self._first] < 0, f"device {device} is idle already"
        self._place[device - self._first] = len(self._devices)
        self._devices.append(device)
