"""Idle devices, with removal and return in constant time."""

from array import array
from collections.abc import Iterable, Iterator

import numpy as np


class Idle:
    """A set of devices, whose order depends only on removals and returns.

    >>> idle = Idle([4, 5, 6])
    >>> idle.take(4)
    >>> idle.put(4)
    >>> list(idle)
    [6, 5, 4]
    """

    def __init__(self, devices: Iterable[int], known: Iterable[int] | None = None) -> None:
        """Start with these devices, in this order; `known` are all possible members, by default the same."""
        self._devices = array("q", devices)
        members = array("q", self._devices if known is None else known)
        self._first = min(members, default=0)
        self._index_of_device = array("q", [-1]) * (max(members, default=-1) + 1 - self._first)
        for index, device in enumerate(self._devices):
            self._index_of_device[device - self._first] = index

    def __len__(self) -> int:
        return len(self._devices)

    def __iter__(self) -> Iterator[int]:
        return iter(self._devices)

    def __contains__(self, device: object) -> bool:
        index = device - self._first if isinstance(device, int) else -1
        return 0 <= index < len(self._index_of_device) and self._index_of_device[index] >= 0

    def at(self, place: int) -> int:
        """The device at a position 0 … len − 1."""
        return self._devices[place]

    def ids(self) -> np.ndarray:
        """A copy of all device ids in order, (n,) int64."""
        return np.array(self._devices, dtype=np.int64)

    def take(self, device: int) -> None:
        """Remove a device; the last one moves to its position."""
        index, last = self._index_of_device[device - self._first], self._devices.pop()
        assert index >= 0, f"device {device} is not idle"
        self._index_of_device[device - self._first] = -1
        if last != device:
            self._devices[index] = last
            self._index_of_device[last - self._first] = index

    def put(self, device: int) -> None:
        """Add a device at the end."""
        assert self._index_of_device[device - self._first] < 0, f"device {device} is idle already"
        self._index_of_device[device - self._first] = len(self._devices)
        self._devices.append(device)
