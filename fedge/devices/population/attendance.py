"""Presence of devices from the user's own file, CSV or Parquet, with a row for each period of presence.

    device,from_s,until_s
    a17,0,3600
    a17,7200,9000
    b02,1800,86400

`device` is any text; rows may be in any order. An optional column `period_s` gives each device its own period
of repetition, the same in all of its rows. The file is read row by row, and held as two numbers per row.
Overlapping or touching times of a device are merged.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedge.config.registers.option import ConfigError, shown
from fedge.data.table_files import Row, table_of
from fedge.devices.population.availability import FOREVER_US, Presence
from fedge.devices.timeline.clock import SECOND_US
from fedge.seeding import Purpose, numpy_stream

_OPTION = "devices.availability-args.path"
_COLUMNS = ("device", "from_s", "until_s")
_WITH_PERIOD = (*_COLUMNS, "period_s")
_MOST_S = 1e9
_LEAST_PERIOD_S = 1e-3  # with shorter ones, a virtual minute would take real hours


def trace(devices: int, seed: int, path: str = "", period_s: float = 0.0, shuffle: bool = True) -> Presence:
    """Each device is present when a device of the file was; times repeat after their period.

    If the file has fewer devices than the run, they are used again in turn, with the same times.

    Args:
        devices: number of devices.
        seed: root of the random stream for shuffling the file's devices.
        path: path of the file.
        period_s: virtual seconds after which times repeat; 0 for the last time in the file.
        shuffle: False to number the file's devices by first appearance, 0, 1, …

    Raises:
        ConfigError: the file cannot be read, or has no such times.
    """
    entries = read_attendance(path)
    times, periods = [spans for spans, _ in entries], _repeat_periods(entries, path, period_s)
    rng = numpy_stream(seed, Purpose.AVAILABILITY)
    order = rng.permutation(len(times)) if shuffle else np.arange(len(times))
    entry_of = order[np.arange(devices) % len(times)].tolist()

    def presence(device: int, now_us: int) -> tuple[bool, int]:
        begins, ends = times[entry_of[device]]
        period_us = periods[entry_of[device]]
        if len(begins) == 1 and begins[0] == 0 and ends[0] == period_us:
            return True, FOREVER_US
        cycle, offset_us = divmod(now_us, period_us)
        index = int(np.searchsorted(ends, offset_us, side="right"))
        cycle_start = cycle * period_us
        if index == len(ends):
            return False, cycle_start + period_us + int(begins[0])
        if begins[index] > offset_us:
            return False, cycle_start + int(begins[index])
        until_us = int(ends[index])
        if until_us == period_us and begins[0] == 0:  # present across the end of the file
            until_us += int(ends[0])
        return True, cycle_start + until_us

    return presence


def read_attendance(path: str) -> list[tuple[tuple[np.ndarray, np.ndarray], int | None]]:
    """Times of each device in a file, (T,) int64 each: disjoint starts and ends in microseconds, ascending.

    Each comes with the device's own period in microseconds, or None.

    Raises:
        ConfigError: the file is unreadable, has other columns, or has a time ending before its start.
    """
    if not isinstance(path, str) or not path:
        raise ConfigError(
            f"{_OPTION} must name a CSV or Parquet file of device,from_s,until_s, but is {shown(path)}; set "
            f'for example {_OPTION}="there.csv"'
        )
    spans: dict[str, list[tuple[int, int]]] = {}
    periods: dict[str, int] = {}
    for location, device, begins_us, ends_us, period_us in _read_rows(Path(path)):
        spans.setdefault(device, []).append((begins_us, ends_us))
        if period_us is not None and periods.setdefault(device, period_us) != period_us:
            raise ConfigError(
                f"{_OPTION} must have one period_s for all rows of a device, but {location} has another for "
                f"{shown(device)}; fix it"
            )
    if not spans:
        raise ConfigError(
            f"{_OPTION} must have a row for each time that a device is there, but {path} has none; add one"
        )
    return [(_merge_touching(sorted(times)), periods.get(device)) for device, times in spans.items()]


def _repeat_periods(
    entries: list[tuple[tuple[np.ndarray, np.ndarray], int | None]], path: str, period_s: float
) -> list[int]:
    """Microseconds after which each device's times repeat: its own period, the given one, or the file's end.

    Raises:
        ConfigError: two periods are given, or one is shorter than the times.
    """
    if isinstance(period_s, bool) or not isinstance(period_s, int | float) or not 0 <= period_s <= _MOST_S:
        raise ConfigError(
            f"devices.availability-args.period_s must be seconds of 0 to {_MOST_S:g}, but is "
            f"{shown(period_s)}; leave it out for the end of the file"
        )
    has_periods = any(own_us is not None for _, own_us in entries)
    if has_periods and period_s:
        raise ConfigError(
            f"devices.availability-args.period_s must be left out, because {path} has a column period_s, but "
            f"is {shown(period_s)}; remove one of them"
        )
    last_us = max(int(ends[-1]) for (_, ends), _ in entries)
    if has_periods:
        for (_, ends), own_us in entries:
            if own_us is None or own_us < int(ends[-1]):
                raise ConfigError(
                    f"{_OPTION} must have periods at least as long as the times of their devices, but {path} "
                    f"has {(own_us or 0) / SECOND_US:g} s with a time until {ends[-1] / SECOND_US:g}; fix it"
                )
        return [own_us or last_us for _, own_us in entries]
    period_us = round(period_s * SECOND_US) if period_s else last_us
    if period_us < _LEAST_PERIOD_S * SECOND_US:
        raise ConfigError(
            f"{_OPTION} must have times until {_LEAST_PERIOD_S:g} s or later, since {path} repeats after "
            f"its last, but that is {last_us / SECOND_US:g}; fix it, or set period_s"
        )
    if not last_us <= period_us <= _MOST_S * SECOND_US:
        raise ConfigError(
            f"devices.availability-args.period_s must be at least the last second of {path}, "
            f"{last_us / SECOND_US:g}, but is {shown(period_s)}; raise it, or leave it out"
        )
    return [period_us] * len(entries)


def _read_rows(path: Path) -> Iterator[tuple[str, str, int, int, int | None]]:
    """Yield place, device, start, end and period of every row, the last three in microseconds."""
    header, rows = table_of(path, _OPTION)
    if header not in (_COLUMNS, _WITH_PERIOD):
        raise ConfigError(
            f"{_OPTION} must have the columns {','.join(_COLUMNS)}, {_WITH_PERIOD[-1]} last or not, but "
            f"{path} has {shown(','.join(header))}; fix its first line"
        )
    for place, row in rows:
        begins, ends = _parse_seconds(row, "from_s", place), _parse_seconds(row, "until_s", place)
        period = _parse_seconds(row, "period_s", place) if header == _WITH_PERIOD else None
        if not row["device"]:
            raise ConfigError(
                f"{_OPTION} must have a device and {len(header)} cells in each row, but {place} has not; "
                f"fix it"
            )
        if not begins < ends or (period is not None and period < _LEAST_PERIOD_S):
            raise ConfigError(
                f"{_OPTION} must have times that end after they begin, and periods of at least "
                f"{_LEAST_PERIOD_S:g} s, but {place} has "
                f"{begins:g} until {ends:g}{'' if period is None else f', period {period:g}'}; fix it"
            )
        begins_us = round(begins * SECOND_US)
        ends_us = max(begins_us + 1, round(ends * SECOND_US))
        yield place, row["device"], begins_us, ends_us, None if period is None else round(period * SECOND_US)


def _parse_seconds(row: Row, name: str, location: str) -> float:
    """A cell as seconds; ConfigError otherwise."""
    text = row.get(name)
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 <= value <= _MOST_S:
        raise ConfigError(
            f"{_OPTION} must have seconds of 0 to {_MOST_S:g}, counted from the beginning of the run, but "
            f"{location}, {name} is {shown(text) if text else 'empty'}; "
            f"{'subtract the earliest time of the file from all' if value > _MOST_S else 'fix it'}"
        )
    return value


def _merge_touching(times: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends, (T,) int64 each, of sorted times, with touching ones merged."""
    merged: list[list[int]] = []
    for begins, ends in times:
        if merged and begins <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], ends)
        else:
            merged.append([begins, ends])
    table = np.array(merged, np.int64)
    return table[:, 0].copy(), table[:, 1].copy()
