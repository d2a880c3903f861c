"""When devices were there, from a CSV file of one's own: a row for each time that one was.

    device,from_s,until_s
    a17,0,3600
    a17,7200,9000
    b02,1800,86400

`device` is any word; its rows may stand anywhere. The file is read line by line, and held as two numbers a
row. Times of a device that touch or overlap are one.
"""

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from fedge.config.option import ConfigError, shown
from fedge.devices.availability import FOREVER_US, Presence
from fedge.devices.clock import SECOND_US
from fedge.seeding import Purpose, numpy_stream

_COLUMNS = ("device", "from_s", "until_s")
_MOST_S = 1e9


def trace(devices: int, seed: int, path: str = "", period_s: float = 0.0, shuffle: bool = True) -> Presence:
    """Every device is there when one of the file was; the file begins anew after its period.

    With fewer devices in the file than in the run they are used again in turn, with the same times.

    Args:
        devices: how many.
        seed: root of the stream that shuffles the file's devices.
        path: of the file.
        period_s: virtual seconds after which the file begins anew; 0: at the end of its last time.
        shuffle: False: the file's devices, in the order in which they first stand there, are 0, 1, …

    Raises:
        ConfigError: the file cannot be read, or has no such times.
    """
    times = read_attendance(path)
    last_us = max(int(ends[-1]) for _, ends in times)
    period_us = round(period_s * SECOND_US) if period_s else last_us
    if not last_us <= period_us <= _MOST_S * SECOND_US:
        raise ConfigError(
            f"devices.availability-args.period_s must be at least the last second of {path}, "
            f"{last_us / SECOND_US:g}, but is {shown(period_s)}; raise it, or leave it out"
        )
    rng = numpy_stream(seed, Purpose.AVAILABILITY)
    order = rng.permutation(len(times)) if shuffle else np.arange(len(times))
    whose = order[np.arange(devices) % len(times)].tolist()

    def presence(device: int, now_us: int) -> tuple[bool, int]:
        begins, ends = times[whose[device]]
        if len(begins) == 1 and begins[0] == 0 and ends[0] == period_us:
            return True, FOREVER_US
        turn, at = divmod(now_us, period_us)
        place = int(np.searchsorted(ends, at, side="right"))
        before = turn * period_us
        if place == len(ends):
            return False, before + period_us + int(begins[0])
        if begins[place] > at:
            return False, before + int(begins[place])
        until_us = int(ends[place])
        if until_us == period_us and begins[0] == 0:  # it stays over the end of the file
            until_us += int(ends[0])
        return True, before + until_us

    return presence


def read_attendance(given: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Per device of a file its times, (T,) int64 each: begins and ends in microseconds, ascending, apart.

    Raises:
        ConfigError: it cannot be read, has other columns, or a time that ends before it begins.
    """
    if not isinstance(given, str) or not given:
        raise ConfigError(
            f"devices.availability-args.path must name a CSV file of device,from_s,until_s, but is "
            f'{shown(given)}; set for example devices.availability-args.path="there.csv"'
        )
    found: dict[str, list[tuple[int, int]]] = {}
    try:
        for device, begins_us, ends_us in _rows(Path(given)):
            found.setdefault(device, []).append((begins_us, ends_us))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"devices.availability-args.path must be a readable CSV file, but {given}: {reason}; check the "
            "path"
        ) from error
    if not found:
        raise ConfigError(
            f"devices.availability-args.path must have a row for each time that a device is there, but "
            f"{given} has none; add one"
        )
    return [_apart(sorted(times)) for times in found.values()]


def _rows(path: Path) -> Iterator[tuple[str, int, int]]:
    """Yield device, begin and end in microseconds of every row."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file, skipinitialspace=True)
        if tuple(reader.fieldnames or ()) != _COLUMNS:
            raise ConfigError(
                f"devices.availability-args.path must have the columns {','.join(_COLUMNS)}, but {path} has "
                f"{shown(','.join(reader.fieldnames or ()))}; mend its first line"
            )
        for row in reader:
            begins, ends = _seconds(row.get("from_s")), _seconds(row.get("until_s"))
            if None in row or not row["device"] or not begins < ends:
                raise ConfigError(
                    f"devices.availability-args.path must have a device, and seconds of 0 to {_MOST_S:g} "
                    f"that end after they begin, but {path}, line {reader.line_num} has not; mend it"
                )
            yield (
                row["device"],
                round(begins * SECOND_US),
                max(round(begins * SECOND_US) + 1, round(ends * SECOND_US)),
            )


def _seconds(text: str | None) -> float:
    """A cell as seconds; NaN, which is smaller than nothing, where it is none."""
    try:
        value = float(text or "")
    except ValueError:
        return math.nan
    return value if 0 <= value <= _MOST_S else math.nan


def _apart(times: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Begins and ends, (T,) int64 each, of times in order; those that touch become one."""
    kept: list[list[int]] = []
    for begins, ends in times:
        if kept and begins <= kept[-1][1]:
            kept[-1][1] = max(kept[-1][1], ends)
        else:
            kept.append([begins, ends])
    table = np.array(kept, np.int64)
    return table[:, 0].copy(), table[:, 1].copy()
