"""Sampling of a motion by a phone or watch: instants, losses, clock, and the sensors' readings.

The differences between devices follow the measurements of Stisen et al. 2015: rates differing by model and
jittering with load, biases and gains differing by device, lost samples, and clocks without a common epoch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hhar.facts import ACTIVITIES, GAP_QUANTILES, DeviceFacts
from hhar.synthetic.motion import MOTION_RATE_HZ, Matrix, Motion, rotation
from hhar.windows.recordings import Recording

BACKWARDS_SHARE = 0.029  # of rows whose Creation_Time runs backwards: 287 of 10,000 counted on nexus4_1


@dataclass(frozen=True)
class ModelPhysics:
    """Spread of the sensors of one model: gain (share), bias, noise and resolution (m/s², rad/s)."""

    gain_sd: float
    acc_bias: float
    acc_noise: float
    acc_step: float
    gyro_bias: float
    gyro_noise: float
    jitter: float  # standard deviation of a sampling interval, share of the interval


MODELS: dict[str, ModelPhysics] = {
    "nexus4": ModelPhysics(0.010, 0.15, 0.035, 0.0012, 0.010, 0.004, 0.06),
    "s3": ModelPhysics(0.012, 0.20, 0.045, 0.0096, 0.012, 0.006, 0.04),
    "s3mini": ModelPhysics(0.020, 0.35, 0.060, 0.0192, 0.015, 0.008, 0.03),
    "samsungold": ModelPhysics(0.030, 0.50, 0.090, 0.0383, 0.015, 0.008, 0.006),
    "gear": ModelPhysics(0.015, 0.25, 0.050, 0.0024, 0.012, 0.006, 0.05),
    "lgwatch": ModelPhysics(0.015, 0.25, 0.060, 0.0024, 0.012, 0.006, 0.10),
}


@dataclass(frozen=True)
class DeviceInstance:
    """One device as one user carries it: mounting (3, 3), gain (3,) and biases (3,)."""

    facts: DeviceFacts
    mounting: Matrix
    gain: Matrix
    acc_bias: Matrix
    gyro_bias: Matrix


@dataclass(frozen=True)
class Presence:
    """Stretches of a bout with readings from a device: `edges` (2m,) are their starts and ends in seconds.

    `lost_s` (2m,) is the time lost before each edge, but not shown by the device's own clock.
    """

    edges: Matrix
    lost_s: Matrix


def make_device(
    facts: DeviceFacts, unit_rng: np.random.Generator, carry_rng: np.random.Generator
) -> DeviceInstance:
    """A device: sensors from `unit_rng` (the same for all users), place in the pouch from `carry_rng`."""
    model = MODELS[facts.model]
    gain = 1 + unit_rng.normal(0, model.gain_sd, 3)
    acc_bias, gyro_bias = unit_rng.normal(0, model.acc_bias, 3), unit_rng.normal(0, model.gyro_bias, 3)
    roll, pitch, yaw = carry_rng.normal(0, [0.08, 0.08, 0.12])
    return DeviceInstance(facts, rotation(roll, pitch, yaw), gain, acc_bias, gyro_bias)


def device_presence(
    facts: DeviceFacts, activity: str, duration_s: float, rng: np.random.Generator, long_gaps: bool = True
) -> Presence:
    """Draw the stretches of a bout in which the device delivers, with coverage and gaps as counted in HHAR.

    Gaps over one second show in the clock. The rest of the loss is in dropouts under a second (under 2.4 s on
    a watch), which an epoch clock shows and a boot clock does not. The device s3mini_2, which covers less
    than half of a bout, instead delivers one stretch at its start.
    """
    column = ACTIVITIES.index(activity)
    coverage = min(facts.coverage[column], 1.0)
    missing = (1 - coverage) * duration_s
    num_gaps = rng.poisson(facts.gaps_per_min[column] / 60 * duration_s) if long_gaps else 0
    quantiles = np.array(GAP_QUANTILES)
    gaps = np.interp(rng.uniform(size=num_gaps), quantiles[:, 0], quantiles[:, 1])
    gaps = gaps[np.cumsum(gaps) < 0.9 * duration_s]
    remaining = max(missing - gaps.sum(), 0.0)
    if facts.name == "s3mini_2":
        remaining = 0.0
        duration_used = max(coverage * duration_s, 1.0)
    else:
        duration_used = duration_s
    longest = 2.4 if facts.is_watch else 0.9
    dropouts = rng.uniform(0.1, longest, round(remaining / ((0.1 + longest) / 2)))
    visible = np.concatenate([np.ones(len(gaps)), np.full(len(dropouts), float(facts.clock == "epoch"))])
    order = rng.permutation(len(visible))
    lengths, visible = np.concatenate([gaps, dropouts])[order], visible[order]
    present = max(duration_used - lengths.sum(), 0.2 * duration_used)
    cuts = np.sort(rng.uniform(0, present, len(lengths)))
    lost = np.concatenate([[0.0], np.cumsum(lengths)])
    hidden = np.concatenate([[0.0], np.cumsum(lengths * (1 - visible))])
    edges = np.empty(2 * len(lost))
    edges[0::2] = np.concatenate([[0.0], cuts]) + lost
    edges[1::2] = np.concatenate([cuts, [present]]) + lost
    return Presence(np.minimum(edges, duration_s), np.repeat(hidden, 2))


def sample_times(
    facts: DeviceFacts,
    rate_hz: float,
    activity: str,
    presence: Presence,
    duration_s: float,
    rng: np.random.Generator,
) -> tuple[Matrix, Matrix]:
    """Instants (n,) of a bout in seconds, about `rate_hz` Hz, and the same by the device's clock."""
    step = 1 / rate_hz
    num = int(duration_s * rate_hz)
    jitter = MODELS[facts.model].jitter
    times = (np.arange(num) + rng.uniform() + np.clip(rng.normal(0, jitter, num), -0.4, 0.4)) * step
    extra = facts.coverage[ACTIVITIES.index(activity)] - 1
    if extra > 0.05:  # some phones insert samples while they move
        chosen = times[rng.uniform(size=num) < extra]
        times = np.sort(np.concatenate([times, chosen + 0.5 * step]))
    interval = np.searchsorted(presence.edges, times, side="right")
    inside = interval % 2 == 1
    times, interval = times[inside], interval[inside]
    return times, times - presence.lost_s[interval - 1]


def sense(
    device: DeviceInstance, sensor: str, motion: Motion, times: Matrix, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Readings of a sensor (n, 3): turned into its frame, scaled, biased, noisy, rounded."""
    model = MODELS[device.facts.model]
    source = motion.force if sensor == "acc" else motion.spin
    position = np.minimum(times * MOTION_RATE_HZ, source.shape[1] - 1.001)
    lower = position.astype(np.int64)
    blend = position - lower
    body = source[:, lower] * (1 - blend) + source[:, lower + 1] * blend
    readings = device.mounting @ body
    if sensor == "acc":
        readings = readings * device.gain[:, None] + device.acc_bias[:, None]
        readings += rng.normal(0, model.acc_noise, readings.shape)
        readings = np.round(readings / model.acc_step) * model.acc_step
    else:
        readings += device.gyro_bias[:, None] + rng.normal(0, model.gyro_noise, readings.shape)
    return np.ascontiguousarray(readings.T, dtype=np.float32)


def record(
    device: DeviceInstance,
    user: str,
    sensor: str,
    activity: str,
    motion: Motion,
    presence: Presence,
    start_ms: int,
    duration_s: float,
    rng: np.random.Generator,
) -> Recording | None:
    """A sensor's recording of `duration_s` seconds starting at epoch `start_ms`; None if it is empty."""
    facts = device.facts
    rate_hz = facts.acc_hz if sensor == "acc" else facts.gyro_hz
    if rate_hz is None:
        return None
    times, clock_s = sample_times(facts, rate_hz, activity, presence, duration_s, rng)
    if len(times) == 0:
        return None
    values = sense(device, sensor, motion, times, rng)
    epoch_ns = start_ms * 1_000_000 - int(facts.boot_epoch_s * 1e9)
    if facts.clock == "epoch":
        epoch_ns -= 1_070_000_000 if (start_ms // 86_400_000) % 2 else -4_300_000_000  # as on HHAR's two days
    creation_ns = epoch_ns + np.rint(clock_s * 1e9).astype(np.int64)
    burst = facts.burst_ms
    latency_ms = burst * np.ceil((times * 1000 + rng.uniform(0, burst)) / burst)
    arrival_ms = start_ms + latency_ms.astype(np.int64)
    order = _delivery_order(len(times), rng)
    return Recording(user, facts.name, sensor, activity, arrival_ms, creation_ns[order], values[order])


def _delivery_order(num: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """0…num-1 with a few neighbours swapped, so creation times run backwards in places."""
    order = np.arange(num)
    chosen = np.flatnonzero(rng.uniform(size=max(num - 1, 0)) < BACKWARDS_SHARE)
    chosen = chosen[np.diff(chosen, prepend=-2) > 1]
    order[chosen], order[chosen + 1] = chosen + 1, chosen
    return order
