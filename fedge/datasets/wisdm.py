"""WISDM v1.1 (Kwapisz et al. 2010): 36 people, six activities, a phone's accelerometer at 20 Hz.

The file `WISDM_ar_v1.1_raw.txt` has records `user,activity,time,x,y,z;`. Its lines are irregular: some hold
two records, some end in `,;`, some lack z, some have time 0. A record ends at `;` or at the end of a line;
incomplete records are left out and counted. Time is in ns since the phone was started, and may run backwards
or jump: a recording is a run of one person and activity, cut at such jumps.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from fedge.datasets.cards import DataCard, RemoteFile
from fedge.datasets.tables import LARGEST
from hhar.errors import HharError
from hhar.progress import ProgressCallback, no_progress
from hhar.regular import open_regular
from hhar.windows.cut import WindowBuilder, WindowSpec
from hhar.windows.recordings import Recording
from hhar.windows.window_file import Windows

FILE = "WISDM_ar_v1.1_raw.txt"
CLASSES = ("Walking", "Jogging", "Upstairs", "Downstairs", "Sitting", "Standing")
NAMES = ("walk", "jog", "upstairs", "downstairs", "sit", "stand")
CHANNELS = ("acc_x", "acc_y", "acc_z")
RATE_HZ = 20.0
MOST_BROKEN = 0.01  # largest share of omitted records; one in ten thousand as published
_BACKWARDS_S = 1.0

CARD = DataCard(
    name="wisdm",
    title="WISDM activity prediction v1.1",
    users=36,
    classes=NAMES,
    rate_hz=RATE_HZ,
    units="acceleration with gravity in m/s²",
    licence="none stated; its authors ask to be cited, and that readme.txt goes with every copy",
    citation="Kwapisz, Weiss, Moore: Activity Recognition using Cell Phone Accelerometers, SensorKDD 2010",
    source="https://www.cis.fordham.edu/wisdm/dataset.php",
    files=(
        RemoteFile(
            "https://www.cis.fordham.edu/wisdm/includes/datasets/latest/WISDM_ar_latest.tar.gz",
            "WISDM_ar_latest.tar.gz",
            11,
        ),
    ),
    spec=WindowSpec("acc", RATE_HZ, 4.0, 2.0, CHANNELS),
)

_Row = tuple[str, str, int, float, float, float]


def read(folder: Path, spec: WindowSpec, report: ProgressCallback = no_progress) -> Windows:
    """Windows of all people.

    Raises:
        HharError: the file is not there, or is another one.
    """
    path = _find(folder)
    rows, broken, first_line = _read_records(path, report)
    total = len(rows) + broken
    if not rows or broken > max(1, MOST_BROKEN * total):
        raise HharError(
            f"{path}{f', line {first_line}' if first_line else ''}: records must be "
            f"user,activity,time,x,y,z; but {broken} of {total} are not; use {FILE} as published"
        )
    builder = WindowBuilder(spec, NAMES)
    for group in _recordings(rows):
        builder.add([group])
    windows = builder.finish()
    windows.about["left_out"] = f"{broken} of {total} records that were not whole"  # type: ignore[index]
    return windows


def _find(folder: Path) -> Path:
    found = sorted(path for path in folder.rglob(FILE) if "__MACOSX" not in path.parts)
    if found:
        return found[0]
    has_newer = any(folder.rglob("data_*_accel_phone.txt"))
    raise HharError(
        f"{folder}: must hold {FILE}, holds {'the set of 2019 with 18 activities' if has_newer else 'none'}; "
        "fetch it with `fedge datasets download wisdm`"
    )


def _read_records(path: Path, report: ProgressCallback) -> tuple[list[_Row], int, int]:
    """Whole records, the number of broken ones, and the line of the first of them (0: none)."""
    rows: list[_Row] = []
    broken = first_line = done = 0
    with io.TextIOWrapper(open_regular(path), encoding="utf-8", errors="replace") as stream:
        size = os.fstat(stream.fileno()).st_size
        for number, line in enumerate(stream, start=1):
            done += len(line)
            if number % 100_000 == 0:
                report("reading records", done, size)
            for record in line.split(";"):
                if text := record.strip().strip(","):
                    row = _parse_record(text)
                    if row is not None:
                        rows.append(row)
                    else:
                        broken, first_line = broken + 1, first_line or number
    report("reading records", size, size)
    return rows, broken, first_line


def _parse_record(text: str) -> _Row | None:
    """One record, or None if incomplete."""
    fields = [field.strip() for field in text.split(",")]
    if len(fields) != 6 or fields[1] not in CLASSES or not fields[0].isdecimal() or len(fields[0]) > 9:
        return None
    try:
        time_ns, x, y, z = int(fields[2]), *map(float, fields[3:])
    except ValueError:
        return None
    is_valid = 0 < time_ns < 2**62 and all(abs(value) <= LARGEST for value in (x, y, z))  # and no NaN
    return (fields[0], fields[1], time_ns, x, y, z) if is_valid else None


def _recordings(rows: list[_Row]) -> Iterator[Recording]:
    """Yield runs of one person and activity, cut where time runs back by more than a second."""
    people, activities = [row[0] for row in rows], [row[1] for row in rows]
    time_ns = np.array([row[2] for row in rows], dtype=np.int64)
    values = np.array([row[3:] for row in rows], dtype=np.float32)
    runs_back = np.diff(time_ns) < -int(_BACKWARDS_S * 1e9)
    cuts = [
        index
        for index in range(1, len(rows))
        if people[index] != people[index - 1]
        or activities[index] != activities[index - 1]
        or runs_back[index - 1]
    ]
    for start, end in pairwise([0, *cuts, len(rows)]):
        user = f"{int(people[start]):02d}"
        activity = NAMES[CLASSES.index(activities[start])]
        span = slice(start, end)
        yield Recording(user, "", "acc", activity, time_ns[span] // 1_000_000, time_ns[span], values[span])
