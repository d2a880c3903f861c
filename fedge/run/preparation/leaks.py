"""Remarks on samples shared by training and test windows, which make scores of known users too good."""

from collections.abc import Iterator

import numpy as np

from fedge.config.config import Config
from fedge.data.partition import Partition
from fedge.data.split import blocks
from fedge.data.window_split import session_codes, stream_codes
from hhar.quantity import quantity
from hhar.windows.window_file import Windows

_PAIRS = 60  # neighbours looked at
_LEAST = 4  # shared samples, not all alike: fewer may be equal by chance


def leak_remarks(windows: Windows, dealt: Partition, config: Config) -> list[str]:
    """Remarks if windows overlap more than the guard of a split by blocks allows, or parts share sessions.

    Args:
        windows: all windows of the run.
        dealt: windows of each client.
        config: configuration, of which section `data` is read.
    """
    if dealt.split_kind == "blocks":
        return _on_overlap(windows, config.data.guard_windows)
    if dealt.split_kind == "given" and windows.session is not None:
        return _on_sessions(windows, dealt)
    return []


def _on_overlap(windows: Windows, guard: int) -> list[str]:
    """A remark if half of the neighbours in time overlap by more than the guard excludes."""
    x = windows.x
    is_series = x.ndim == 3 or (x.ndim == 2 and x.dtype == np.int64)
    if not is_series or x.shape[-1] < 2 * _LEAST:
        return []
    found = [shift(x[a], x[b]) for a, b in _neighbours(windows)]
    strides = sorted(stride for stride in found if stride)
    if not strides or 2 * len(strides) < len(found):
        return []
    length, stride = x.shape[-1], strides[len(strides) // 2]
    needed = -(-length // stride) - 1
    if needed <= guard:
        return []
    return [
        f"windows of {quantity(length, 'sample')} begin {quantity(stride, 'sample')} apart, so test windows "
        "share samples with training windows, and scores of known users are too good; set "
        f"data.guard-windows={needed}"
    ]


def _neighbours(windows: Windows) -> Iterator[tuple[int, int]]:
    """Pairs of successive windows of one stream and class, evenly spaced over the file."""
    groups = blocks(stream_codes(windows), windows.labels)
    pairs = np.concatenate([np.stack([group[:-1], group[1:]], axis=1) for group in groups])
    at = np.unique(np.linspace(0, len(pairs) - 1, min(_PAIRS, len(pairs))).astype(np.int64))
    yield from pairs[at].tolist()


def shift(first: np.ndarray, second: np.ndarray) -> int:
    """Samples after which the second window (…, T) continues as the first; 0 if they do not overlap.

    >>> samples = np.arange(12) ** 2
    >>> shift(samples[:8], samples[3:11]), shift(samples[:8], samples[::-1][:8])
    (3, 0)
    """
    length = first.shape[-1]
    one, other = first.reshape(-1, length), second.reshape(-1, length)
    begins = (one == other[:, :1]).all(axis=0)
    for start in np.flatnonzero(begins[1 : length - _LEAST + 1]) + 1:
        shared = one[:, start:]
        if np.array_equal(shared, other[:, : length - start]) and (shared != shared[:, :1]).any():
            return int(start)
    return 0


def _on_sessions(windows: Windows, dealt: Partition) -> list[str]:
    """A remark on sessions of which windows are trained on and others tested, by the data's own split."""
    codes = session_codes(windows)
    taught, tested = (
        np.unique(np.concatenate([codes[parts[at]] for parts in dealt.clients])) for at in (0, 2)
    )
    shared = np.intersect1d(taught, tested).size
    if not shared:
        return []
    have = "has" if shared == 1 else "have"
    return [
        f"{quantity(shared, 'session')} {have} training and test windows in the data's own split (part), so "
        "scores of known users may be too good; data.split=session keeps sessions whole"
    ]
