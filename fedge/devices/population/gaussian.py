"""Types of devices with normally distributed times, as in NVIDIA FLARE's simulated devices."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedge.config.registers.option import ConfigError, nearest, shown
from fedge.devices.population.fleet import LONGEST_S, Fleet

_DEFAULTS = {"share": 1.0, "seconds": 1.0, "seconds_sd": 0.0, "delay": 0.0, "delay_sd": 0.0}
TYPES: Mapping[str, Mapping[str, float]] = {
    "quick": {"seconds": 1.0, "seconds_sd": 0.1, "delay": 0.1, "delay_sd": 0.02},
    "usual": {"seconds": 2.0, "seconds_sd": 0.2, "delay": 0.1, "delay_sd": 0.02},
    "slow": {"seconds": 4.0, "seconds_sd": 0.4, "delay": 0.1, "delay_sd": 0.02},
}


def gaussian(
    owner: np.ndarray, rng: np.random.Generator, types: Mapping[str, Mapping[str, float]] | None = None
) -> Fleet:
    """Each device is of one type, drawn by the types' shares; the type sets the distribution of its times.

    The training time of a job is max(0, normal of `seconds` and `seconds_sd`) for any windows, and the upload
    takes max(0, normal of `delay` and `delay_sd`), both drawn for every job; the download takes no time.

    Source: NVIDIA FLARE's example of edge devices (Cifar10PTTaskProcessor: `device_speed`, a mean and a
    deviation per type; `communication_delay`, one for all; times below 0 count as 0, types are equally
    likely).

    Args:
        owner: (N,) user of each device.
        rng: source of draws.
        types: name → share, seconds, seconds_sd, delay, delay_sd; by default share and seconds are 1, the
            others 0. Without types there are three, equally likely, of 1, 2 and 4 s.
    """
    table = np.array([_type_numbers(name, entries) for name, entries in _checked_types(types).items()])
    shares = table[:, 0]
    if not shares.sum() > 0:
        raise ConfigError("devices.preset-args.types must have a share above 0, but all are 0; raise one")
    kind = rng.choice(len(table), len(owner), p=shares / shares.sum())
    seconds, sd, delay, delay_sd = table[kind, 1:].T.copy()
    zeros, unlimited = np.zeros(len(owner)), np.full(len(owner), np.inf)
    return Fleet(zeros, seconds, unlimited, unlimited, zeros, delay, "normal", sd=sd, delay_sd=delay_sd)


def _checked_types(types: Any) -> Mapping[str, Mapping[str, float]]:
    """The given types, or `TYPES` if there are none; ConfigError unless they are a table of tables."""
    if types is None:
        return TYPES
    if not isinstance(types, Mapping) or not types or not all(isinstance(t, Mapping) for t in types.values()):
        raise ConfigError(
            f"devices.preset-args.types must be a table of types, each a table, but is {shown(types)}; set "
            f"for example devices.preset-args.types.phone.seconds=2"
        )
    return types


def _type_numbers(name: str, entries: Mapping[str, float]) -> list[float]:
    """The numbers of a type in the order of `_DEFAULTS`; ConfigError unless all are numbers of at least 0."""
    numbers = {**_DEFAULTS}
    for raw_key, value in entries.items():
        key = raw_key.replace("-", "_")
        if key not in numbers:
            raise ConfigError(
                f"devices.preset-args.types.{name} must have {', '.join(_DEFAULTS)}, but has {shown(raw_key)}"
                f"{nearest(key, list(_DEFAULTS)) or '; rename it'}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_S:
            raise ConfigError(
                f"devices.preset-args.types.{name}.{key} must be a number of 0 to {LONGEST_S:g}, but is "
                f"{shown(value)}; try 1.0"
            )
        numbers[key] = float(value)
    return list(numbers.values())
