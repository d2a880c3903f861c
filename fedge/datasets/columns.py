"""Columns of a pandas or Polars frame as NumPy arrays; errors name the column and the next step.

Neither library is imported: both give access to columns in the same few ways.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedge.config.registers.option import nearest, shown
from hhar.errors import HharError
from hhar.windows.rounding import too_coarse

_MOST = 10**499  # whole numbers as names are below it
LONGEST_NAME = 500  # characters of a user, label, device or session
_DECIMAL_COMMA = re.compile(r"[+-]?\d[\d.]*,\d+([eE][+-]?\d+)?")
_ISO_DATE = re.compile(r"\s*\d{4}-\d\d-\d\d")
UNITS_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


def refuse_unknown_columns(frame: Any, others: Sequence[Any], channels: Sequence[Any]) -> None:
    """Raise HharError unless `frame` is a frame with rows and with every named column, once.

    Args:
        frame: a frame of pandas or Polars.
        others: columns of a row's owner and time.
        channels: columns of numbers, at least one.

    Raises:
        HharError: as said.
    """
    is_lazy, is_arrow = hasattr(frame, "collect"), hasattr(frame, "column_names")
    if is_lazy or is_arrow or not all(hasattr(frame, name) for name in ("columns", "shape", "__getitem__")):
        step = "collect() it" if is_lazy else "make it one: pandas.DataFrame(…)"
        step = "to_pandas() makes it one" if is_arrow else step
        raise HharError(f"frame: must be a pandas or Polars DataFrame, is {type(frame).__name__}; {step}")
    if not channels:
        raise HharError('channels: must name at least one column, are none; give channels=["…"]')
    requested = [*others, *channels]
    present = list(frame.columns)
    for name in requested:
        if not isinstance(name, str):
            raise HharError(
                f"columns: must be named by text, {shown(name)} is none; rename it: frame.columns.map(str)"
            )
        if present.count(name) != 1:
            count = present.count(name)
            step = _next_step(frame, name, count)
            raise HharError(f"frame: must have the column {name!r} once, has it {count} times{step}")
    repeated = [name for name in requested if requested.count(name) > 1]
    if repeated:
        raise HharError(
            f"columns: must be named for one thing each, {repeated[0]!r} is named twice; remove one of them"
        )
    if not len(frame):
        raise HharError("frame: must have rows, has none; give one with a row per sample")


def _next_step(frame: Any, name: str, count: int) -> str:
    """Next step for a missing or repeated column."""
    if count > 1:
        return "; rename the others"
    if hasattr(frame, "index") and name in getattr(frame.index, "names", ()):
        return "; it is in the index: frame.reset_index()"
    present = [str(column) for column in frame.columns]
    return nearest(name, present) or f"; it has {', '.join(present[:20])}"


def refuse_missing(frame: Any, name: str) -> None:
    """Raise HharError for a column in which values are missing."""
    column = frame[name]
    mask = column.isna() if hasattr(column, "isna") else column.is_null()
    missing = np.asarray(mask.to_numpy(), dtype=bool)
    if not hasattr(column, "isna") and column.dtype.is_float():  # Polars tells null from NaN
        missing = missing | np.asarray(column.is_nan().to_numpy(), dtype=bool)
    if missing.any():
        raise HharError(
            f"{name}: values must not be missing, {missing.sum()} of {len(missing)} are, first in row "
            f"{np.argmax(missing)}; drop these rows (a gap of up to a second is bridged), or fill them"
        )


def _conversion_code(frame: Any, name: str, value: Any) -> str:
    """Code converting a column with first value `value` to numbers, in the frame's library."""
    is_polars = not hasattr(frame[name], "isna")
    if isinstance(value, str) and _DECIMAL_COMMA.fullmatch(value.strip()):
        return "read_csv(…, decimal_comma=True)" if is_polars else "read_csv(…, decimal=',')"
    if is_polars and frame[name].dtype.is_object():
        return _typed_column(name)
    if is_polars:
        return f"frame.with_columns(polars.col({name!r}).cast(polars.Float64))"
    return f"pandas.to_numeric(frame[{name!r}])"


def _typed_column(name: str) -> str:
    """Code giving a Polars column of Python objects the type of its values."""
    return f"frame.with_columns(polars.Series({name!r}, frame[{name!r}].to_list()))"


def float_column(frame: Any, name: str) -> tuple[NDArray[np.float32], str, str]:
    """A column as float32 (rows), its original type, and words of `too_coarse`.

    Raises:
        HharError: other types, missing values, NaN or infinity.
    """
    refuse_missing(frame, name)
    column = frame[name]
    kind = str(column.dtype)
    values = _values(column, name)
    if values.dtype.kind == "O" and getattr(column.dtype, "kind", "O") in "fiub":  # pandas' Int64, Float64
        values = column.to_numpy(dtype="float64")
    if values.dtype.kind not in "fiub":
        raise HharError(
            f"{name}: must hold numbers, holds {kind}, as {shown(values.flat[0])}; make them numbers: "
            f"{_conversion_code(frame, name, values.flat[0])}, or leave the column out of channels"
        )
    with np.errstate(over="ignore"):
        cast = values.astype(np.float32)
    bad = np.flatnonzero(~np.isfinite(cast))
    if len(bad):
        raise HharError(
            f"{name}: values must be finite as float32, {len(bad)} are not, first in row {bad[0]}: "
            f"{values[bad[0]]}; drop these rows or fix them"
        )
    return cast, kind, too_coarse(values, cast)


@dataclass(frozen=True)
class Names:
    """A column of names: `code` int64 (rows,) says which of `known` each row has."""

    code: NDArray[np.int64]
    known: list[str]

    def name_at(self, row: int) -> str:
        """The name of a row."""
        return self.known[self.code[row]]


def names(frame: Any, name: str) -> Names:
    """A column of names: text unchanged, whole numbers without a point, dates as ISO 8601.

    Successive rows mostly have the same name, so only changes are examined.

    Raises:
        HharError: something is missing, is no name, or cannot be printed.
    """
    refuse_missing(frame, name)
    values = _values(frame[name], name)
    if values.dtype.kind == "O" and set(map(type, values.tolist())) != {str}:
        starts = np.arange(len(values))  # 1, 1.0 and True are equal, but not one text
    else:
        starts = np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])
    texts = name_texts(values[starts], name)
    for text in texts:
        if not text.isprintable() or len(text) > LONGEST_NAME:
            raise HharError(
                f"{name}: must hold printable names of at most {LONGEST_NAME} characters, holds "
                f"{shown(text)}; rename it"
            )
    unique, code = np.unique(texts, return_inverse=True)
    return Names(np.repeat(code, np.diff(np.append(starts, len(values)))), unique.tolist())


def name_texts(values: NDArray[Any], name: str) -> list[str]:
    """Values (rows,) as text: numbers without a point where all are whole, dates as ISO 8601.

    Raises:
        HharError: a value is none of text, numbers, truth values and dates, or not finite.
    """
    if values.dtype.kind == "M":
        return values.astype(str).tolist()
    items = values.tolist()
    if values.dtype.kind == "m":  # NumPy lists them as whole numbers
        _refuse_name(values[0], name)
    if values.dtype.kind == "f":
        refuse_infinite(values, name)
        items = [float(value) for value in items]  # of a longdouble, too
        refuse_infinite(np.array(items), name)
        return list(map(str, map(int, items) if all(map(float.is_integer, items)) else items))
    return [_text(value, name) for value in items]


def _text(value: Any, name: str) -> str:
    """One value as text; errors as of `name_texts`."""
    if isinstance(value, str | bool | np.bool_ | datetime.date | datetime.time):
        return str(value)
    if isinstance(value, Integral) and abs(int(value)) < _MOST:
        return str(int(value))
    if isinstance(value, float | np.floating) and math.isfinite(value):
        return str(int(value)) if value == int(value) else str(float(value))
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) < LONGEST_NAME:
        text = f"{value:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    _refuse_name(value, name)


def _refuse_name(value: Any, name: str) -> NoReturn:
    """Raise HharError for a value that is no name."""
    way = "bytes.decode" if isinstance(value, bytes) else "str"
    raise HharError(
        f"{name}: must hold text, finite numbers or dates, holds {shown(value)} of type "
        f"{type(value).__name__}; make it text, as by map({way})"
    )


def refuse_infinite(values: NDArray[Any], name: str) -> None:
    """Raise HharError for names (rows,) that are infinite numbers."""
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise HharError(
            f"{name}: names must be finite, {len(bad)} are not, first {values[bad[0]]}; drop these rows or "
            "fix them"
        )


def _values(column: Any, name: str) -> NDArray[Any]:
    """A column's values (rows,), of any type.

    Raises:
        HharError: NumPy has no such type, or rows hold several values.
    """
    try:
        values = np.asarray(column.to_numpy())
    except Exception as error:  # each library has errors of its own
        raise HharError(
            f"{name}: must hold numbers, text or dates, holds {column.dtype}, for which NumPy has no type "
            f"({type(error).__name__}); cast it"
        ) from error
    if values.ndim != 1 or values.dtype.kind == "V":
        raise HharError(
            f"{name}: must hold one value per row, holds {column.dtype}; make a column of each of its parts"
        )
    return values


def _way_to_times(frame: Any, name: str, values: NDArray[Any]) -> str:
    """Code converting a column with these values (rows,) to dates or numbers, in the frame's library."""
    first = values.flat[0]
    if isinstance(first, datetime.time):
        return "join each with its date: dates or numbers rise over midnight, too"
    is_pandas = hasattr(frame[name], "isna")
    if not is_pandas and frame[name].dtype.is_object():
        return f"give the column a type: {_typed_column(name)}"
    if isinstance(first, str):
        code = _pandas_dates(name, first) if is_pandas else f"frame[{name!r}].str.to_datetime()"
        return f"make dates of text: {code}"
    if is_pandas and hasattr(first, "to_timestamp"):  # a Period
        return f"make dates of them: frame[{name!r}].dt.to_timestamp()"
    if is_pandas and isinstance(first, datetime.timedelta):
        return f"give the column a type: pandas.to_timedelta(frame[{name!r}])"
    if is_pandas and isinstance(first, datetime.date):  # objects, as of several zones
        return f"give the column a type: pandas.to_datetime(frame[{name!r}], utc=True)"
    return f"make them numbers: {_conversion_code(frame, name, first)}"


def _pandas_dates(name: str, first: str) -> str:
    """Code making dates of a pandas column of text; in ISO 8601, of several zones and precisions."""
    iso = ", format='ISO8601', utc=True" if _ISO_DATE.match(first) else ""
    return f"pandas.to_datetime(frame[{name!r}]{iso})"


def times_ns(frame: Any, name: str, unit: str) -> NDArray[np.int64]:
    """A column of times as ns, int64 (rows): dates, or numbers in `unit`.

    Raises:
        HharError: neither type, missing values, or numbers too large for the unit.
    """
    if not isinstance(unit, str) or unit not in UNITS_NS:
        raise HharError(
            f"time_unit: must be one of {', '.join(UNITS_NS)}, is {shown(unit)}; s is the default"
        )
    refuse_missing(frame, name)
    column = frame[name]
    if hasattr(column, "dt") and getattr(column.dtype, "tz", None) is not None:  # pandas; Polars gives UTC
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    values = _values(column, name)
    if values.dtype.kind in "mM":
        cast = values.astype(f"{values.dtype.kind}8[ns]")
        if (cast.astype(values.dtype) != values).any():  # NumPy lets them run over
            raise HharError(f"{name}: dates must be from 1678 to 2262, are not; fix them, or give numbers")
        return cast.astype(np.int64)
    if values.dtype.kind not in "fiu":
        raise HharError(
            f"{name}: must hold dates or numbers, holds {column.dtype}; {_way_to_times(frame, name, values)}"
        )
    limit = 9.2e18 / UNITS_NS[unit]
    magnitudes = np.abs(values.astype(np.float64))
    if not (magnitudes < limit).all():
        raise HharError(
            f"{name}: times must be below {limit:.0e} {unit}, are up to {magnitudes.max():.3g}; are they "
            "in ms or ns? name it: time_unit='ns'"
        )
    if values.dtype.kind == "f":
        return np.rint(values.astype(np.float64) * UNITS_NS[unit]).astype(np.int64)
    return values.astype(np.int64) * UNITS_NS[unit]
