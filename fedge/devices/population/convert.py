"""Published traces of devices, converted to tables for `trace` presets and availabilities.

FedScale (Lai et al. 2022), benchmark/dataset/data/device_info: pickled dictionaries of

    client_device_capacity  id → {computation: ms of inference per sample, communication: kbit/s}
    client_behave_trace     id → {active: [s, …], inactive: [s, …], finish_time: s, …}

FLASH (Yang et al. 2021), JSON dictionaries of

    cached_timers.json      id → {isSuccess, trace_start: s, trace_end: s, ready_time: [[s, s], …]}
    state_traces.json       id → {messages: lines of date, time, tab, state}; it makes the former of them
    speed_distri.json       id → {down_u, up_u: mean kB/s, …}

In both, a device's times repeat after its own period. Pickles are read without executing anything: those with
more than plain data are refused.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError, shown
from hhar.regular import open_regular

SPEEDS = ("device", "seconds_per_window", "down_bytes_s", "up_bytes_s")
TIMES = ("device", "from_s", "until_s", "period_s")
_MOST_BYTES = 4 * 10**9
_AUGMENTED, _KILOBIT, _KILOBYTE = 3.0, 125.0, 1000.0  # FedScale's factor on inference; bytes
_NO_WIFI = ("unknown", "2g", "3g", "4g", "5g")
Row = tuple[Any, ...]


@dataclass
class ConvertedFile:
    """A published file in the form of rows.

    Attributes:
        columns: column names.
        rows: rows, to be read once.
        left_out: devices left out for lack of data so far, and why.
    """

    columns: tuple[str, ...]
    rows: Iterator[Row]
    left_out: dict[str, int] = field(default_factory=dict)


def converted(kind: str, path: Path, seconds_per_window: float | None = None) -> ConvertedFile:
    """A published file as rows of one of the tables above.

    Args:
        kind: one of `KINDS`.
        path: path of the file.
        seconds_per_window: seconds of training on every device, for a file of links only.

    Raises:
        ConfigError: the file is unreadable, holds more than plain data, or lacks entries of its kind.
    """
    entries = _load_entries(path, kind.startswith("fedscale"))
    if kind == "flash-speeds":
        if seconds_per_window is None or not 0 < seconds_per_window < math.inf:
            raise ConfigError(
                f"{path} tells of links alone; say with --seconds-per-window how long devices train, above 0"
            )
        return ConvertedFile(
            SPEEDS, _device_rows(path, entries, lambda entry: _links(entry, seconds_per_window))
        )
    if kind == "fedscale-capacity":
        return ConvertedFile(SPEEDS, _device_rows(path, entries, _capacity))
    result = ConvertedFile(TIMES, iter(()))
    read_times = {"fedscale-behaviour": _behaviour, "flash-timers": _timer, "flash-states": _states}[kind]
    result.rows = _time_rows(path, entries, read_times, result.left_out)
    return result


KINDS = ("fedscale-capacity", "fedscale-behaviour", "flash-timers", "flash-states", "flash-speeds")


def _load_entries(path: Path, is_pickled: bool) -> Mapping[Any, Any]:
    """The dictionary in a file."""
    from fedge.datasets.pickled import read_plain  # not at the top, as it loads NumPy

    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ConfigError(f"{path} must be at most 4 GB, which is read whole; split it")
        with open_regular(path) as file:
            entries = read_plain(file) if is_pickled else json.load(file)
    except ConfigError:
        raise
    except Exception as error:  # a pickle may raise anything
        form = "pickle of plain data" if is_pickled else "JSON file"
        reason = getattr(error, "strerror", None) or str(error)[:200]
        raise ConfigError(f"{path} must be a {form}, but: {reason}; use the published file") from error
    if not isinstance(entries, dict) or not entries:
        raise ConfigError(
            f"{path} must hold a dictionary of devices, but is {shown(entries)}; use another file"
        )
    return entries


def _device_rows(path: Path, entries: Mapping[Any, Any], read_row: Callable[[Any], Row]) -> Iterator[Row]:
    """One row per device."""
    for device, entry in entries.items():
        yield device, *_read_entry(path, device, read_row, entry)


def _time_rows(
    path: Path, entries: Mapping[Any, Any], read_times: Callable[[Any], Any], left_out: dict[str, int]
) -> Iterator[Row]:
    """One row per time of a device; devices without times are left out, and counted."""
    for device, entry in entries.items():
        spans_and_period = _read_entry(path, device, read_times, entry)
        if isinstance(spans_and_period, str):
            left_out[spans_and_period] = left_out.get(spans_and_period, 0) + 1
            continue
        spans, period_s = spans_and_period
        for begins, ends in spans:
            yield device, begins, ends, period_s


def _read_entry(path: Path, device: Any, read: Callable[[Any], Any], entry: Any) -> Any:
    """An entry as read by `read`; ConfigError if it has an unexpected form."""
    try:
        return read(entry)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ConfigError(
            f"{path}, device {shown(device)}, must have what its kind has, but: {type(error).__name__}: "
            f"{error}; use the published file, or another kind"
        ) from error


def _require_positive(value: Any) -> float:
    """A number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{shown(value)} is not a number above 0")
    return float(value)


def _capacity(entry: Any) -> Row:
    """FedScale's get_completion_time: 3 × ms of inference per sample, (down + up) / bandwidth."""
    bytes_s = _KILOBIT * _require_positive(entry["communication"])
    return _AUGMENTED * _require_positive(entry["computation"]) / 1000.0, bytes_s, bytes_s


def _links(entry: Any, seconds_per_window: float) -> Row:
    """Mean bandwidths from FLASH; their deviation from job to job is dropped."""
    down, up = _KILOBYTE * _require_positive(entry["down_u"]), _KILOBYTE * _require_positive(entry["up_u"])
    return seconds_per_window, down, up


def _behaviour(entry: Any) -> Any:
    """FedScale's is_active: present from active[i] to inactive[i], repeated at finish_time."""
    period = _require_positive(entry["finish_time"])
    pairs = zip(entry["active"], entry["inactive"], strict=True)
    return _spans_within([(begins, min(ends, period)) for begins, ends in pairs], period)


def _timer(entry: Any) -> Any:
    """FLASH's Timer.ready: times repeat between the trace's first and last second."""
    if not entry["isSuccess"]:
        return "no trace that FLASH could read"
    start = entry["trace_start"]
    period = int(entry["trace_end"] - start)
    return _spans_within([(begins - start, ends - start) for begins, ends in entry["ready_time"]], period)


def _spans_within(spans: list[tuple[float, float]], period_s: float) -> Any:
    """Spans of positive length, in seconds, and the period; a reason if there are none."""
    clipped = [(max(0.0, begins), min(ends, period_s)) for begins, ends in spans]
    positive = [(float(begins), float(ends)) for begins, ends in clipped if begins < ends]
    return (positive, float(period_s)) if positive else "never there"


def _states(entry: Any) -> Any:
    """FLASH's Timer from messages: present while locked, charging and on Wi-Fi, by the latest messages."""
    messages = [line.strip().split("\t") for line in entry["messages"].split("\n") if line.strip()]
    if any(len(message) != 2 for message in messages) or not messages:
        return "messages of another form"
    moments = [datetime.fromisoformat(moment.strip()).replace(tzinfo=None) for moment, _ in messages]
    start, period = moments[0], int((moments[-1] - moments[0]).total_seconds())
    conditions = {"charged": False, "wifi": False, "locked": False}
    since, spans = None, []
    for moment, (_, word) in zip(moments, messages, strict=True):
        conditions.update(_changes_of(word.strip().lower()))
        second = (moment - start).total_seconds()
        if all(conditions.values()):
            since = second if since is None else since
        elif since is not None:
            spans.append((since, second))
            since = None
    return _spans_within(spans, period) if period else "a trace of no time"


def _changes_of(word: str) -> dict[str, bool]:
    """Changes of battery, network and screen by a state of FLASH; other states change nothing."""
    changes: dict[str, dict[str, bool]] = {
        "battery_charged_on": {"charged": True}, "battery_charged_off": {"charged": False},
        "wifi": {"wifi": True}, "screen_lock": {"locked": True}, "screen_unlock": {"locked": False},
        "screen_on": {}, "screen_off": {}, **{name: {"wifi": False} for name in _NO_WIFI},
    }  # fmt: skip
    if word in changes:
        return changes[word]
    if word.endswith("%"):
        return {}
    raise ValueError(f"{shown(word)} is not a state of FLASH")
