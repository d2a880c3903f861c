"""Split of a window file into training, validation and test: `split` on its sessions or its streams.

Shape letter: N windows.
"""

from dataclasses import replace

import numpy as np

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError
from fedge.data.split import TEST, TRAIN, UNUSED, VAL, split_by_blocks, split_by_session
from fedge.seeding import Purpose, numpy_stream
from hhar.windows.window_file import Windows


def split_kind(windows: Windows, config: Config) -> str:
    """Kind of split: "given", "session" or "blocks"; missing sessions or parts are refused."""
    if config.data.split == "given" and windows.part is None:
        raise ConfigError(
            'data.split is "given", but the data bring no part (train, val, test) of their own; set '
            'data.split="auto"'
        )
    if config.data.split == "session" and windows.session is None:
        raise ConfigError(
            'data.split is "session", but the window file names no sessions; set data.split="blocks"'
        )
    if config.data.split == "auto":
        if windows.part is not None:
            return "given"
        return "blocks" if windows.session is None else "session"
    return config.data.split


def split_apart(
    windows: Windows,
    config: Config,
    kind: str,
    group: np.ndarray,
    unseen: np.ndarray,
    used: np.ndarray | None,
    seed: int,
) -> np.ndarray:
    """The split of each window (N,); windows of unseen clients do not influence the others.

    Args:
        windows: N windows.
        config: configuration, of which section `data` is read.
        kind: "given", "session" or "blocks".
        group: (N,) stratifies the sessions.
        unseen: (N,) whether the window is an unseen client's.
        used: (N,) False for UNUSED windows, to be ignored; None uses all.
        seed: root of the streams for shuffling sessions.
    """
    split = np.full(len(group), UNUSED)
    for stream_path, mask in (((), ~unseen), ((1,), unseen)):
        rows = np.flatnonzero(mask if used is None else mask & used)
        if len(rows):
            rng = numpy_stream(seed, Purpose.SPLIT, *stream_path)
            split[rows] = split_rows(windows, rows, config, kind, group[rows], rng)
    return split


def split_rows(
    windows: Windows, rows: np.ndarray, config: Config, kind: str, group: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The split (n,) of the windows at `rows` (n,), with sessions stratified by `group` (n,)."""
    y = windows.labels[rows]
    if kind == "given":
        return _split_as_given(windows, rows, config, group, rng)
    if kind == "session":
        return split_by_session(group, session_codes(windows)[rows], y, config.data, rng)
    # a user cut over several clients is a separate stream at each
    return split_by_blocks(pair_codes(group, stream_codes(windows)[rows]), y, config.data)


_PARTS = {"train": TRAIN, "val": VAL, "test": TEST}


def _split_as_given(
    windows: Windows, rows: np.ndarray, config: Config, group: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """The split (n,) given in the data; without "val", validation windows are split off the training windows.

    Test windows stay so; training windows are split as usual, and the validation and test parts are both used
    for validation.
    """
    assert windows.part is not None
    split = np.array([_PARTS[str(part)] for part in windows.part[rows]], dtype=np.int64)
    train = np.flatnonzero(split == TRAIN)
    if (windows.part == "val").any() or not len(train):
        return split
    half = config.data.val_fraction / 2
    halves = replace(config, data=replace(config.data, val_fraction=half, test_fraction=half))
    kind = "blocks" if windows.session is None else "session"
    cut = split_rows(windows, rows[train], halves, kind, group[train], rng)
    split[train] = np.where(cut == TEST, VAL, cut)
    return split


def stream_codes(windows: Windows) -> np.ndarray:
    """A number (N,) per user and device: windows of one stream are in time order."""
    return codes(windows.user) if windows.device is None else pair_codes(windows.user, windows.device)


def codes(labels: np.ndarray) -> np.ndarray:
    """Labels (n,) as whole numbers (n,) 0, 1, … in sorted order of the distinct labels."""
    return np.unique(labels, return_inverse=True)[1]


def pair_codes(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """One whole number (n,) per distinct pair of (n,) and (n,)."""
    outer, inner = codes(first), codes(second)
    return codes(outer * (int(inner.max()) + 1) + inner)


def session_codes(windows: Windows) -> np.ndarray:
    """A number (N,) per session; equal names of two users are two sessions."""
    assert windows.session is not None
    return pair_codes(windows.user, windows.session)
