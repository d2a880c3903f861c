"""The idle present devices of a leaf, updated with their coming and going.

Coming or going of an idle device is an event in a separate heap, as cheap as one of the clock:
    O(log n).
Such events apply at their own time, in the order of time and then of device ids, before all others of the
same moment. Devices at work are not followed; whether one is there is asked again when its job ends.
"""

import heapq
from array import array
from collections.abc import Sequence
from typing import Any

from fedge.config.registers.option import ConfigError, shown
from fedge.devices.population.availability import FOREVER_US, Presence
from fedge.devices.population.idle import Idle


class Roster:
    """The idle devices of one leaf.

    Attributes:
        there: idle devices ready for work.
        away: other idle devices.
    """

    def __init__(self, devices: Sequence[int], presence: Presence) -> None:
        """Begin at virtual time 0 with all devices idle; `presence` tells whether a device is there."""
        self.there, self.away = Idle((), devices), Idle((), devices)
        self._presence = presence
        self._first = min(devices, default=0)
        self._noted = array("q", [-1]) * (
            max(devices, default=-1) + 1 - self._first
        )  # its newest change ahead
        self._changes: list[tuple[int, int]] = []  # (virtual microseconds, device)
        for device in devices:
            self._join(device, 0)

    def __len__(self) -> int:
        """Idle devices, there or not."""
        return len(self.there) + len(self.away)

    def put(self, device: int, now_us: int) -> None:
        """Add a device with a finished job."""
        self.advance(now_us)
        self._join(device, now_us)

    def take(self, device: int, now_us: int) -> int:
        """Remove a present device; end of its presence, in virtual microseconds."""
        self.there.take(device)
        return self._asked(device, now_us)[1]

    def advance(self, now_us: int) -> None:
        """Take in arrivals and departures of devices until now."""
        changes = self._changes
        while changes and changes[0][0] <= now_us:
            time_us, device = heapq.heappop(changes)
            if self._noted[device - self._first] == time_us:
                self._noted[device - self._first] = -1
            if device in self.there or device in self.away:
                self._look_again(device, time_us)

    def next_change_us(self) -> int | None:
        """When the next idle device comes or goes; None: never."""
        return self._changes[0][0] if self._changes else None

    def _join(self, device: int, now_us: int) -> None:
        """Add an idle device in its present state."""
        is_there, until_us = self._asked(device, now_us)
        (self.there if is_there else self.away).put(device)
        self._note(device, until_us)

    def _look_again(self, device: int, now_us: int) -> None:
        """Let an idle device come or go."""
        is_there, until_us = self._asked(device, now_us)
        if is_there != (device in self.there):
            (self.away if is_there else self.there).take(device)
            (self.there if is_there else self.away).put(device)
        self._note(device, until_us)

    def _note(self, device: int, until_us: int) -> None:
        """Remember when an idle device will come or go."""
        if until_us < FOREVER_US and self._noted[device - self._first] != until_us:
            self._noted[device - self._first] = until_us
            heapq.heappush(self._changes, (until_us, device))

    def _asked(self, device: int, now_us: int) -> tuple[bool, int]:
        """Whether a device is present now, and the end of this state."""
        is_there, until_us = self._presence(device, now_us)
        if until_us <= now_us:
            raise ConfigError(
                f"devices.availability must say until when a device is there or away, a time to come, but "
                f"said {shown(until_us)} of device {device} at {now_us} microseconds; fix it"
            )
        return is_there, until_us

    def facts(self) -> dict[str, Any]:
        """The whole state as JSON, for `restore`."""
        return {"there": list(self.there), "away": list(self.away), "changes": sorted(self._changes)}

    def restore(self, facts: dict[str, Any], devices: Sequence[int]) -> None:
        """Restore `facts` of a roster of the same devices."""
        self.there, self.away = Idle(facts["there"], devices), Idle(facts["away"], devices)
        self._changes = [(time_us, device) for time_us, device in facts["changes"]]
        for place in range(len(self._noted)):
            self._noted[place] = -1
        for time_us, device in self._changes:  # ascending, so the newest one stays
            self._noted[device - self._first] = time_us
