"""Pandas or Polars frames of samples as windows, cut in the same way as the recordings of known data sets."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedge.config.registers.option import shown
from fedge.datasets import columns
from fedge.datasets.columns import Names
from hhar.errors import HharError
from hhar.quantity import quantity
from hhar.windows.cut import WindowBuilder, WindowSpec
from hhar.windows.recordings import Recording
from hhar.windows.rounding import coarse_words
from hhar.windows.window_file import Windows, check_windows

_SENSOR = "own"
MOST_UPSAMPLING = 2.0  # largest rate of windows in units of the rows' rate
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d{1,3})?")
MOST_NAMED = 5  # users named in a line


@dataclass(frozen=True)
class _Rows:
    """Columns of a frame, in its order: n rows, C channels; names not given are empty."""

    user: Names
    label: Names
    device: Names
    session: Names
    time_ns: NDArray[np.int64] | None
    values: NDArray[np.float32]


def from_pandas(
    frame: Any,
    *,
    user: str,
    label: str,
    channels: Sequence[str],
    rate_hz: float,
    window_s: float,
    stride_s: float | None = None,
    time: str | None = None,
    time_unit: str = "s",
    session: str | None = None,
    device: str | None = None,
    about: Mapping[str, str] | None = None,
) -> Windows:
    """A frame with a row per sample as windows for `fedge.simulate`; `.save(path)` writes them.

    Rows of one user, device and session are cut where the label changes and where time has a gap of more than
    a second, resampled to `rate_hz` by linear interpolation, and cut into windows: none holds two labels.
    Without `session`, a session is a stretch of one label with pauses of at most half a minute.

    Args:
        frame: a frame of pandas or Polars.
        user: column of a row's owner.
        label: column of its class.
        channels: columns of numbers.
        rate_hz: samples per second of the windows, and of the rows if there is no `time`.
        window_s: length of a window in seconds.
        stride_s: seconds from window to window; by default half a window.
        time: column of dates or numbers, increasing within a user; without a column, rows are evenly spaced.
        time_unit: unit of numeric times: s, ms, us or ns.
        session: column of recordings: windows of one never straddle a split.
        device: column of phones or watches recording at the same time.
        about: the file's description of itself: source, licence, citation.

    Raises:
        HharError: one line with the column, its fault and the next step.
    """
    channel_names = _channel_list(channels)
    others = [user, label, *(name for name in (time, session, device) if name is not None)]
    columns.refuse_unknown_columns(frame, others, channel_names)
    rate_hz, window_s = _as_float("rate_hz", rate_hz), _as_float("window_s", window_s)
    stride_s = window_s / 2 if stride_s is None else _as_float("stride_s", stride_s)
    spec = WindowSpec(_SENSOR, rate_hz, window_s, stride_s, tuple(channel_names))
    rows, kinds, coarse = _read_columns(frame, user, label, time, time_unit, session, device, channel_names)
    _refuse_invalid_about(about)
    description = dict(about or {}) | {"rate_hz": f"{rate_hz:g}", "window_s": f"{window_s:g}"}
    windows, left_out, lost_users = _cut_windows(rows, spec)
    source_types = sorted({kind for kind in kinds if kind.lower() != "float32"})
    cast = f"x from {' and '.join(source_types)} to float32{coarse}" if source_types else ""
    for name, line, names in (("cast", cast, ""), ("left_out", left_out, lost_users)):
        if line:
            description[name] = line  # goes wherever the windows go, so without names of persons
            warnings.warn(f"from_pandas: {line}{names}", stacklevel=2)
    windows = replace(windows, about=description)
    check_windows(windows, "frame")
    return windows


def _channel_list(channels: Any) -> list[Any]:
    """Names of channels as a list."""
    if isinstance(channels, str):
        return [channels]
    try:
        return list(channels)
    except TypeError:
        raise HharError(
            f'channels: must be a list of columns, is {shown(channels)}; give channels=["…", "…"]'
        ) from None


def _as_float(name: str, value: Any) -> float:
    """A number of Python's or NumPy's as a float; HharError if it is none."""
    with suppress(OverflowError):
        if isinstance(value, Real):
            return float(value)
    raise HharError(f"{name}: must be a positive number, but is {shown(value)}; give it in Hz or seconds")


def _refuse_invalid_about(about: Any) -> None:
    """Raise HharError unless a description is a mapping of text, or there is none."""
    texts = [*about.keys(), *about.values()] if isinstance(about, Mapping) else []
    if about is not None and not (
        isinstance(about, Mapping) and all(isinstance(text, str) for text in texts)
    ):
        raise HharError(f'about: must be text by name, is {shown(about)}; give about={{"source": "…"}}')


def _read_columns(
    frame: Any, user: str, label: str, time: str | None, unit: str, session: str | None, device: str | None,
    channels: Sequence[str],
) -> tuple[_Rows, list[str], str]:  # fmt: skip
    """All columns, the channels' original types, and words on those too coarse in float32."""
    parsed = [columns.float_column(frame, name) for name in channels]
    values = np.stack([column for column, *_ in parsed], axis=1)
    empty = Names(np.zeros(len(values), dtype=np.int64), [""])
    rows = _Rows(
        user=columns.names(frame, user),
        label=columns.names(frame, label),
        device=empty if device is None else columns.names(frame, device),
        session=empty if session is None else columns.names(frame, session),
        time_ns=None if time is None else columns.times_ns(frame, time, unit),
        values=values,
    )
    coarse = coarse_words([(name, words) for name, (*_, words) in zip(channels, parsed, strict=True)])
    return rows, [kind for _, kind, _ in parsed], coarse


def _cut_windows(rows: _Rows, spec: WindowSpec) -> tuple[Windows, str, str]:
    """The windows, a message on rows without any, and the names of users without any."""
    classes = sorted(rows.label.known, key=_label_key)
    if len(classes) < 2:
        raise HharError(
            f"label: must be of at least two classes, all rows are {classes[0]!r}; name another column"
        )
    builder = WindowBuilder(spec, tuple(classes))
    runs: list[tuple[str, int, int]] = []
    for indices in _streams(rows):
        _refuse_times(rows, indices, spec)
        runs.extend(
            (run.user, len(run.values), builder.add([run])) for run in _recordings(rows, indices, spec)
        )
    if not any(count for *_, count in runs):
        longest = max(length for _, length, _ in runs)
        raise HharError(
            f"window_s: a run of one label without a gap over 1 s must hold {spec.window_s:g} s, none does: "
            f"the longest of {len(runs)} has {longest} rows; give a shorter window_s, or check time_unit"
        )
    return builder.finish(), *_describe_left_out(runs)


def _describe_left_out(runs: Sequence[tuple[str, int, int]]) -> tuple[str, str]:
    """A message on runs too short for a window and on users without one, and their names; empty for none."""
    short = [(user, length) for user, length, count in runs if not count]
    if not short:
        return "", ""
    with_windows = {user for user, _, count in runs if count}
    lost_users = sorted({user for user, _ in short} - with_windows)
    rows = sum(length for _, length in short)
    line = (
        f"{len(short)} of {quantity(len(runs), 'run')} of one label, {quantity(rows, 'row')}, "
        f"{'is' if len(short) == 1 else 'are'} shorter than a window"
    )
    if not lost_users:
        return line, ""
    line += (
        f"; {quantity(len(lost_users), 'user')} {'has' if len(lost_users) == 1 else 'have'} no window at all"
    )
    return line, ": " + ", ".join(lost_users[:MOST_NAMED]) + (", …" if len(lost_users) > MOST_NAMED else "")


def _label_key(name: str) -> tuple[int, Decimal, str]:
    """Sort key of labels: numbers by size, then names."""
    return (0, Decimal(name), name) if _NUMBER.fullmatch(name) else (1, Decimal(0), name)


def _streams(rows: _Rows) -> Iterator[NDArray[np.int64]]:
    """Yield the places of rows of one user, device and session, in the order of the frame."""
    keys = [column.code for column in (rows.user, rows.device, rows.session)]
    order = np.lexsort(keys[::-1])
    changes = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    yield from np.split(order, np.flatnonzero(changes) + 1)


def _refuse_times(rows: _Rows, indices: NDArray[np.int64], spec: WindowSpec) -> None:
    """Raise HharError if time runs backwards, stands still, or contradicts the sampling rate."""
    if rows.time_ns is None or len(indices) < 2:
        return
    step = np.diff(rows.time_ns[indices])
    culprit = f"user {rows.user.name_at(indices[0])}"
    if (step < 0).any():
        row = indices[1 + np.argmax(step < 0)]
        raise HharError(
            f"time: must rise within a user, runs back in {(step < 0).sum()} rows, first in row {row} "
            f"of {culprit}; sort by user and time, or name the column of recordings as session= or device="
        )
    if (step == 0).any():
        row = indices[1 + np.argmax(step == 0)]
        raise HharError(
            f"time: must rise within a user, repeats in {(step == 0).sum()} rows, first in row {row} "
            f"of {culprit}; drop duplicates, or name what recorded at the same time as device="
        )
    rate_hz = 1e9 / float(np.median(step))
    if spec.rate_hz > MOST_UPSAMPLING * rate_hz:
        raise HharError(
            f"rate_hz: must be at most twice the rows' rate, is {spec.rate_hz:g}, but {culprit} has a row "
            f"every {1 / rate_hz:.3g} s ({rate_hz:.3g} Hz); give another rate_hz, leave such users out, or "
            "check time_unit"
        )


def _recordings(rows: _Rows, indices: NDArray[np.int64], spec: WindowSpec) -> Iterator[Recording]:
    """Yield the runs of one label of one stream."""
    cuts = (np.flatnonzero(np.diff(rows.label.code[indices])) + 1).tolist()
    user, device, session = (column.name_at(indices[0]) for column in (rows.user, rows.device, rows.session))
    numbers: Counter[str] = Counter()
    for start, end in pairwise([0, *cuts, len(indices)]):
        run = indices[start:end]
        activity = rows.label.name_at(run[0])
        numbers[activity] += 1
        if rows.time_ns is None:
            time_ns = np.rint(np.arange(len(run)) * (1e9 / spec.rate_hz)).astype(np.int64)
            name = session or f"{user}/{activity}/{numbers[activity]:02d}"
        else:
            time_ns, name = rows.time_ns[run], session
        yield Recording(
            user, device, _SENSOR, activity, time_ns // 1_000_000, time_ns, rows.values[run], name
        )
