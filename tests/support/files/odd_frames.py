"""Odd frames of samples, each by a seed; and their windows by plain Python, from the docs alone.

Types, cells, orders of rows, indices and arguments are drawn; `plain_windows` goes through the cells as
Python has them, without Fedge's code, and refuses what docs/data.md does not take.
"""

import datetime
import decimal
import itertools
import math
from contextlib import suppress
from numbers import Integral

import numpy as np
import pandas as pd
import polars as pl
from odd_archives import one_of

EPOCH = datetime.datetime(1970, 1, 1)
DAYS = pd.date_range("2020-01-01", periods=4, freq="D")
UNITS = {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}


class Refused(Exception):
    """A frame that the docs do not take."""


# --- a frame ------------------------------------------------------------------------------------------


def samples(rng):
    """Honest columns: streams of a user, device and session, with changes of label, jitter and gaps."""
    found = {key: [] for key in ("user", "device", "session", "label", "t")}
    jitter, names = rng.choice([0.0, 0.02]), rng.permutation(4)
    for stream in range(rng.integers(1, 5)):
        at = float(rng.integers(0, 100))
        for run in range(rng.integers(1, 5)):
            at += float(rng.choice([0.0, 0.9, 1.5, 40.0], p=[0.7, 0.1, 0.1, 0.1]))
            for _ in range(rng.integers(1, 40)):
                at += 0.1 + float(rng.uniform(-jitter, jitter))
                row = (names[stream % 3], stream // 3, stream, names[run % 3], round(at, 3))
                for key, value in zip(found, row, strict=True):
                    found[key].append(value)
    values = rng.normal(size=(len(found["t"]), 2)).round(2)
    return {key: np.array(column) for key, column in found.items()} | dict(zip("xy", values.T, strict=True))


def _objects(values):
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def _mixed(rng, codes):
    """The same numbers as int, float, Decimal or text."""
    ways = (
        int,
        float,
        lambda code: decimal.Decimal(int(code)),
        lambda code: str(int(code)),
        np.int8,
        np.float16,
    )
    return _objects([one_of(rng, ways)(code) for code in codes])


def _texts(words):
    return lambda rng, codes: _objects([words[code] for code in codes])


NAMES = (  # (generator, codes 0..4) → column of names
    *[_texts(list("abcd"))] * 60,
    _texts(["1", "10", "2", "02"]),
    _texts(["", " ", "Ä", "雪"]),
    _texts(["²", "١", "1.0", "1"]),
    _texts(["a\0", "a", "b\0c", "bc"]),
    _texts(["\x1b[2J", "a", "b\n", "c"]),
    _texts(["\ud800", "a", "b", "c"]),
    _texts(["x" * 600, "a", "9" * 5000, "b"]),
    _texts([b"a", b"b", b"c", b"d"]),
    _texts([(1,), (2,), (3,), (4,)]),
    _texts([True, "True", 1, 1.0]),
    _texts([10**30, 10**600, decimal.Decimal("1E+99999999"), 0]),
    _texts([datetime.date(2020, 1, day) for day in (1, 2, 3, 4)]),
    lambda rng, codes: _objects([[int(code)] for code in codes]),
    lambda rng, codes: _objects([np.array([code, 1]) for code in codes]),
    lambda rng, codes: _objects([{"a": int(code)} for code in codes]),
    _mixed,
    lambda rng, codes: pd.Categorical.from_codes(codes, list("zabcd")),
    lambda rng, codes: pd.array([f"u{code}" for code in codes], dtype="string"),
    lambda rng, codes: pd.array(codes, dtype="Int64"),
    lambda rng, codes: pd.array(codes / 2, dtype="Float32"),
    lambda rng, codes: pd.arrays.SparseArray(codes),
    lambda rng, codes: codes.astype(one_of(rng, (">i4", "u1", "f2", "f8", np.longdouble, "u8"))),
    lambda rng, codes: np.array([1e300, np.inf, 2.0**70, -0.0])[codes],
    lambda rng, codes: np.array([2**64 - 1, 2**63, 1, 0], dtype="u8")[codes],
    lambda rng, codes: codes / 3,
    lambda rng, codes: codes.astype(complex),
    lambda rng, codes: codes > 1,
    lambda rng, codes: DAYS[codes],
    lambda rng, codes: DAYS.astype("M8[s]")[codes],
    lambda rng, codes: DAYS[codes] - DAYS[0],
    lambda rng, codes: DAYS.to_period()[codes],
)
CHANNELS = (  # (generator, numbers) → column of a channel
    *[lambda rng, x: x.astype(np.float32)] * 50,
    lambda rng, x: x.astype(one_of(rng, ("f2", "f8", ">f4", ">f8", np.longdouble))),
    lambda rng, x: (10 * x).astype(one_of(rng, ("i1", "i4", ">i2", "i8"))),
    lambda rng, x: pd.array((10 * x).astype(int), dtype="Int64"),
    lambda rng, x: pd.array(x, dtype="Float64"),
    lambda rng, x: pd.array(x > 0, dtype="boolean"),
    lambda rng, x: x > 0,
    lambda rng, x: pd.arrays.SparseArray(np.where(x > 0, x, 0), fill_value=0.0),
    lambda rng, x: pd.Categorical(x),
    lambda rng, x: np.where(x > 2, one_of(rng, (np.nan, np.inf, 1e300, -1e39, 1e-320, 2.0**70)), x),
    lambda rng, x: np.where(x > 0, 2**64 - 1, 2**53 + 1).astype("u8"),
    lambda rng, x: _objects(list(map(str, x))),
    lambda rng, x: _objects(x),
    lambda rng, x: _objects([decimal.Decimal(str(value)) for value in x]),
    lambda rng, x: _objects([[value] for value in x]),
    lambda rng, x: _objects(["1", *list(x[1:])]),
    lambda rng, x: x * 1j,
    lambda rng, x: (1000 * x).astype("m8[ms]"),
    lambda rng, x: pd.Timestamp("2020") + pd.to_timedelta(x, unit="s"),
    lambda rng, x: np.broadcast_to(x[:1], x.shape),  # read-only, without strides
)
TIMES = (  # (generator, seconds) → column of times, unit
    *[lambda rng, t: (t, "s")] * 25,
    lambda rng, t: (np.rint(t * 1000).astype(one_of(rng, ("i8", ">i8", "u4", "u8"))), "ms"),
    lambda rng, t: (pd.array(np.rint(t * 1e6).astype(int), dtype="Int64"), "us"),
    lambda rng, t: (pd.array(t, dtype="Float64"), "s"),
    lambda rng, t: (t.astype(one_of(rng, ("f2", "f4", np.longdouble))), "s"),
    lambda rng, t: (t * 1e9 + float(rng.choice([0, 9.1e18, 9.3e18, -9.3e18])), "ns"),
    lambda rng, t: (t - 1e5, "s"),
    lambda rng, t: (np.rint(t * 1000).astype("M8[ms]"), "s"),
    lambda rng, t: ((np.rint(t * 1e9) + 1.6e18).astype(int).astype("M8[ns]"), "s"),
    lambda rng, t: (np.rint(t * 1000 + 1e16).astype(int).astype("M8[ms]"), "s"),
    lambda rng, t: (np.rint(t).astype(int).astype("M8[s]"), "s"),
    lambda rng, t: (pd.DatetimeIndex(np.rint(t * 1000).astype("M8[ms]")).tz_localize("UTC"), "s"),
    lambda rng, t: (
        pd.DatetimeIndex(np.rint(t * 1000 + 1.7e12).astype("M8[ms]"))
        .tz_localize("UTC")
        .tz_convert("Asia/Tokyo"),
        "s",
    ),
    lambda rng, t: (np.rint(t * 1000).astype("m8[ms]"), "s"),
    lambda rng, t: (t.astype(str), "s"),
    lambda rng, t: (_objects(t), "s"),
    lambda rng, t: (pd.arrays.SparseArray(t), "s"),
    lambda rng, t: (t * 1j, "s"),
    lambda rng, t: (t > 50, "s"),
    lambda rng, t: (np.where(t > 90, one_of(rng, (np.nan, np.inf)), t), "s"),
)


def odd_frame(rng):
    """(frame, arguments of `from_pandas`) of one seed."""
    columns = samples(rng)
    arguments = {
        "user": "user", "label": "label", "channels": ["x", "y"], "rate_hz": one_of(rng, (10, 10.0, 5, 20,
        8.5)),
        "window_s": one_of(rng, (0.5, 1, 1.0, 0.33)),
    }  # fmt: skip
    if rng.random() < 0.3:
        arguments["stride_s"] = one_of(rng, (0.1, 1, 3.0))
    made = {key: one_of(rng, NAMES)(rng, columns[key]) for key in ("user", "label")}
    made |= {key: _texts(list("pqrs"))(rng, columns[key]) for key in ("device", "session")}
    for key in ("device", "session"):
        if rng.random() < (0.7 if key == "device" else 0.4):
            arguments[key] = key
            if rng.random() < 0.3:
                made[key] = one_of(rng, NAMES)(rng, columns[key])
    if rng.random() < 0.7:
        made["t"], unit = one_of(rng, TIMES)(rng, columns["t"])
        arguments |= {"time": "t"} | ({"time_unit": unit} if unit != "s" or rng.random() < 0.5 else {})
    made |= {key: one_of(rng, CHANNELS)(rng, columns[key]) for key in ("x", "y")}
    try:
        frame = pd.DataFrame(made)
    except OverflowError:  # pandas 2 fails at whole numbers beyond every float
        frame = pd.DataFrame({key: pd.Series(values, dtype=object) for key, values in made.items()})
    with suppress(Exception):  # pandas' own, e.g. for bytes in another order
        frame = _disturbed(rng, frame)
    if rng.random() < 0.3:
        frame = _in_polars(frame)
    return frame, _odd_arguments(rng, arguments) if rng.random() < 0.15 else arguments


def _disturbed(rng, frame):
    """Rows in another order or number, cells left out, another index, columns twice."""
    kind = rng.integers(24)
    if kind == 0:
        return frame.iloc[rng.permutation(len(frame))]
    if kind == 1:
        return frame.iloc[:: one_of(rng, (2, 3))]
    if kind == 2:
        return frame.iloc[: one_of(rng, (0, 1, 2))]
    if kind == 3:
        return pd.concat([frame, frame.iloc[-1:]])
    if kind == 4:
        return pd.concat([frame, frame[[one_of(rng, list(frame.columns))]]], axis=1)
    if kind == 5:
        return frame.set_index(one_of(rng, list(frame.columns)))
    if kind == 6:
        return frame.set_index(pd.MultiIndex.from_product([["i"], range(len(frame))]))
    if kind == 7:
        return frame.set_axis(pd.MultiIndex.from_product([["g"], frame.columns]), axis=1)
    if kind == 8:
        return frame.astype({one_of(rng, list(frame.columns)): object})
    if kind == 9:
        return frame.assign(**{"": 1, "ünused": [[]] * len(frame)})
    if kind == 10:
        name, frame = one_of(rng, list(frame.columns)), frame.copy()
        return frame.assign(**{name: frame[name].where(np.arange(len(frame)) != len(frame) // 2)})
    return frame.set_axis([0] * len(frame)) if kind == 11 else frame


def _in_polars(frame):
    """The same for Polars, where it takes the types."""
    try:
        return pl.DataFrame({name: pl.Series(frame[name].tolist(), strict=True) for name in frame.columns})
    except Exception:  # no type of Polars'
        return frame


ODD = (
    None,
    "x",
    "",
    b"x",
    -1,
    0,
    5,
    10**400,
    math.nan,
    math.inf,
    [],
    ["x"],
    {"a": 1},
    True,
    np.float32(1),
    np.array(1.0),
    1j,
)


def _odd_arguments(rng, arguments):
    """One argument of another type or value."""
    name = one_of(rng, [*arguments, "about", "time_unit", "stride_s"])
    return arguments | {name: one_of(rng, ODD)}


# --- its windows, by the docs -------------------------------------------------------------------------


def plain_windows(frame, given):
    """Windows as (user, session, device, label, numbers (C, T)), and classes; Refused as by the docs."""
    rate, width = float(given["rate_hz"]), float(given["window_s"])
    stride = float(given["stride_s"]) if given.get("stride_s") is not None else width / 2
    rows = _rows(frame, given)
    runs, spans = [], {}
    for (user, device, session), stream in sorted(rows.items()):
        if given.get("time"):
            _refuse_times([row[1] for row in stream], rate)
        numbers = {}
        for run in _cut(stream, lambda before, row: before[0] != row[0]):
            label = run[0][0]
            if not given.get("time"):
                numbers[label] = numbers.get(label, 0) + 1
                name = session or f"{user}/{label}/{numbers[label]:02d}"
                run = [(label, round(number * (1e9 / rate)), cell) for number, (_, _, cell) in enumerate(run)]
                runs.append((user, name, device, 0, label, run))
                continue
            for part in _cut(run, lambda before, row: row[1] // 10**6 - before[1] // 10**6 > 30_000):
                first, last = part[0][1] // 10**6, part[-1][1] // 10**6
                spans.setdefault((user, label), []).append((first, last, len(runs)))
                runs.append([user, session, device, first, label, part])
    for (user, label), members in spans.items():
        number, until = 0, None
        for first, last, which in sorted(members):
            number, until = (
                (number + 1, last) if until is None or first > until else (number, max(until, last))
            )
            runs[which][1] = runs[which][1] or f"{user}/{label}/{number:02d}"
    order = sorted(range(len(runs)), key=lambda which: (*runs[which][:4], which))
    steps, apart = round(width * rate), round(stride * rate)
    if not steps or not apart:
        raise Refused("a window or stride of no sample")
    found = []
    for which in order:
        user, session, device, _, label, run = runs[which]
        for part in _cut(run, lambda before, row: row[1] - before[1] > 10**9):
            found += [(user, session, device, label, window) for window in _windows(part, rate, steps, apart)]
    if not found or len({window[3] for window in found}) < 2:
        raise Refused("no window, or of one class")
    return found, sorted({row[0] for stream in rows.values() for row in stream}, key=_by_size)


def _by_size(name):
    with suppress(ValueError):
        if math.isfinite(float(name)) and "_" not in name and name == name.strip():
            return (0, decimal.Decimal(name), name)
    return (1, decimal.Decimal(0), name)


def _cells(frame, name):
    if [str(column) == name for column in frame.columns].count(True) != 1 or name not in list(frame.columns):
        raise Refused("no such column, or twice")
    cells = list(frame[name])  # pandas and Polars alike, in their order
    if not cells or str(frame[name].dtype) in ("Int128", "UInt128"):
        raise Refused("no rows, or a type that NumPy has not")
    return [cell for cell in cells if not _is_missing(cell, name)]


def _is_missing(cell, name):
    several = isinstance(cell, np.ndarray | pl.Series | list | tuple | dict)
    if cell is None or cell is pd.NA or cell is pd.NaT or (not several and cell != cell):
        raise Refused(f"a missing cell of {name}")
    return False


def _rows(frame, given):
    """(user, device, session) → rows (label, ns, numbers), in the frame's order."""
    names = {key: _names(frame, given[key]) for key in ("user", "label")}
    numbers = list(zip(*(_numbers(frame, name) for name in given["channels"]), strict=True))
    times = (
        _times(frame, given["time"], UNITS[given.get("time_unit", "s")])
        if given.get("time")
        else [0] * len(numbers)
    )
    others = [
        _names(frame, given[key]) if given.get(key) else [""] * len(numbers) for key in ("device", "session")
    ]
    found = {}
    for user, label, time, cell, *keys in zip(
        names["user"], names["label"], times, numbers, *others, strict=True
    ):
        found.setdefault((user, *keys), []).append((label, time, cell))
    if len(set(names["label"])) < 2:
        raise Refused("one class")
    return found


def _names(frame, name):
    cells = _cells(frame, name)
    floats = [isinstance(cell, float | np.floating) for cell in cells]
    are_whole = all(floats) and all(math.isfinite(cell) and float(cell).is_integer() for cell in cells)
    kind = str(frame[name].dtype)  # cells of objects are each by itself
    texts = [_name(cell, are_whole or kind == "object", kind) for cell in cells]
    if any(not text.isprintable() or len(text) > 500 for text in texts):
        raise Refused("an odd name")
    return texts


def _name(cell, is_whole, kind):
    if isinstance(cell, pd.Timestamp) and kind.startswith("datetime64") and "," not in kind:
        return str(cell.to_datetime64().astype(kind.replace("datetime64", "M8")))
    if isinstance(cell, datetime.datetime) and kind.startswith("Datetime"):
        return str(np.datetime64(cell, kind.split("'")[1]))
    if isinstance(cell, str | bool | np.bool_ | datetime.date):
        return str(cell)
    if isinstance(cell, Integral) and not isinstance(cell, np.timedelta64) and abs(int(cell)) < 10**499:
        return str(int(cell))
    if isinstance(cell, float | np.floating) and math.isfinite(cell):
        return str(int(cell)) if is_whole and cell == int(cell) else str(float(cell))
    if isinstance(cell, decimal.Decimal) and cell.is_finite() and abs(cell.adjusted()) < 500:
        return str(int(cell)) if cell == int(cell) else str(cell)
    raise Refused(f"no name: {type(cell)}")


_NUMBER = (bool, np.bool_, int, float, np.integer, np.floating)


def _numbers(frame, name):
    """Cells as float32; an object column is none of numbers."""
    cells, found = _cells(frame, name), []
    if str(frame[name].dtype) == "object":
        raise Refused("objects")
    for cell in cells:
        if not isinstance(cell, _NUMBER) or isinstance(cell, np.timedelta64):
            raise Refused("no number")
        with np.errstate(over="ignore"):
            found.append(float(np.float32(cell)))
    if not all(map(math.isfinite, found)):
        raise Refused("not finite")
    return found


def _times(frame, name, unit):
    """Cells as ns."""
    cells, found = _cells(frame, name), []
    kind = str(frame[name].dtype)
    for cell in cells:
        if isinstance(cell, pd.Timestamp) and kind != "object":
            cell = cell.tz_convert("UTC").tz_localize(None) if cell.tz is not None else cell
            found.append(
                (cell.to_pydatetime(warn=False) - EPOCH) // datetime.timedelta(microseconds=1) * 1000
                + cell.nanosecond
                if cell.year < 3000
                else 10**20
            )
        elif isinstance(cell, pd.Timedelta) and kind != "object":
            found.append(int(cell.to_timedelta64().astype("m8[ns]").astype(int)))
        elif isinstance(cell, datetime.datetime) and kind != "object":
            found.append((cell.replace(tzinfo=None) - EPOCH) // datetime.timedelta(microseconds=1) * 1000)
        elif isinstance(cell, datetime.timedelta) and kind != "object":
            found.append(cell // datetime.timedelta(microseconds=1) * 1000)
        elif isinstance(cell, _NUMBER) and not isinstance(cell, bool | np.bool_) and kind != "object":
            if not abs(float(cell)) < 9.2e18 / unit:
                raise Refused("too large")
            found.append(int(cell) * int(unit) if isinstance(cell, Integral) else round(float(cell) * unit))
        else:
            raise Refused("no time")
    if any(abs(time) >= 2**63 for time in found):
        raise Refused("too far")
    return found


def _refuse_times(times, rate):
    steps = np.array([after - before for before, after in itertools.pairwise(times)])
    if len(steps) and ((steps <= 0).any() or rate > 2 * (1e9 / float(np.median(steps)))):
        raise Refused("times")


def _cut(rows, between):
    """Rows cut where `between` holds of two neighbours."""
    parts = [[rows[0]]]
    for before, row in itertools.pairwise(rows):
        if between(before, row):
            parts.append([])
        parts[-1].append(row)
    return parts


def _windows(rows, rate, steps, apart):
    """Windows (C, T) of rows without a gap, on a regular grid from the first row on."""
    start, end = rows[0][1], rows[-1][1]
    if end <= start:
        return
    grid = [number / rate for number in range(int((end - start) * rate / 1e9 + 1e-6) + 1)]
    values, at = [], 0
    for moment in grid:
        while at + 2 < len(rows) and (rows[at + 1][1] - start) / 1e9 <= moment:
            at += 1
        (_, before, low), (_, after, high) = rows[at], rows[at + 1]
        share = min(1.0, (moment - (before - start) / 1e9) / ((after - before) / 1e9))
        values.append([a + share * (b - a) for a, b in zip(low, high, strict=True)])
    for first in range(0, len(grid) - steps + 1, apart):
        yield np.array(values[first : first + steps]).T
