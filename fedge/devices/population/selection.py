"""Selection of the idle device for the next job. A selection is one function

    select(there, history, turn, further arguments by keyword) → a device of `there`, or None for nobody yet

called for every free place, and in rounds for every device of a round, one after another. It sees the devices
there (`fedge.devices.population.idle.Idle`, at least one), facts of all devices (`History`) and of the moment
(`DeviceTurn`), which also has chance and its state between calls. Nobody may write to `history`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedge.config.registers.option import ConfigError, shown
from fedge.devices.population.draws import PickDraws
from fedge.devices.population.idle import Idle


@dataclass
class History:
    """Server's knowledge of its devices; every array is (N,), a number for each client's id.

    Attributes:
        windows: training windows, int64.
        begun: given jobs, int64.
        given_in: the round (`DeviceTurn.round`) in which the newest one was given, int64; 0 before the first.
        updates: used results, int64.
        losses: mean training loss of the newest of these, float64; NaN before the first.
        seconds: virtual seconds of the newest of these, float64; NaN before the first.
    """

    windows: np.ndarray
    begun: np.ndarray
    given_in: np.ndarray
    updates: np.ndarray
    losses: np.ndarray
    seconds: np.ndarray

    @classmethod
    def of(cls, windows: np.ndarray) -> "History":
        """Before the first job, of devices with these windows (N,) int64."""
        count = len(windows)
        begun, given_in, updates = (np.zeros(count, np.int64) for _ in range(3))
        return cls(windows, begun, given_in, updates, np.full(count, np.nan), np.full(count, np.nan))

    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays of a checkpoint: name → (N,), all but the windows."""
        return {name: array for name, array in vars(self).items() if name != "windows"}


@dataclass
class DeviceTurn:
    """The moment at which a place of a leaf is free.

    Attributes:
        leaf: its number.
        draws: chance; the same numbers wherever the run is carried out.
        places: target number of devices of the leaf at work at a time.
        now_s: virtual time.
        given: jobs given by the leaf so far.
        arrays: the selection's state between calls, by names of its choice; saved in checkpoints.
    """

    leaf: int
    draws: PickDraws
    places: int
    now_s: float = 0.0
    given: int = 0
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def round(self) -> int:
        """1, 2, …: as often as all places have been given work."""
        return 1 + self.given // self.places

    def below(self, count: int) -> int:
        """A number of 0 … count − 1, each as likely."""
        return self.draws.next(count)

    def one_of(self, weights: np.ndarray) -> int:
        """An index into weights (n,), none below 0, each as likely as its share; evenly if all are 0."""
        ends = np.cumsum(weights, dtype=np.float64)
        if not ends[-1] > 0:
            return self.below(len(weights))
        return int(np.searchsorted(ends, self.draws.uniform() * ends[-1], side="right"))


Selection = Callable[..., "int | None"]


def uniform(there: Idle, history: History, turn: DeviceTurn) -> int:
    """Each present device equally likely."""
    return there.at(turn.below(len(there)))


def balanced(there: Idle, history: History, turn: DeviceTurn) -> int:
    """One of those with the fewest jobs so far, each equally likely."""
    ids = there.ids()
    begun = history.begun[ids]
    fewest = ids[begun == begun.min()]
    return int(fewest[turn.below(len(fewest))])


def without_reuse(there: Idle, history: History, turn: DeviceTurn, times: int = 1) -> int | None:
    """Each with fewer than `times` jobs equally likely; a place stays free where there is no such device.

    With times=1 as `device_reuse=False` of NVFlare's device manager.
    """
    if type(times) is not int or times < 1:
        raise ConfigError(
            f"times of a selection must be a whole number of at least 1, but is {shown(times)}; try 1"
        )
    ids = there.ids()
    fresh = ids[history.begun[ids] < times]
    return int(fresh[turn.below(len(fresh))]) if len(fresh) else None


def oort(
    there: Idle,
    history: History,
    turn: DeviceTurn,
    exploration: float = 0.9,
    decay: float = 0.98,
    least: float = 0.2,
    alpha: float = 2.0,
    cut_off: float = 0.95,
    clip: float = 0.95,
    preferred: float = 0.3,
) -> int:
    """Quick devices with badly learned windows, and sometimes a new one.

    U_i = n_i × mean loss, no larger than its quantile `clip`, scaled to 0 … 1 over those there; in round R

        score_i = (U_i + √(0.1 ln R / L_i)) × (T / t_i)^α, the last factor for t_i > T alone,

    L_i the round in which device i was given its newest job, t_i its newest duration, T the quantile
    `preferred` of all durations known. With probability ε = max(least, exploration × decay^R) a device
    without results is drawn by its windows; else one by its score among those above `cut_off` × the best but
    as many as a round exploits, (1 − ε) × places.

    Source: Lai et al. 2021 (OSDI), Algorithm 1, and its authors' code, of which scaling and the cut are.
    There U_i has
    the root of the mean squared loss, a round is drawn at once, and a pacer moves T: here `preferred` stays.
    """
    _refuse_outside(
        exploration=exploration, decay=decay, least=least, cut_off=cut_off, clip=clip, preferred=preferred
    )
    if not _is_number(alpha) or alpha < 0:
        raise ConfigError(
            f"alpha of a selection must be a number of at least 0, but is {shown(alpha)}; try 2.0"
        )
    ids = there.ids()
    is_known = ~np.isnan(history.losses[ids])
    known, new = ids[is_known], ids[~is_known]
    epsilon = max(least, exploration * decay**turn.round)
    if not len(known) or (len(new) and turn.draws.uniform() < epsilon):
        return int(new[turn.one_of(history.windows[new].astype(np.float64))])
    scores = _scores(known, history, turn.round, alpha, clip, preferred)
    rank = min(int(turn.places * (1 - epsilon)), len(scores) - 1)
    good = scores >= cut_off * np.sort(scores)[::-1][rank]
    return int(known[good][turn.one_of(scores[good])])


def _scores(
    known: np.ndarray, history: History, current: int, alpha: float, clip: float, preferred: float
) -> np.ndarray:
    """Oort's scores of devices (n,) with results, (n,) float64, in round `current`."""
    utility = history.windows[known] * np.maximum(history.losses[known], 0.0)
    ordered = np.sort(utility)
    utility = np.minimum(utility, ordered[min(int(len(ordered) * clip), len(ordered) - 1)])
    low = 0.999 * ordered[0]
    scores = (utility - low) / max(ordered[-1] - low, 1e-4)
    scores += np.sqrt(0.1 * np.log(current) / history.given_in[known])
    durations = np.sort(history.seconds[~np.isnan(history.seconds)])
    most = durations[min(int(len(durations) * preferred), len(durations) - 1)]
    took = history.seconds[known]
    slow = took > most
    scores[slow] *= (most / took[slow]) ** alpha
    found: np.ndarray = scores
    return found


def _is_number(value: Any) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def _refuse_outside(**arguments: float) -> None:
    """Raise ConfigError for an argument other than a number from 0 to 1."""
    for name, value in arguments.items():
        if not _is_number(value) or not 0 <= value <= 1:
            raise ConfigError(
                f"{name} of a selection must be a number of 0 to 1, but is {shown(value)}; try 0.5"
            )
