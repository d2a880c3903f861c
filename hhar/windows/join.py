"""One window file from several: the channels and classes common to all, users named after their source.

Files from one kind of sensor in the same unit, cut to equal length at one rate, can be compared. Different
rates are refused if both files state theirs; units are the user's responsibility (`hhar thin` lowers a rate).
Shape letters: N windows, C channels, T samples.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np

from hhar.windows.window_file import WindowFileError, Windows

_SAME = (  # data sets' names for the same activity, compared without case, spaces, - and _
    ("walk", "walking", "wlk"),
    ("stairsup", "upstairs", "ups", "walkingupstairs", "walkupstairs"),
    ("stairsdown", "downstairs", "dws", "walkingdownstairs", "walkdownstairs"),
    ("sit", "sitting"),
    ("stand", "standing", "std"),
    ("jog", "jogging", "run", "running"),
    ("bike", "biking", "cycling"),
    ("lie", "lying", "laying"),
)
_MEANING = {name: names[0] for names in _SAME for name in names}
SEPARATOR = "/"  # between source and user


def join(sources: Sequence[tuple[str, Windows]]) -> Windows:
    """The windows of all sources, restricted to the classes and channels of every source.

    Classes take the first source's names and order; known synonyms of an activity count as one class. Users
    become "source/user". Devices, sessions and parts are kept if every source has them, and `about` keeps the
    entries shared by all sources.

    Args:
        sources: (name or path, windows) of two or more.

    Raises:
        WindowFileError: the windows cannot be compared; names the source.
    """
    names = source_names([name for name, _ in sources])
    first = sources[0][1]
    about = {k: v for k, v in first.about.items() if all(w.about.get(k) == v for _, w in sources)}
    _refuse_other_targets(sources)
    _refuse_other_shapes(sources)
    channels = [c for c in first.channels if all(c in other.channels for _, other in sources)]
    # of synonyms the first name
    names_by_meaning = {_meaning(name): name for name in reversed(first.classes)}
    meanings_by_source = [set(map(_meaning, other.classes)) for _, other in sources]
    classes = [
        c
        for c in first.classes
        if c in names_by_meaning.values() and all(_meaning(c) in meanings for meanings in meanings_by_source)
    ]
    if not channels or len(classes) < 2:
        every = "; ".join(f"{n}: {', '.join(w.channels)}; {', '.join(w.classes)}" for n, w in sources)
        raise WindowFileError(
            f"window files must have a channel and two classes in common, but have {len(channels)} and "
            f"{len(classes)} ({every}); give equal ones equal names"
        )
    parts = [_aligned(name, w, channels, classes) for name, (_, w) in zip(names, sources, strict=True)]
    joined = {
        key: _concatenate([getattr(part, key) for part in parts]) for key in ("device", "session", "part")
    }
    return Windows(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.user for part in parts]),
        classes=tuple(classes), channels=tuple(channels), about=about, **joined,
    )  # fmt: skip


def _concatenate(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Arrays one after another; None unless every source has one."""
    present = [array for array in arrays if array is not None]
    return np.concatenate(present) if len(present) == len(arrays) else None


def source_names(paths: Sequence[str]) -> list[str]:
    """A short name for each path: the file's stem, numbered if two are the same.

    >>> source_names(["data/a.npz", "b.npz", "old/a.npz"])
    ['a', 'b', 'a-2']
    """
    names: list[str] = []
    for path in paths:
        stem = (PurePath(path).stem or path).replace(SEPARATOR, "-")
        name, number = stem, 1
        while name in names:
            number += 1
            name = f"{stem}-{number}"
        names.append(name)
    return names


def source_of(windows: Windows) -> np.ndarray:
    """The number (N,) int64 of each window's source, in the order of the arguments of `join`."""
    names = np.char.partition(windows.user, SEPARATOR)[:, 0]
    _, first, codes = np.unique(names, return_index=True, return_inverse=True)
    ranks: np.ndarray = np.argsort(np.argsort(first))[codes]
    return ranks.astype(np.int64)


def _refuse_other_shapes(sources: Sequence[tuple[str, Windows]]) -> None:
    """Raise WindowFileError for the first source whose shape, dtype or rate differs from the first's."""
    name, first = sources[0]
    for other, windows in sources[1:]:
        if windows.x.shape[2:] != first.x.shape[2:] or windows.x.dtype != first.x.dtype:
            raise WindowFileError(
                f"{other}: windows must match those of {name}, {first.x.dtype} of {first.x.shape[2:]} "
                f"samples per channel, but are {windows.x.dtype} of {windows.x.shape[2:]}; bring them to one "
                f"rate and length, for example with `hhar thin`"
            )
        rates = first.about.get("rate_hz"), windows.about.get("rate_hz")
        if all(rates) and rates[0] != rates[1]:
            raise WindowFileError(
                f"{other}: windows must have the rate of {name}, {rates[0]} Hz, but have {rates[1]} Hz; "
                f"bring them to one rate, for example with `hhar thin`"
            )


def _refuse_other_targets(sources: Sequence[tuple[str, Windows]]) -> None:
    """Raise WindowFileError for the first source whose windows have no class each."""
    for name, windows in sources:
        if not windows.has_labels:
            raise WindowFileError(
                f"{name}: windows must have a class each to be put beside those of another file, but y is "
                f"{windows.y.dtype} {windows.y.shape}; use this file alone"
            )


def _aligned(name: str, windows: Windows, channels: Sequence[str], classes: Sequence[str]) -> Windows:
    """One source's windows in common form."""
    number = {_meaning(class_name): index for index, class_name in enumerate(classes)}
    label = np.array([number.get(_meaning(own_class), -1) for own_class in windows.classes], dtype=np.int64)
    selected = windows.taken(np.flatnonzero(label[windows.y] >= 0))
    if not len(selected):
        raise WindowFileError(
            f"{name}: must have windows of the classes that all files have, {', '.join(classes)}, but has "
            f"none; leave it out"
        )
    columns = [windows.channels.index(channel) for channel in channels]
    return replace(
        selected, x=selected.x[:, columns], y=label[selected.y],
        user=np.char.add(f"{name}{SEPARATOR}", selected.user),
        classes=tuple(classes), channels=tuple(channels),
    )  # fmt: skip


def _meaning(name: str) -> str:
    plain = "".join(c for c in name.lower() if c not in " -_")
    return _MEANING.get(plain, plain)
