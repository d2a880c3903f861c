"""Duration of a device's job: download of the model, training, and upload.

    download  down_s + bytes / down
    training  (per_job_s + per_window_s × windows × epochs) × noise
    upload    up_s + bytes / up

in virtual microseconds, at least one in all. FedScale (Lai et al. 2022, `getCompletionTime`) is the special
case per_window_s = 3 × milliseconds of inference per sample / 1000, without noise.
"""

import math
from array import array
from dataclasses import dataclass, fields, replace
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import DEVICES
from fedge.config.sections.devices import DevicesConfig
from fedge.devices.population.draws import Draw
from fedge.devices.timeline.clock import SECOND_US
from fedge.seeding import Purpose, numpy_stream

NOISES = ("log-normal", "exponential", "half-normal", "normal")
LONGEST_S = 1e9  # limit for a part of a job: thirty years
_OPTIONAL = ("train_watts", "radio_watts", "sd", "delay_sd")  # None if unknown, or if nothing varies
_MOST_S = 1e12  # limit for a job: a longer one, e.g. at a byte in a lifetime, never ends


@dataclass(frozen=True)
class Fleet:
    """Speeds and links of N devices; every array is (N,) float64.

    Attributes:
        per_window_s: seconds of training per window and epoch.
        per_job_s: seconds of training per job, whatever its windows.
        down, up: bytes per second.
        down_s, up_s: seconds of a transfer besides its bytes.
        noise: factor on training times, drawn for each job: "log-normal", exp(sigma z); "exponential", of
            mean 1; "half-normal", |z|, of mean √(2/π). "normal" noise is added instead: sd z to the training
            time, and delay_sd z' to `up_s`, neither of which can fall below 0.
        sigma: of log-normal noise; 0 for none.
        sd, delay_sd: seconds, for normal noise; None for 0.
        train_watts, radio_watts: power during training, and during transfers; None if unknown.
    """

    per_window_s: np.ndarray
    per_job_s: np.ndarray
    down: np.ndarray
    up: np.ndarray
    down_s: np.ndarray
    up_s: np.ndarray
    noise: str = "log-normal"
    sigma: float = 0.0
    train_watts: np.ndarray | None = None
    radio_watts: np.ndarray | None = None
    sd: np.ndarray | None = None
    delay_sd: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.per_window_s)


def check_fleet(fleet: Fleet, count: int, label: str) -> Fleet:
    """A fleet, checked to have `count` devices and possible times.

    Raises:
        ConfigError: a time is impossible; `label` names where the fleet comes from.
    """
    if not isinstance(fleet, Fleet):
        raise ConfigError(f"{label} must return a fedge.devices.Fleet, but returned {shown(fleet)}; fix it")
    for declared in fields(fleet):
        array = getattr(fleet, declared.name)
        if declared.name in ("noise", "sigma") or (declared.name in _OPTIONAL and array is None):
            continue
        is_rate = declared.name in ("down", "up")
        least = np.finfo(float).tiny if is_rate else 0.0
        values = np.asarray(array)
        fits = values.shape == (count,) and np.issubdtype(values.dtype, np.floating)
        if not fits or not ((values >= least) & (values <= np.inf if is_rate else values <= LONGEST_S)).all():
            raise ConfigError(
                f"{label} must give each of {count} devices a {declared.name} "
                f"{'above 0' if is_rate else f'of 0 to {LONGEST_S:g}'}, but gives {shown(array)}; change it"
            )
    is_number = isinstance(fleet.sigma, int | float | np.number) and not isinstance(fleet.sigma, bool)
    if fleet.noise not in NOISES or not is_number or not 0 <= fleet.sigma <= 10:
        raise ConfigError(
            f"{label} must have a noise of {', '.join(NOISES)} and a sigma of 0 to 10, but has "
            f"{shown(fleet.noise)} and {shown(fleet.sigma)}; change them"
        )
    job_s = fleet.per_window_s + fleet.per_job_s + fleet.down_s + fleet.up_s + 1 / fleet.down + 1 / fleet.up
    if not (job_s > 0).all():
        raise ConfigError(
            f"{label} must make every job take time, but those of device {int(np.argmin(job_s > 0))} take "
            f"none; give it seconds, or bytes per second"
        )
    return fleet


def fleet_of(devices: DevicesConfig, owner: np.ndarray, seed: int) -> Fleet:
    """The fleet of a run, from its preset, with power.

    Args:
        devices: section `devices` of the configuration.
        owner: (N,) int64, user of each client.
        seed: root of all random streams.

    Raises:
        ConfigError: the preset cannot make a fleet of this size.
    """
    rng = numpy_stream(seed, Purpose.DEVICES)
    unchecked = DEVICES.load(devices.preset)(owner, rng, **devices.arguments("preset"))
    fleet = check_fleet(unchecked, len(owner), f"devices.preset {devices.preset}")
    return with_power(fleet, devices.train_watts, devices.radio_watts)


def watts_of(fleet: Fleet) -> tuple[np.ndarray, np.ndarray] | None:
    """Power in training and in transfers, (N,) float64 each; None if both are unknown."""
    train, radio, zeros = fleet.train_watts, fleet.radio_watts, np.zeros(len(fleet))
    if train is None and radio is None:
        return None
    return zeros if train is None else train, zeros if radio is None else radio


def with_power(fleet: Fleet, train_watts: float, radio_watts: float) -> Fleet:
    """A fleet with these powers where it has none of its own; 0 leaves them unknown."""
    count = len(fleet)
    if train_watts and fleet.train_watts is None:
        fleet = replace(fleet, train_watts=np.full(count, train_watts))
    if radio_watts and fleet.radio_watts is None:
        fleet = replace(fleet, radio_watts=np.full(count, radio_watts))
    return fleet


def mean_job_s(fleet: Fleet, windows: np.ndarray, model_bytes: int) -> np.ndarray:
    """Mean seconds of a job of each device, (N,) float64.

    Windows (N,) int64 count once per epoch; a model has `model_bytes` bytes.

    >>> one = np.ones(1)
    >>> mean_job_s(Fleet(0.5 * one, one, 100 * one, 50 * one, 0 * one, 0 * one), np.array([4]), 200)
    array([9.])
    """
    if fleet.noise == "normal":
        train_s = fleet.per_job_s + fleet.per_window_s * windows
        return _job_seconds(
            fleet, model_bytes, _mean_above_0(train_s, fleet.sd), _mean_above_0(fleet.up_s, fleet.delay_sd)
        )
    factors = {"log-normal": math.exp(fleet.sigma**2 / 2), "half-normal": math.sqrt(2 / math.pi)}
    return _scaled_seconds(fleet, windows, model_bytes, factors.get(fleet.noise, 1.0))


def fast_job_s(fleet: Fleet, windows: np.ndarray, model_bytes: int) -> np.ndarray:
    """Seconds of a fast job of each device, which one in a thousand undercuts, (N,) float64.

    Windows (N,) int64 count once per epoch; a model has `model_bytes` bytes.
    """
    if fleet.noise == "normal":
        train_s = fleet.per_job_s + fleet.per_window_s * windows - 3.09 * _or_0(fleet.sd)
        delays = fleet.up_s - 3.09 * _or_0(fleet.delay_sd)
        return _job_seconds(fleet, model_bytes, np.maximum(train_s, 0.0), np.maximum(delays, 0.0))
    factors = {"log-normal": math.exp(-3.09 * fleet.sigma), "half-normal": 0.00125}
    return _scaled_seconds(fleet, windows, model_bytes, factors.get(fleet.noise, 0.001))


def _scaled_seconds(fleet: Fleet, windows: np.ndarray, model_bytes: int, factor: float) -> np.ndarray:
    """Seconds of jobs (N,) whose training takes `factor` times its noiseless time."""
    train_s = (fleet.per_job_s + fleet.per_window_s * windows) * factor
    return _job_seconds(fleet, model_bytes, train_s, fleet.up_s)


def _job_seconds(fleet: Fleet, model_bytes: int, train_s: np.ndarray, delays: np.ndarray) -> np.ndarray:
    """Seconds of jobs (N,) with given training times, and upload `delays` besides their bytes."""
    seconds: np.ndarray = fleet.down_s + model_bytes / fleet.down + train_s + delays + model_bytes / fleet.up
    return seconds


def _or_0(deviations: np.ndarray | None) -> np.ndarray | float:
    """Deviations (N,), or 0 if nothing varies."""
    return 0.0 if deviations is None else deviations


def _mean_above_0(means: np.ndarray, deviations: np.ndarray | None) -> np.ndarray:
    """Mean of max(0, normal) for means and deviations (N,): m Φ(m/s) + s φ(m/s).

    >>> _mean_above_0(np.array([1.0, 0.0]), np.array([0.0, 1.0])).round(4)
    array([1.    , 0.3989])
    """
    if deviations is None:
        return means
    normal = NormalDist()
    return np.array([
        m * normal.cdf(m / s) + s * normal.pdf(m / s) if s else m
        for m, s in zip(means.tolist(), deviations.tolist(), strict=True)
    ])  # fmt: skip


class Times(NamedTuple):
    """Seconds of one job, not counting the transfer of bytes.

    Attributes:
        down_s: before the model's bytes are received.
        train_s: training.
        up_s: before the result's bytes are sent.
    """

    down_s: float
    train_s: float
    up_s: float


class Durations:
    """Durations of single jobs of a fleet."""

    def __init__(self, fleet: Fleet) -> None:
        """Store a fleet as Python arrays, which are faster to index than NumPy's."""
        self._per_window_s, self._per_job_s = _float_array(fleet.per_window_s), _float_array(fleet.per_job_s)
        self._down, self._up = _float_array(fleet.down), _float_array(fleet.up)
        self._down_s, self._up_s = _float_array(fleet.down_s), _float_array(fleet.up_s)
        self._noise = fleet.noise
        self._sigma = fleet.sigma
        zeros = np.zeros(len(fleet) if fleet.noise == "normal" else 0)
        self._sd = _float_array(zeros if fleet.sd is None else fleet.sd)
        self._delay_sd = _float_array(zeros if fleet.delay_sd is None else fleet.delay_sd)

    def times(self, device: int, windows: int, draw: Draw) -> Times:
        """Times of a device's job on so many windows, counted with repetition."""
        train_s = self._per_job_s[device] + self._per_window_s[device] * windows
        down_s, up_s = self._down_s[device], self._up_s[device]
        if self._noise == "normal":
            delay_s = up_s + self._delay_sd[device] * _normal_quantile(draw.uniform)
            return Times(down_s, max(0.0, train_s + self._sd[device] * draw.normal), max(0.0, delay_s))
        return Times(down_s, train_s * self._noise_factor(draw), up_s)

    def links(self, device: int) -> tuple[float, float]:
        """Bytes per second received and sent by a device alone on the link."""
        return self._down[device], self._up[device]

    def job_times(
        self, device: int, model_bytes: int, times: Times, up_bytes: int | None = None
    ) -> tuple[int, int, int]:
        """Virtual microseconds from the start until the model has arrived, is trained, and is back.

        Args:
            device: partition id of the device.
            model_bytes: bytes received, and sent back.
            times: times of the job.
            up_bytes: bytes sent back, if they differ.

        Returns:
            (there, trained, back), ascending, the last of at least 1 and at most 30,000 years.
        """
        arrived_s = times.down_s + model_bytes / self._down[device]
        trained_s = arrived_s + times.train_s
        upload_bytes = model_bytes if up_bytes is None else up_bytes
        returned_s = trained_s + times.up_s + upload_bytes / self._up[device]
        returned = max(1, micros(returned_s))
        return min(micros(arrived_s), returned), min(micros(trained_s), returned), returned

    def _noise_factor(self, draw: Draw) -> float:
        """Factor on the training time of a job."""
        if self._noise == "exponential":
            return -math.log1p(-draw.uniform)
        if self._noise == "half-normal":
            return abs(draw.normal)
        return math.exp(self._sigma * draw.normal) if self._sigma else 1.0


def _normal_quantile(uniform: float) -> float:
    """The standard normal quantile of a number in [0, 1); 0 counts as 2⁻⁵⁴."""
    return NormalDist().inv_cdf(max(uniform, 2.0**-54))


def _float_array(values: np.ndarray) -> "array[float]":
    """Numbers (N,) as an array of Python floats."""
    return array("d", np.ascontiguousarray(values, np.float64).tobytes())


def micros(seconds: float) -> int:
    """Seconds in whole microseconds, at most 30,000 years."""
    return round(min(seconds, _MOST_S) * SECOND_US)
