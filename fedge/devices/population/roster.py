"""Idle present devices of a leaf, kept up to date as devices come and go.

The comings and goings of idle devices are in a heap of their own, O(log n) each. They apply at their own
time, by time and then device id, before all other events of the same moment. Devices with a job are not
followed; their presence is looked up when the job ends.
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
        there: idle and present devices.
        away: idle and absent devices.
    """

    def __init__(self, devices: Sequence[int], presence: Presence) -> None:
        """Start at virtual time 0 with all devices idle; `presence` is their presence over time."""
        self.there, self.away = Idle((), devices), Idle((), devices)
        self._presence = presence
        self._first = min(devices, default=0)
        self._scheduled = array("q", [-1]) * (
            max(devices, default=-1) + 1 - self._first
        )  # its latest scheduled change
        self._changes: list[tuple[int, int]] = []  # (virtual microseconds, device)
        for device in devices:
            self._join(device, 0)

    def __len__(self) -> int:
        """Number of idle devices, present or not."""
        return len(self.there) + len(self.away)

    def put(self, device: int, now_us: int) -> None:
        """Add a device whose job has ended."""
        self.advance(now_us)
        self._join(device, now_us)

    def take(self, device: int, now_us: int) -> int:
        """Remove a present device; returns the end of its presence, in virtual microseconds."""
        self.there.take(device)
        return self._query_presence(device, now_us)[1]

    def advance(self, now_us: int) -> None:
        """Apply comings and goings of devices until now."""
        changes = self._changes
        while changes and changes[0][0] <= now_us:
            time_us, device = heapq.heappop(changes)
            if self._scheduled[device - self._first] == time_us:
                self._scheduled[device - self._first] = -1
            if device in self.there or device in self.away:
                self._update(device, time_us)

    def next_change_us(self) -> int | None:
        """When the next idle device comes or goes; None for never."""
        return self._changes[0][0] if self._changes else None

    def _join(self, device: int, now_us: int) -> None:
        """Add an idle device as present or absent."""
        is_present, until_us = self._query_presence(device, now_us)
        (self.there if is_present else self.away).put(device)
        self._schedule_change(device, until_us)

    def _update(self, device: int, now_us: int) -> None:
        """Apply an idle device's coming or going."""
        is_present, until_us = self._query_presence(device, now_us)
        if is_present != (device in self.there):
            (self.away if is_present else self.there).take(device)
            (self.there if is_present else self.away).put(device)
        self._schedule_change(device, until_us)

    def _schedule_change(self, device: int, until_us: int) -> None:
        """Schedule when an idle device will come or go."""
        if until_us < FOREVER_US and self._scheduled[device - self._first] != until_us:
            self._scheduled[device - self._first] = until_us
            heapq.heappush(self._changes, (until_us, device))

    def _query_presence(self, device: int, now_us: int) -> tuple[bool, int]:
        """Whether a device is present now, and the end of this state."""
        is_present, until_us = self._presence(device, now_us)
        if until_us <= now_us:
            raise ConfigError(
                f"devices.availability must say until when a device is there or away, a time to come, but "
                f"said {shown(until_us)} of device {device} at {now_us} microseconds; fix it"
            )
        return is_present, until_us

    def facts(self) -> dict[str, Any]:
        """The whole state as JSON, for `restore`."""
        return {"there": list(self.there), "away": list(self.away), "changes": sorted(self._changes)}

    def restore(self, facts: dict[str, Any], devices: Sequence[int]) -> None:
        """Restore the result of `facts` for the same devices."""
        self.there, self.away = Idle(facts["there"], devices), Idle(facts["away"], devices)
        self._changes = [(time_us, device) for time_us, device in facts["changes"]]
        for index in range(len(self._scheduled)):
            self._scheduled[index] = -1
        for time_us, device in self._changes:  # ascending, so the latest one stays
            self._scheduled[device - self._first] = time_us
