"""Fleets: how fast devices compute, receive and send.

A preset is a function (owner, rng, further arguments by keyword) → `Fleet`, where owner (N,) int64 is the
number of the user whose device it is.
"""

import numpy as np

from fedge.config.option import ConfigError
from fedge.devices.fleet import Fleet

_MEGA = 1e6


def lognormal(
    owner: np.ndarray,
    rng: np.random.Generator,
    seconds: float = 0.02,
    sigma: float = 0.8,
    user_sigma: float = 0.0,
    megabytes: float = 1.0,
    bandwidth_sigma: float = 0.8,
    jitter: float = 0.2,
) -> Fleet:
    """Speeds and bandwidths are log-normal over devices; a job's training time has log-normal noise.

    Args:
        owner: (N,) user of each device.
        rng: what is drawn from.
        seconds: median of seconds per window and epoch.
        sigma: of its logarithm over devices.
        user_sigma: of the logarithm of a factor that all devices of a user share.
        megabytes: median of 10⁶ bytes per second downwards; half of that upwards.
        bandwidth_sigma: of its logarithm over devices.
        jitter: of the logarithm of a job's training time.
    """
    _refuse_negative(seconds=seconds, sigma=sigma, user_sigma=user_sigma, bandwidth_sigma=bandwidth_sigma)
    count = len(owner)
    speed = seconds * np.exp(sigma * rng.standard_normal(count))
    speed *= np.exp(user_sigma * rng.standard_normal(int(owner.max()) + 1))[owner]
    down = _MEGA * megabytes * np.exp(bandwidth_sigma * rng.standard_normal(count))
    nothing = np.zeros(count)
    return Fleet(speed, nothing, down, down / 2, nothing, nothing, sigma=jitter)


def half_normal(owner: np.ndarray, rng: np.random.Generator, seconds: float = 1.0) -> Fleet:
    """The time of a job is |z| × seconds, drawn anew for every job; transfers take none.

    Source: Nguyen et al. 2022 (FedBuff) and their simulator FLSim draw durations of training half-normal.
    """
    _refuse_negative(seconds=seconds)
    return _timed(np.full(len(owner), float(seconds)), "half-normal")


def fedrevive(owner: np.ndarray, rng: np.random.Generator) -> Fleet:
    """A job trains for an exponential time of mean 1, 1.3 or 1.6 s (a quarter, half, a quarter of devices).

    Download takes 0.1 s and upload 0.15 s or 0.25 s, each for half of the devices.

    Source: the simulator of FedRevive (Askin et al. 2025), as its authors' NVFlare example describes it.
    """
    count = len(owner)
    mean = rng.choice([1.0, 1.3, 1.6], count, p=[0.25, 0.5, 0.25])
    up_s = rng.choice([0.15, 0.25], count)
    return _timed(mean, "exponential", np.full(count, 0.1), up_s)


def equal(owner: np.ndarray, rng: np.random.Generator, seconds: float = 1.0) -> Fleet:
    """Every job of every device takes `seconds`, whatever it trains on: asynchrony has nothing to win."""
    _refuse_negative(seconds=seconds)
    return _timed(np.full(len(owner), float(seconds)), "log-normal")


def _timed(
    seconds: np.ndarray, noise: str, down_s: np.ndarray | None = None, up_s: np.ndarray | None = None
) -> Fleet:
    """Return devices whose jobs take times of their own, whatever their windows and bytes."""
    nothing, endless = np.zeros(len(seconds)), np.full(len(seconds), np.inf)
    return Fleet(
        nothing, seconds, endless, endless,
        nothing if down_s is None else down_s, nothing if up_s is None else up_s, noise,
    )  # fmt: skip


def _refuse_negative(**arguments: float) -> None:
    """Raise ConfigError for the first argument that is no number of at least 0."""
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
            raise ConfigError(
                f"devices.preset-args.{name} must be a number of at least 0, but is {value!r}; try 1.0"
            )
