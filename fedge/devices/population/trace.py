"""Devices from the user's own file, CSV or Parquet: a row per device, with the fields of a fleet as columns.

    seconds_per_window,seconds_per_job,down_bytes_s,up_bytes_s,down_s,up_s
    0.02,0,1000000,500000,0.05,0.05

Missing columns count as 0 seconds, or as instantaneous transfers; one of the first two is required. A column
`device` is ignored, for readers of the file. If there are fewer rows than devices, rows are used again in
turn, after a shuffle. `fedge.data.table_files` describes the formats.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fedge.config.registers.option import ConfigError, nearest, shown
from fedge.data.table_files import table_of
from fedge.devices.population.fleet import LONGEST_S, Fleet

_DEFAULTS = {
    "seconds_per_window": 0.0,
    "seconds_per_job": 0.0,
    "down_bytes_s": math.inf,
    "up_bytes_s": math.inf,
    "down_s": 0.0,
    "up_s": 0.0,
}
_IGNORED = "device"  # a name for readers of the file


def trace(
    owner: np.ndarray, rng: np.random.Generator, path: str = "", jitter: float = 0.0, shuffle: bool = True
) -> Fleet:
    """The devices of a CSV or Parquet file.

    Args:
        owner: (N,) user of each device.
        rng: shuffles the rows.
        path: path of the file.
        jitter: standard deviation of the logarithm of a job's training time.
        shuffle: False to use row i for device i.

    Raises:
        ConfigError: the file cannot be read, or has no such numbers.
    """
    rows = read_trace(path)
    order = rng.permutation(len(rows)) if shuffle else np.arange(len(rows))
    table = np.array(rows, dtype=np.float64)[order][np.arange(len(owner)) % len(rows)]
    per_window, per_job, down, up, down_s, up_s = table.T.copy()
    return Fleet(per_window, per_job, down, up, down_s, up_s, sigma=jitter)


def read_trace(path: str) -> list[list[float]]:
    """The rows of a trace in the order of the columns above, at least one; errors as in `read_table`."""
    return read_table(path, _DEFAULTS, ("seconds_per_window", "seconds_per_job"))


def read_table(path_text: str, defaults: Mapping[str, float], required: Sequence[str]) -> list[list[float]]:
    """The rows of a CSV or Parquet file with a row per device, at least one, in the order of `defaults`.

    Args:
        path_text: path of the file.
        defaults: column → default value; infinity marks columns whose numbers must be above 0.
        required: columns of which at least one is required.

    Raises:
        ConfigError: the file is unreadable, has other columns, or a cell is not a number.
    """
    if not isinstance(path_text, str) or not path_text:
        raise ConfigError(
            f"devices.preset-args.path must name a CSV or Parquet file with a row per device, but is "
            f'{shown(path_text)}; set for example devices.preset-args.path="devices.csv"'
        )
    path, option = Path(path_text), "devices.preset-args.path"
    header, table = table_of(path, option)
    _refuse_other_columns(list(header), path, tuple(defaults), required)
    rows = [
        [_parse_number(row, name, default, location) for name, default in defaults.items()]
        for location, row in table
    ]
    if not rows:
        raise ConfigError(
            f"devices.preset-args.path must have a row per device, but {path} has none; add one"
        )
    return rows


def _refuse_other_columns(
    header: Sequence[str], path: Path, columns: Sequence[str], required: Sequence[str]
) -> None:
    """Raise ConfigError for an unknown column, or if no column gives job durations."""
    for name in header:
        if ";" in name or "\t" in name:
            raise ConfigError(
                f"devices.preset-args.path must have commas between its columns, but {path} begins with "
                f"{shown(name)}; write it with commas, and with decimal points in its numbers"
            )
        if name not in (*columns, _IGNORED):
            raise ConfigError(
                f"devices.preset-args.path must have the columns {', '.join(columns)}, but {path} has "
                f"{shown(name)}{nearest(name, columns) or '; rename it'}"
            )
    if not set(required) & set(header):
        number = "neither" if len(required) > 1 else "none"
        raise ConfigError(
            f"devices.preset-args.path must have a column {' or '.join(required)}, but {path} has {number}; "
            f"add one"
        )


def _parse_number(row: Mapping[str | None, str], name: str, default: float, location: str) -> float:
    """A cell as a number, or the default if the column is absent."""
    if name not in row:
        return default
    text = row.get(name)
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if math.isinf(default):
        is_valid, rule = value > 0, "numbers above 0 there"
    else:
        is_valid, rule = 0 <= value <= LONGEST_S, f"numbers of 0 to {LONGEST_S:g} there"
    if not is_valid:
        raise ConfigError(
            f"devices.preset-args.path must have {rule}, but {location}, {name} is "
            f"{shown(text) if text else 'empty'}; fix it"
        )
    return value
