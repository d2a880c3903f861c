"""Presence of devices over time.

An availability is a function (devices, seed, further arguments by keyword) → function (device, virtual
microseconds) → (whether present, end of this state). For each device, the latter is called in the order of
time. Its results follow from (seed, device, time) alone, so checkpoints do not contain them.
"""

import math
from collections.abc import Callable
from typing import cast

import numpy as np

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import AVAILABILITY
from fedge.config.sections.devices import DevicesConfig
from fedge.devices.timeline.clock import SECOND_US
from fedge.seeding import Purpose, numpy_stream

FOREVER_US = 2**62
Presence = Callable[[int, int], tuple[bool, int]]


def presence_of(devices: DevicesConfig, count: int, seed: int) -> Presence:
    """Presence of a run's devices, for queries from time 0 on."""
    presence = AVAILABILITY.load(devices.availability)(count, seed, **devices.arguments("availability"))
    return cast(Presence, presence)


def always(devices: int, seed: int) -> Presence:
    """Every device is always present."""
    return lambda device, now_us: (True, FOREVER_US)


def diurnal(devices: int, seed: int, day_s: float = 86_400.0, share: float = 0.5) -> Presence:
    """Every device is present for the same share of a day, from its own time of day on.

    Args:
        devices: number of devices.
        seed: root of the random stream for times of day.
        day_s: virtual seconds of a day.
        share: share of the day, above 0 and at most 1.
    """
    _refuse_outside("day_s", day_s, 1e-3, 1e9)
    _refuse_outside("share", share, 1e-6, 1.0)
    day = max(1, round(day_s * SECOND_US))
    on = max(1, round(share * day))
    offset = numpy_stream(seed, Purpose.AVAILABILITY).integers(day, size=devices).tolist()

    def presence(device: int, now_us: int) -> tuple[bool, int]:
        time_of_day = (now_us + offset[device]) % day
        is_present = time_of_day < on
        if on == day:
            return True, FOREVER_US
        return is_present, now_us + (on if is_present else day) - time_of_day

    return presence


def markov(devices: int, seed: int, on_s: float = 600.0, off_s: float = 600.0) -> Presence:
    """Every device alternates between present and absent, for exponential times with these means.

    At the start, a share on / (on + off) of the devices is present.
    """
    _refuse_outside("on_s", on_s, 1e-3, 1e9)
    _refuse_outside("off_s", off_s, 1e-3, 1e9)
    walks: dict[int, _Walk] = {}

    def presence(device: int, now_us: int) -> tuple[bool, int]:
        walk = walks.get(device)
        if walk is None:
            rng = numpy_stream(seed, Purpose.AVAILABILITY, device)
            walk = walks[device] = _Walk(rng, on_s * SECOND_US, off_s * SECOND_US)
        return walk.at(now_us)

    return presence


class _Walk:
    """State of one device that comes and goes."""

    def __init__(self, rng: np.random.Generator, on_us: float, off_us: float) -> None:
        self._rng = rng
        self._means = (off_us, on_us)
        self._is_present = bool(rng.random() < on_us / (on_us + off_us))
        self._until = self._draw_duration()

    def _draw_duration(self) -> int:
        """Random duration of the current state, at least a microsecond."""
        return max(1, math.ceil(self._rng.exponential(self._means[self._is_present])))

    def at(self, now_us: int) -> tuple[bool, int]:
        """Presence at a time, and the end of this state; times must be ascending."""
        while self._until <= now_us:
            self._is_present = not self._is_present
            self._until += self._draw_duration()
        return self._is_present, self._until


def _refuse_outside(name: str, value: float, least: float, most: float) -> None:
    """Raise ConfigError unless an argument is a number between two bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConfigError(
            f"devices.availability-args.{name} must be a number of {least:g} to {most:g}, but is {value!r}; "
            f"change it"
        )
