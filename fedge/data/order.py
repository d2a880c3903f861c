"""Check of the time order of a window file, required for a split by blocks of time (contract C8).

Neighbouring windows of one recording are of one class, and similar within it. If neither holds more than in
random order, the order of recording is lost, as in files shuffled for another use. Shape letters: N
windows, C channels, T samples.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hhar.windows.window_file import Windows

_MAX_WINDOWS = 20_000  # examined windows
_MIN_PAIRS = 300  # pairs of neighbours of one class, with fewer of which nothing is said
_DRAWS = 20  # random orders to compare with
_SIGMAS = 4.0  # by which neighbours must be more alike than in random order
_SEED = 0  # of the random orders: the same file is judged alike in every run


@dataclass(frozen=True)
class TimeOrder:
    """Similarity of neighbouring windows.

    Attributes:
        is_kept: more alike than in random order, by class or within it.
        mean_run: mean number of successive windows of one class.
        random_run: the same in random order.
    """

    is_kept: bool
    mean_run: float
    random_run: float

    def line(self) -> str:
        """Warning for a file without its original order."""
        return (
            f"the data have lost their time order: neighbouring windows are no more alike than random ones "
            f"(runs of one class have {self.mean_run:.1f} windows, {self.random_run:.1f} in random "
            f"order), so blocks of "
            f"time are random windows, and scores of known users are too good by an unknown amount"
        )


def time_order(windows: Windows) -> TimeOrder | None:
    """Similarity of neighbouring windows of a user and device, in the order of the file.

    Returns:
        None for images and rows without time, and where there are too few windows to tell.
    """
    if windows.x.ndim != 3 or windows.x.shape[2] < 2:
        return None
    stream = np.unique(windows.user, return_inverse=True)[1]
    if windows.device is not None:
        stream = stream * len(stream) + np.unique(windows.device, return_inverse=True)[1]
    rows = _limit_per_stream(stream)
    stream, y = np.unique(stream[rows], return_inverse=True)[1], windows.labels[rows]
    group = stream * (int(y.max()) + 1) + y
    if int(np.sum(np.bincount(group) - 1, where=np.bincount(group) > 0)) < _MIN_PAIRS:
        return None
    rng = np.random.default_rng(_SEED)
    same, random_same = _measure_orders(
        stream, lambda order: _count_alike_neighbours(y[order], stream[order]), rng
    )
    features = _features(windows.x[rows], group)
    closeness, random_closeness = _measure_orders(
        group, lambda order: -_neighbour_distance(features[order], group[order]), rng
    )
    classes_return = _count_runs(y, stream) > np.unique(group).size  # else the file is sorted by class
    is_kept = _is_significant(closeness, random_closeness) or (
        classes_return and _is_significant(same, random_same)
    )
    count = len(rows)
    return TimeOrder(is_kept, count / (count - same), count / (count - float(np.mean(random_same))))


def _limit_per_stream(stream: np.ndarray) -> np.ndarray:
    """Rows (M,), stream after stream and in the order of the file, with a limit for each stream."""
    order = np.argsort(stream, kind="stable")
    sizes = np.unique(stream, return_counts=True)[1]
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return order[rank < max(2, _MAX_WINDOWS // len(sizes))]


def _measure_orders(
    groups: np.ndarray, measure: Callable[[np.ndarray], float], rng: np.random.Generator
) -> tuple[float, np.ndarray]:
    """A measure of the rows in order, and of as many random orders within groups (N,) of rows."""
    in_order = measure(np.argsort(groups, kind="stable"))
    at_random = [measure(np.lexsort((rng.random(len(groups)), groups))) for _ in range(_DRAWS)]
    return in_order, np.array(at_random)


def _is_significant(in_order: float, at_random: np.ndarray) -> bool:
    """Whether a measure is larger than in random orders."""
    return bool(in_order > at_random.mean() + _SIGMAS * at_random.std() + 1e-9)


def _count_alike_neighbours(y: np.ndarray, stream: np.ndarray) -> float:
    """Number of neighbours of a stream within one class."""
    return float(np.sum((y[1:] == y[:-1]) & (stream[1:] == stream[:-1])))


def _count_runs(y: np.ndarray, stream: np.ndarray) -> int:
    """Number of runs of one class in the streams, which follow one another."""
    return 1 + int(np.sum((y[1:] != y[:-1]) | (stream[1:] != stream[:-1])))


def _features(x: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Mean and deviation of each channel (N, 2 C) less the group's mean, all of one scale."""
    features = np.concatenate([x.mean(axis=2, dtype=np.float64), x.std(axis=2, dtype=np.float64)], axis=1)
    _, code, sizes = np.unique(group, return_inverse=True, return_counts=True)
    sums = np.zeros((len(sizes), features.shape[1]))
    np.add.at(sums, code, features)
    features -= (sums / sizes[:, None])[code]
    scale = features.std(axis=0)
    return features / np.where(scale > 0, scale, 1.0)


def _neighbour_distance(features: np.ndarray, group: np.ndarray) -> float:
    """The squared distance of all neighbours of a group."""
    return float(np.sum(((features[1:] - features[:-1]) ** 2)[group[1:] == group[:-1]]))
