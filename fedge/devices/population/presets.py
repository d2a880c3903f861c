"""Presets of fleets: how fast devices compute, receive and send.

A preset is a function (owner, rng, further arguments by keyword) → `Fleet`, where owner (N,) int64 is the
user of each device.
"""

import numpy as np

from fedge.config.registers.option import ConfigError
from fedge.devices.population.fleet import Fleet
from fedge.devices.population.trace import read_table

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
    delay: float = 0.0,
) -> Fleet:
    """Speeds and bandwidths are log-normal over devices; training times have log-normal noise per job.

    Args:
        owner: (N,) user of each device.
        rng: source of draws.
        seconds: median over devices of the seconds per window and epoch.
        sigma: standard deviation of their logarithm over devices.
        user_sigma: standard deviation of the logarithm of a factor common to a user's devices.
        megabytes: median download bandwidth in 10⁶ bytes per second; uploads have half of it.
        bandwidth_sigma: standard deviation of its logarithm over devices.
        jitter: standard deviation of the logarithm of a job's training time.
        delay: seconds of a transfer besides its bytes, as for a distant server.
    """
    _refuse_negative(
        seconds=seconds, sigma=sigma, user_sigma=user_sigma, bandwidth_sigma=bandwidth_sigma, delay=delay
    )
    _refuse_not_positive(megabytes=megabytes)
    count = len(owner)
    speed = seconds * np.exp(sigma * rng.standard_normal(count))
    speed *= np.exp(user_sigma * rng.standard_normal(int(owner.max()) + 1))[owner]
    down = _MEGA * megabytes * np.exp(bandwidth_sigma * rng.standard_normal(count))
    zeros, delays = np.zeros(count), np.full(count, float(delay))
    return Fleet(speed, zeros, down, down / 2, delays, delays, sigma=jitter)


def half_normal(owner: np.ndarray, rng: np.random.Generator, seconds: float = 1.0) -> Fleet:
    """A job takes |z| × seconds, drawn for every job; transfers take no time.

    Source: Nguyen et al. 2022 (FedBuff), and their simulator FLSim, draw training times from a half-normal.
    """
    _refuse_negative(seconds=seconds)
    return _fixed_times(np.full(len(owner), float(seconds)), "half-normal")


def fedrevive(owner: np.ndarray, rng: np.random.Generator, shifted: bool = False) -> Fleet:
    """A job trains for an exponential time of mean 1, 1.3 or 1.6 s (a quarter, half, a quarter of devices).

    Downloads take 0.1 s and uploads 0.15 s or 0.25 s, each for half of the devices. `shifted` is the second
    schedule: training of mean 0.1 s for all, downloads 0.02 s, uploads 0.05 or 0.1 s.

    Source: the experiments of FedRevive (Askin et al. 2025), as its authors' NVFlare example describes them
    (research/fedrevive); there uploads also vary by 0.02 s (0.01 s) from job to job.
    """
    count = len(owner)
    if shifted:
        return _fixed_times(
            np.full(count, 0.1), "exponential", np.full(count, 0.02), rng.choice([0.05, 0.1], count)
        )
    mean = rng.choice([1.0, 1.3, 1.6], count, p=[0.25, 0.5, 0.25])
    up_s = rng.choice([0.15, 0.25], count)
    return _fixed_times(mean, "exponential", np.full(count, 0.1), up_s)


PHONES = {"nexus4": (4, 1.5), "s3": (4, 1.4), "s3mini": (2, 1.0), "samsungold": (1, 1.4)}
"""HHAR's phone models → (cores, GHz) of their data sheets: LG Nexus 4, Samsung Galaxy S3, S3 mini, S Plus."""


def hhar_phones(
    owner: np.ndarray,
    rng: np.random.Generator,
    seconds: float = 0.02,
    megabytes: float = 1.0,
    jitter: float = 0.2,
) -> Fleet:
    """Every device is one of the four phone models of HHAR, each equally likely, in four tiers of speed.

    Seconds per window are inversely proportional to cores × GHz: 1, 1.07, 3 and 4.3 times those of a Nexus 4.
    They rank hardware; they are not measurements of training.

    Source: Stisen et al. 2015 for the models, of which every user carried two each; makers' data sheets for
    cores and clock.

    Args:
        owner: (N,) user of each device.
        rng: source of draws.
        seconds: seconds per window and epoch on the fastest model.
        megabytes: download bandwidth of all devices in 10⁶ bytes per second; uploads have half of it.
        jitter: standard deviation of the logarithm of a job's training time.
    """
    _refuse_negative(seconds=seconds)
    _refuse_not_positive(megabytes=megabytes)
    rates = np.array([cores * clock for cores, clock in PHONES.values()])
    speed = seconds * rates.max() / rng.choice(rates, len(owner))
    down, zeros = np.full(len(owner), _MEGA * megabytes), np.zeros(len(owner))
    return Fleet(speed, zeros, down, down / 2, zeros, zeros, sigma=jitter)


def fedscale(
    owner: np.ndarray, rng: np.random.Generator, path: str = "", kilobits: float = 5000.0, jitter: float = 0.0
) -> Fleet:
    """A job takes 3 × milliseconds of inference per sample × samples, plus (down + up) / bandwidth.

    Without a file, seconds per sample are 0.005 × log-normal(1, 0.6), and all devices have the same
    bandwidth.

    Source: FedScale (Lai et al. 2022), fedscale/cloud/internal/client_metadata.py: get_completion_time for a
    file, get_completion_time_lognormal without one; there, the latter is drawn for every job.

    Args:
        owner: (N,) user of each device.
        rng: source of draws.
        path: path of a CSV file with a row per device, used in turn after a shuffle; columns as FedScale's
            device capacities have them (computation, milliseconds of inference per sample; communication,
            kilobits per second).
        kilobits: kilobits per second of every device, without a file.
        jitter: standard deviation of the logarithm of a job's training time.
    """
    count, zeros = len(owner), np.zeros(len(owner))
    if path:
        rows = np.array(read_table(path, {"computation": 0.0, "communication": np.inf}, ("computation",)))
        milliseconds, rate = rows[rng.permutation(len(rows))][np.arange(count) % len(rows)].T
        bytes_s = 125.0 * rate
        return Fleet(0.003 * milliseconds, zeros, bytes_s, bytes_s, zeros, zeros, sigma=jitter)
    _refuse_not_positive(kilobits=kilobits)
    bytes_s = np.full(count, 125.0 * kilobits)
    speed = 0.005 * np.maximum(1e-4, rng.lognormal(1.0, 0.6, count))
    return Fleet(speed, zeros, bytes_s, bytes_s, zeros, zeros, sigma=jitter)


def hierfavg(
    owner: np.ndarray,
    rng: np.random.Generator,
    bits: float = 60_000.0,
    gigahertz: float = 1.0,
    distance: float = 1.0,
) -> Fleet:
    """The devices of HierFAVG: 20 CPU cycles a bit, an uplink of 5.67 Mbit/s, 0.5 W of radio; no randomness.

    Training takes cycles · bits / f seconds a window, at a/2 · f³ watts with a = 2·10⁻²⁸; the uplink carries
    B log₂(1 + h p / σ) bits per second with B = 1 MHz, h = 10⁻⁸, p = 0.5 W, σ = 10⁻¹⁰ W. Downloads take no
    time.

    Source: Liu et al. 2020 (HierFAVG), section V, for MNIST: 0.024 s and 0.0024 J a step of 20 windows,
    0.1233 s and 0.0616 J to send 21,840 weights. There the cloud is ten times as far, upwards; because links
    between servers count both ways, asynchrony.cloud-delay-s = 0, cloud-megabytes-s = 0.1418.

    Args:
        owner: (N,) user of each device.
        rng: not used.
        bits: bits of a window.
        gigahertz: f, clock of the processor.
        distance: distance of the server, as a factor on the time and energy of an upload to the paper's edge;
            10 for clients directly under its cloud.
    """
    _refuse_not_positive(bits=bits, gigahertz=gigahertz, distance=distance)
    count, hertz = len(owner), 1e9 * gigahertz
    radio_w, uplink = 0.5, 1e6 * np.log2(1 + 1e-8 * 0.5 / 1e-10) / 8 / distance
    zeros = np.zeros(count)
    return Fleet(
        np.full(count, 20 * bits / hertz), zeros, np.full(count, np.inf), np.full(count, uplink),
        zeros, zeros, train_watts=np.full(count, 1e-28 * hertz**3), radio_watts=np.full(count, radio_w),
    )  # fmt: skip


def equal(owner: np.ndarray, rng: np.random.Generator, seconds: float = 1.0) -> Fleet:
    """Every job of every device takes `seconds`, so asynchrony cannot save time."""
    _refuse_negative(seconds=seconds)
    return _fixed_times(np.full(len(owner), float(seconds)), "log-normal")


def _fixed_times(
    seconds: np.ndarray, noise: str, down_s: np.ndarray | None = None, up_s: np.ndarray | None = None
) -> Fleet:
    """Devices whose jobs take given times, whatever the windows and bytes."""
    zeros, unlimited = np.zeros(len(seconds)), np.full(len(seconds), np.inf)
    return Fleet(
        zeros, seconds, unlimited, unlimited,
        zeros if down_s is None else down_s, zeros if up_s is None else up_s, noise,
    )  # fmt: skip


def _refuse_negative(**arguments: float) -> None:
    """Raise ConfigError for the first argument below 0, infinite or not a number."""
    for name, value in arguments.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
            raise ConfigError(
                f"devices.preset-args.{name} must be a number of at least 0, but is {value!r}; try 1.0"
            )


def _refuse_not_positive(**arguments: float) -> None:
    """Raise ConfigError for the first argument that is not a number above 0."""
    for name, value in arguments.items():
        _refuse_negative(**{name: value})
        if not value:
            raise ConfigError(f"devices.preset-args.{name} must be above 0, but is {value!r}; try 1.0")
