"""How long a device's job takes: the model comes, is trained, and goes back.

    download  down_s + bytes / down
    training  (per_job_s + per_window_s × windows × epochs) × noise
    upload    up_s + bytes / up

in virtual microseconds, at least one in all. FedScale (Lai et al. 2022, `getCompletionTime`) is the case
per_window_s = 3 × milliseconds of inference per sample / 1000, without noise.
"""

import math
from array import array
from dataclasses import dataclass, fields, replace

import numpy as np

from fedge.config.option import ConfigError, shown
from fedge.devices.clock import SECOND_US
from fedge.devices.draws import Draw

NOISES = ("log-normal", "exponential", "half-normal")
LONGEST_S = 1e9  # of a part of a job: thirty years
_WATTS = ("train_watts", "radio_watts")
_MOST_S = 1e12  # of a job: what is longer, a byte in a lifetime for example, never ends


@dataclass(frozen=True)
class Fleet:
    """Speeds and links of N devices; every array is (N,) float64.

    Attributes:
        per_window_s: seconds of training per window and epoch.
        per_job_s: seconds of training whatever the windows.
        down, up: bytes per second.
        down_s, up_s: seconds that a transfer takes beyond that.
        noise: what training times are multiplied with, drawn job by job: "log-normal", exp(sigma z);
            "exponential", of mean 1; "half-normal", |z|, of mean √(2/π).
        sigma: of log-normal noise; 0 for none.
        train_watts, radio_watts: power while a device trains, and while it receives or sends; None where that
            is not known.
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

    def __len__(self) -> int:
        return len(self.per_window_s)


def check_fleet(fleet: Fleet, count: int, what: str) -> Fleet:
    """A fleet of `count` devices, whose times are possible.

    Raises:
        ConfigError: it is not; `what` names where it comes from.
    """
    if not isinstance(fleet, Fleet):
        raise ConfigError(f"{what} must return a fedge.devices.Fleet, but returned {shown(fleet)}; mend it")
    for declared in fields(fleet):
        array = getattr(fleet, declared.name)
        if declared.name in ("noise", "sigma") or (declared.name in _WATTS and array is None):
            continue
        rate = declared.name in ("down", "up")
        least = np.finfo(float).tiny if rate else 0.0
        values = np.asarray(array)
        fits = values.shape == (count,) and np.issubdtype(values.dtype, np.floating)
        if not fits or not ((values >= least) & (values <= np.inf if rate else values <= LONGEST_S)).all():
            raise ConfigError(
                f"{what} must give each of {count} devices a {declared.name} "
                f"{'above 0' if rate else f'of 0 to {LONGEST_S:g}'}, but gives {shown(array)}; change it"
            )
    if fleet.noise not in NOISES or not 0 <= fleet.sigma <= 10:
        raise ConfigError(
            f"{what} must have a noise of {', '.join(NOISES)} and a sigma of 0 to 10, but has "
            f"{shown(fleet.noise)} and {shown(fleet.sigma)}; change them"
        )
    takes = fleet.per_window_s + fleet.per_job_s + fleet.down_s + fleet.up_s + 1 / fleet.down + 1 / fleet.up
    if not (takes > 0).all():
        raise ConfigError(
            f"{what} must make every job take time, but those of device {int(np.argmin(takes > 0))} take "
            f"none; give it seconds, or bytes per second"
        )
    return fleet


def watts_of(fleet: Fleet) -> tuple[np.ndarray, np.ndarray] | None:
    """Power in training and in transfers, (N,) float64 each; None where neither is known."""
    train, radio, nothing = fleet.train_watts, fleet.radio_watts, np.zeros(len(fleet))
    if train is None and radio is None:
        return None
    return nothing if train is None else train, nothing if radio is None else radio


def with_power(fleet: Fleet, train_watts: float, radio_watts: float) -> Fleet:
    """A fleet whose power is the same on all devices where it says none; 0: it stays unknown."""
    count = len(fleet)
    if train_watts and fleet.train_watts is None:
        fleet = replace(fleet, train_watts=np.full(count, train_watts))
    if radio_watts and fleet.radio_watts is None:
        fleet = replace(fleet, radio_watts=np.full(count, radio_watts))
    return fleet


def usual_s(fleet: Fleet, windows: np.ndarray, model_bytes: int) -> np.ndarray:
    """The mean seconds of a job of each device, (N,) float64.

    Windows (N,) int64 count once per epoch; a model has `model_bytes` bytes.

    >>> one = np.ones(1)
    >>> usual_s(Fleet(0.5 * one, one, 100 * one, 50 * one, 0 * one, 0 * one), np.array([4]), 200)
    array([9.])
    """
    factors = {"log-normal": math.exp(fleet.sigma**2 / 2), "half-normal": math.sqrt(2 / math.pi)}
    return _seconds(fleet, windows, model_bytes, factors.get(fleet.noise, 1.0))


def quickest_s(fleet: Fleet, windows: np.ndarray, model_bytes: int) -> np.ndarray:
    """The seconds that one job in a thousand of each device stays below, (N,) float64.

    Windows (N,) int64 count once per epoch; a model has `model_bytes` bytes.
    """
    factors = {"log-normal": math.exp(-3.09 * fleet.sigma), "half-normal": 0.00125}
    return _seconds(fleet, windows, model_bytes, factors.get(fleet.noise, 0.001))


def _seconds(fleet: Fleet, windows: np.ndarray, model_bytes: int, factor: float) -> np.ndarray:
    """The seconds of jobs (N,) whose training takes `factor` times what it does without noise."""
    trains = (fleet.per_job_s + fleet.per_window_s * windows) * factor
    found: np.ndarray = fleet.down_s + model_bytes / fleet.down + trains + fleet.up_s + model_bytes / fleet.up
    return found


class Durations:
    """How long jobs of a fleet take, one by one."""

    def __init__(self, fleet: Fleet) -> None:
        """Take in a fleet; arrays of Python's own are looked up faster than NumPy's."""
        self._per_window_s, self._per_job_s = _quick(fleet.per_window_s), _quick(fleet.per_job_s)
        self._down, self._up = _quick(fleet.down), _quick(fleet.up)
        self._down_s, self._up_s = _quick(fleet.down_s), _quick(fleet.up_s)
        self._noise = fleet.noise
        self._sigma = fleet.sigma

    def of(self, device: int, windows: int, model_bytes: int, draw: Draw) -> tuple[int, int, int]:
        """Virtual microseconds after which the model is there, it is trained, and it is back.

        Args:
            device: its id.
            windows: that it trains on, counted once per epoch.
            model_bytes: bytes that come, and go back.
            draw: of the job.

        Returns:
            (there, trained, back), ascending, the last of at least 1 and at most 30,000 years.
        """
        train_s = (
            self._per_job_s[device] + self._per_window_s[device] * windows
        ) * self._factor(draw)  # fmt: skip
        down_s, down, up = self._down_s[device], self._down[device], self._up[device]
        there_s = down_s + model_bytes / down
        trained_s = there_s + train_s
        back_s = trained_s + self._up_s[device] + model_bytes / up
        back = max(1, _micros(back_s))
        return min(_micros(there_s), back), min(_micros(trained_s), back), back

    def _factor(self, draw: Draw) -> float:
        """Factor on the training time of a job."""
        if self._noise == "exponential":
            return -math.log1p(-draw.uniform)
        if self._noise == "half-normal":
            return abs(draw.normal)
        return math.exp(self._sigma * draw.normal) if self._sigma else 1.0


def _quick(values: np.ndarray) -> "array[float]":
    """Numbers (N,) as an array that gives Python's own floats."""
    return array("d", np.ascontiguousarray(values, np.float64).tobytes())


def _micros(seconds: float) -> int:
    """Whole microseconds, of at most 30,000 years."""
    return round(min(seconds, _MOST_S) * SECOND_US)
