"""Split into training, validation and test with no recording on two sides (contract C8).

By whole sessions where the window file names them, else by contiguous time blocks per class. Shape letter: N
windows.
"""

from collections.abc import Iterator

import numpy as np

from fedge.config.sections.data import DataConfig

TRAIN, VAL, TEST, UNUSED = 0, 1, 2, 3


def split_by_session(
    group: np.ndarray, session: np.ndarray, y: np.ndarray, config: DataConfig, rng: np.random.Generator
) -> np.ndarray:
    """Assign every window the split of its session.

    Sessions are stratified by (group, most frequent class), and the longest of a stratum trains. Of n
    sessions in a stratum, one goes to training if n = 1, one each to training and test if n = 2; from n = 3
    on each split gets at least one, and test and validation get sessions until they hold their share of the
    windows. A group without any stratum of three validates on every second of its test sessions, or, having
    only one, on the shortest training session. So a class may be absent from a group's windows of one split
    (of training only in the last case): the price of never cutting a session.

    Args:
        group: (N,) whole number per window: the sessions of one group share a stratum.
        session: (N,) whole number per window, unique over the file.
        y: (N,) class.
        config: the shares.
        rng: shuffles the sessions of a stratum.

    Returns:
        (N,) TRAIN, VAL or TEST.
    """
    num_classes = int(y.max()) + 1
    sessions, first, inverse, sizes = np.unique(
        session, return_index=True, return_inverse=True, return_counts=True
    )
    counts = np.zeros((len(sessions), num_classes), dtype=np.int64)
    np.add.at(counts, (inverse, y), 1)
    stratum = group[first] * num_classes + counts.argmax(axis=1)
    split = np.full(len(sessions), TRAIN)
    for sessions_in_stratum in groups_of(stratum):
        members = rng.permutation(sessions_in_stratum)
        longest = members[sizes[members].argmax()]
        order = np.append(members[members != longest], longest)
        split[order] = _deal_sessions(sizes[order], config)
    for members in groups_of(group[first]):
        if VAL not in split[members]:
            _find_validation(members, split, stratum, sizes)
    result: np.ndarray = split[inverse]
    return result


def _find_validation(members: np.ndarray, split: np.ndarray, stratum: np.ndarray, sizes: np.ndarray) -> None:
    """Turn some of a group's sessions (`members`) into validation sessions; changes `split` in place."""
    test = members[split[members] == TEST]
    train = members[split[members] == TRAIN]
    if len(test) > 1:
        split[test[np.argsort(stratum[test], kind="stable")][1::2]] = VAL
    elif len(test) == 1 and len(train) > 1:
        split[train[sizes[train].argmin()]] = VAL


def _deal_sessions(sizes: np.ndarray, config: DataConfig) -> np.ndarray:
    """The split of each session of one stratum, given their sizes; the last one trains."""
    n = len(sizes)
    split = np.full(n, TRAIN)
    if n < 3:
        split[:-1] = TEST
        return split
    next_session = 0
    for part, share, must_leave in ((TEST, config.test_fraction, 2), (VAL, config.val_fraction, 1)):
        target, dealt = share * sizes.sum(), 0
        while dealt == 0 or (next_session < n - must_leave and dealt + sizes[next_session] / 2 <= target):
            split[next_session] = part
            dealt += sizes[next_session]
            next_session += 1
    return split


def split_by_blocks(stream: np.ndarray, y: np.ndarray, config: DataConfig) -> np.ndarray:
    """Cut each class of each stream, in file order, into a training, a validation and a test block.

    `data.guard-windows` windows before each cut are dropped, because neighbouring windows overlap. A class
    with too few windows stays whole in training.

    Args:
        stream: (N,) whole number per window: one user on one device, with windows in time order.
        y: (N,) class.
        config: the shares and the guard.

    Returns:
        (N,) TRAIN, VAL, TEST, or UNUSED for the dropped windows.

    Ten windows of one class in time order; one is dropped before each cut:

    >>> config = DataConfig(val_fraction=0.2, test_fraction=0.2, guard_windows=1)
    >>> "".join("TVE-"[kind] for kind in split_by_blocks(np.zeros(10), np.zeros(10), config))
    'TTTT-VV-EE'
    """
    split = np.full(len(y), TRAIN)
    for members in blocks(stream, y):
        split[members] = _cut_blocks(len(members), config)
    return split


def blocks(stream: np.ndarray, y: np.ndarray) -> Iterator[np.ndarray]:
    """The windows of each class of each stream, as int64 indices in file order; both are (N,)."""
    return groups_of(np.unique(stream, return_inverse=True)[1] * (y.max(initial=0) + 1) + y)


def _cut_blocks(n: int, config: DataConfig) -> np.ndarray:
    """The split of n consecutive windows of one class."""
    num_train, num_val, num_test = _block_sizes(n, config)
    split = np.full(n, TRAIN)
    if num_train < 1:
        return split
    val_start = num_train + config.guard_windows
    test_start = n - num_test
    split[num_train:val_start] = UNUSED
    split[val_start : val_start + num_val] = VAL
    split[val_start + num_val : test_start] = UNUSED
    split[test_start:] = TEST
    return split


def _block_sizes(n: int, config: DataConfig) -> tuple[int, int, int]:
    """Training, validation and test windows of n consecutive ones; nothing is cut if none would train."""
    num_test = max(1, round(config.test_fraction * n))
    num_val = max(1, round(config.val_fraction * n))
    return n - num_test - num_val - 2 * config.guard_windows, num_val, num_test


def fewest_windows_to_cut(config: DataConfig) -> int:
    """Smallest number of windows of one class of one stream for a cut into all three blocks.

    >>> fewest_windows_to_cut(DataConfig()), fewest_windows_to_cut(DataConfig(guard_windows=0))
    (5, 3)
    """
    training = 1 - config.test_fraction - config.val_fraction
    n = max(3 + 2 * config.guard_windows, int(2 * config.guard_windows / training) - 2)  # rounding: up to 1
    while _block_sizes(n, config)[0] < 1:
        n += 1
    return n


def groups_of(values: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the places of each distinct value of `values` (N,), ascending, in the order of the values.

    Sorts once: a mask per value would take as many passes as there are values.

    >>> [places.tolist() for places in groups_of(np.array([7, 3, 7, 5]))]
    [[1], [3], [0, 2]]
    """
    order = np.argsort(values, kind="stable")
    cuts = np.flatnonzero(np.diff(values[order])) + 1
    yield from np.split(order, cuts) if len(values) else []
