"""Selection of the idle device for the next job. A selection is one function

    select(there, history, turn, further arguments by keyword) → a device in `there`, or None for none yet

called for every free place, and in rounds once for each device of the round. It sees the present idle devices
(`fedge.devices.population.idle.Idle`, at least one), facts about all devices (`History`, read-only), and the
context (`DeviceTurn`), with random numbers and the selection's state between calls.
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
    """The server's knowledge of devices; every array is (N,), a number per client id.

    Attributes:
        windows: training windows, int64.
        begun: jobs started, int64.
        given_in: round (`DeviceTurn.round`) of the latest job, int64; 0 before the first.
        updates: used results, int64.
        losses: mean training loss of the latest used result, float64; NaN before the first.
        seconds: virtual seconds of the latest used result, float64; NaN before the first.
    """

    windows: np.ndarray
    begun: np.ndarray
    given_in: np.ndarray
    updates: np.ndarray
    losses: np.ndarray
    seconds: np.ndarray

    @classmethod
    def of(cls, windows: np.ndarray) -> "History":
        """History before the first job, for devices with these windows (N,) int64."""
        count = len(windows)
        begun, given_in, updates = (np.zeros(count, np.int64) for _ in range(3))
        return cls(windows, begun, given_in, updates, np.full(count, np.nan), np.full(count, np.nan))

    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays for a checkpoint: name → (N,), without the windows."""
        return {name: array for name, array in vars(self).items() if name != "windows"}


@dataclass
class DeviceTurn:
    """Context of a selection, when a place of a leaf is free.

    Attributes:
        leaf: number of the leaf.
        draws: random numbers, the same wherever the run is carried out.
        places: number of devices of the leaf to work at a time.
        now_s: virtual time.
        given: number of jobs given by the leaf so far.
        arrays: state of the selection between calls, under names of its choice; saved in checkpoints.
    """

    leaf: int
    draws: PickDraws
    places: int
    now_s: float = 0.0
    given: int = 0
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def round(self) -> int:
        """Round 1, 2, …: one more whenever as many jobs have been given as there are places."""
        return 1 + self.given // self.places

    def below(self, count: int) -> int:
        """A random integer in 0 … count − 1, uniform."""
        return self.draws.next(count)

    def one_of(self, weights: np.ndarray) -> int:
        """A random index into weights (n,), drawn in proportion to them; uniform if all are 0."""
        ends = np.cumsum(weights, dtype=np.float64)
        if not ends[-1] > 0:
            return self.below(len(weights))
        return int(np.searchsorted(ends, self.draws.uniform() * ends[-1], side="right"))


Selection = Callable[..., "int | None"]


def uniform(there: Idle, history: History, turn: DeviceTurn) -> int:
    """A present device, each equally likely."""
    return there.at(turn.below(len(there)))


def balanced(there: Idle, history: History, turn: DeviceTurn) -> int:
    """A present device among those with the fewest jobs so far, each equally likely."""
    ids = there.ids()
    begun = history.begun[ids]
    fewest = ids[begun == begun.min()]
    return int(fewest[turn.below(len(fewest))])


def without_reuse(there: Idle, history: History, turn: DeviceTurn, times: int = 1) -> int | None:
    """A present device with fewer than `times` jobs, each equally likely; None if there is none.

    times=1 corresponds to `device_reuse=False` in NVFlare's device manager.
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
    """Fast devices whose windows are learned badly, and sometimes a new one.

    U_i = n_i × mean loss, clipped at its quantile `clip`, scaled to 0 … 1 over present devices; in round R

        score_i = (U_i + √(0.1 ln R / L_i)) × (T / t_i)^α, with the last factor only if t_i > T,

    where L_i is the round of device i's latest job, t_i its latest duration, and T the quantile `preferred`
    of all known durations. With probability ε = max(least, exploration × decay^R), a device without results
    is drawn by its windows; otherwise one is drawn by score among those above `cut_off` × the score of rank
    (1 − ε) × places, counted from 0, as many as a round exploits.

    Source: Lai et al. 2021 (OSDI), Algorithm 1, and its authors' code for scaling and the cut-off. There U_i
    uses the root of the mean squared loss, a round is drawn at once, and a pacer changes T; here `preferred`
    is fixed.
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
    """Oort's scores, (n,) float64, of devices (n,) with results, in round `current`."""
    utility = history.windows[known] * np.maximum(history.losses[known], 0.0)
    ordered = np.sort(utility)
    utility = np.minimum(utility, ordered[min(int(len(ordered) * clip), len(ordered) - 1)])
    low = 0.999 * ordered[0]
    scores = (utility - low) / max(ordered[-1] - low, 1e-4)
    scores += np.sqrt(0.1 * np.log(current) / history.given_in[known])
    durations = np.sort(history.seconds[~np.isnan(history.seconds)])
    preferred_s = durations[min(int(len(durations) * preferred), len(durations) - 1)]
    device_s = history.seconds[known]
    slow = device_s > preferred_s
    scores[slow] *= (preferred_s / device_s[slow]) ** alpha
    result: np.ndarray = scores
    return result


def _is_number(value: Any) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


def _refuse_outside(**arguments: float) -> None:
    """Raise ConfigError for an argument that is not a number from 0 to 1."""
    for name, value in arguments.items():
        if not _is_number(value) or not 0 <= value <= 1:
            raise ConfigError(
                f"{name} of a selection must be a number of 0 to 1, but is {shown(value)}; try 0.5"
            )
