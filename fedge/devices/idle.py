"""Devices that wait for work: one is picked, or put back, in the same time however many there are."""

from collections.abc import Iterable, Iterator


class Idle:
    """Idle devices, in an order that follows from what was taken and put back alone.

    >>> idle = Idle([4, 5, 6])
    >>> idle.take(4)
    >>> idle.put(4)
    >>> list(idle)
    [6, 5, 4]
    """

    def __init__(self, devices: Iterable[int]) -> None:
        """Begin with these, in this order."""
        self._devices = list(devices)
        self._place = {device: place for place, device in enumerate(self._devices)}

    def __len__(self) -> int:
        return len(self._devices)

    def __iter__(self) -> Iterator[int]:
        return iter(self._devices)

    def at(self, place: int) -> int:
        """Return the device at a place 0 … len − 1."""
        return self._devices[place]

    def take(self, device: int) -> None:
        """Take a device out; the last one takes its place."""
        place, last = self._place.pop(device), self._devices.pop()
        if last != device:
            self._devices[place] = last
            self._place[last] = place

    def put(self, device: int) -> None:
        """Put a device back, at the end."""
        assert device not in self._place, f"device {device} is idle already"
        self._place[device] = len(self._devices)
        self._devices.append(device)
