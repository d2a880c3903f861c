"""Training time of a job from a user's function, instead of a preset or trace; it is called for each job

    duration(work, further arguments by keyword) → virtual seconds of training, above 0

with facts about the device, the job and the past, and the job's own random numbers (`Work`). Transfers before
and after training remain those of the device.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import DURATIONS
from fedge.devices.population.fleet import LONGEST_S
from fedge.devices.population.selection import History
from fedge.seeding import Purpose, numpy_stream


@dataclass(frozen=True)
class Work:
    """One job about to start.

    Attributes:
        device: partition id of the device.
        attempt: number of the device's job, 1, 2, …
        leaf: number of its leaf.
        windows: windows to train on, counted with repetition.
        steps: optimiser steps.
        model_bytes: bytes received, and sent back.
        now_s: virtual time.
        usual_s: seconds of training drawn by the preset for this job.
        history: facts about all devices; read-only.
        seed: seed of the run, from which `rng` is derived.
    """

    device: int
    attempt: int
    leaf: int
    windows: int
    steps: int
    model_bytes: int
    now_s: float
    usual_s: float
    history: History
    seed: int = 0

    @cached_property
    def rng(self) -> np.random.Generator:
        """Random numbers of this job alone, from a stream of (seed, device, attempt)."""
        return numpy_stream(self.seed, Purpose.DURATION, self.device, self.attempt)


Duration = Callable[[Work], float]


def duration_of(name: str, arguments: Mapping[str, Any]) -> Duration | None:
    """The function of `devices.duration` with its arguments (virtual seconds); None for the preset's times.

    Raises:
        ConfigError: arguments were given without a function, or there is no such code.
    """
    if DURATIONS.is_own(name):
        return partial(DURATIONS.load(name), **arguments)
    if arguments:
        raise ConfigError(
            f"devices.duration-args must be empty for devices.duration {name}, but are {shown(arguments)}; "
            f"give them as devices.preset-args, or name a duration of your own"
        )
    return None


def checked_seconds(duration: Duration, work: Work) -> float:
    """The seconds of training from a duration, checked.

    Raises:
        ConfigError: the function raised an exception, or returned something other than a number above 0.
    """
    context = f"for device {work.device}, job {work.attempt}, at {work.now_s:g} virtual s"
    try:
        seconds = duration(work)
    except ConfigError:
        raise
    except own_errors() as error:
        raise ConfigError(f"devices.duration raised {own_error(error)} {context}; fix it") from error
    is_number = isinstance(seconds, int | float | np.integer | np.floating) and not isinstance(seconds, bool)
    if not is_number or not math.isfinite(seconds) or not 0 < seconds <= LONGEST_S:
        raise ConfigError(
            f"devices.duration must return seconds above 0, at most {LONGEST_S:g}, but returned "
            f"{shown(seconds)} {context}; fix it"
        )
    return float(seconds)
