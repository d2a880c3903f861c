"""PAMAP2 (Reiss and Stricker 2012): nine people, twelve activities, sensors at hand, chest and ankle, 100 Hz.

`Protocol/subject101.dat` has 54 columns between spaces: time in s, activity, heart rate, then 17 of each
sensor: temperature, acceleration (±16 g), acceleration (±6 g, saturated), gyroscope, magnetometer,
orientation (invalid). Acceleration (±16 g) and gyroscope are used, as the authors advise. NaN marks a lost
radio packet: such rows are left out, separately for each sensor, and a loss of more than a second is a gap
without interpolation. Activity 0 is the time between activities, and is left out.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedge.datasets.cards import DataCard, RemoteFile
from fedge.datasets.tables import LARGEST
from hhar.errors import HharError
from hhar.progress import ProgressCallback, no_progress
from hhar.regular import refuse_irregular
from hhar.windows.cut import WindowBuilder, WindowSpec
from hhar.windows.recordings import Recording
from hhar.windows.window_file import Windows

ACTIVITIES = {
    1: "lie", 2: "sit", 3: "stand", 4: "walk", 5: "run", 6: "cycle", 7: "nordic walk", 12: "upstairs",
    13: "downstairs", 16: "vacuum clean", 17: "iron", 24: "rope jump",
}  # fmt: skip
NUM_COLUMNS = 54
PLACES = {"hand": 3, "chest": 20, "ankle": 37}  # first of a sensor's 17 columns
_USED_COLUMNS = (1, 2, 3, 7, 8, 9)  # of the 17: acceleration ±16 g, gyroscope
CHANNELS = tuple(f"{place}_{name}_{axis}" for place in PLACES for name in ("acc", "gyro") for axis in "xyz")
_LONGEST_S = 1e9  # of a time
_FILE = re.compile(r"subject(\d{3})\.dat")

CARD = DataCard(
    name="pamap2",
    title="PAMAP2 Physical Activity Monitoring",
    users=9,
    classes=tuple(ACTIVITIES.values()),
    rate_hz=100.0,
    units="acceleration with gravity in m/s², angular velocity in rad/s",
    licence="CC BY 4.0",
    citation="Reiss, Stricker: Introducing a New Benchmarked Dataset for Activity Monitoring, ISWC 2012",
    source="https://archive.ics.uci.edu/dataset/231 (doi:10.24432/C5NW2H)",
    files=(
        RemoteFile(
            "https://archive.ics.uci.edu/static/public/231/pamap2+physical+activity+monitoring.zip",
            "pamap2.zip",
            690,
        ),
    ),
    spec=WindowSpec("hand+chest+ankle", 50.0, 2.56, 1.28, CHANNELS),
)


def read(folder: Path, spec: WindowSpec, report: ProgressCallback = no_progress) -> Windows:
    """Windows of the protocol's recordings; those of the folder Optional are left out.

    Raises:
        HharError: no recording is there, or one is not as published.
    """
    files = sorted(
        path
        for path in folder.rglob("subject*.dat")
        if _FILE.fullmatch(path.name) and "__MACOSX" not in path.parts and "Optional" not in path.parts
    )
    if not files:
        raise HharError(
            f"{folder}: must hold files like Protocol/subject101.dat, holds none; fetch them with `fedge "
            "datasets download pamap2`"
        )
    builder = WindowBuilder(spec, CARD.classes)
    for done, path in enumerate(files):
        report("reading people", done, len(files), "people")
        name = _FILE.fullmatch(path.name)
        assert name is not None
        _add_person(builder, name[1], _table(path))
    report("reading people", len(files), len(files), "people")
    return builder.finish()


def _add_person(builder: WindowBuilder, user: str, table: NDArray[np.float64]) -> None:
    """Add every run of one activity: rows of time, activity, and six columns of each sensor."""
    time_ns = np.rint(table[:, 0] * 1e9).astype(np.int64)
    label = table[:, 1].astype(np.int64)
    cuts = (np.flatnonzero(np.diff(label)) + 1).tolist()
    for start, end in pairwise([0, *cuts, len(table)]):
        activity = ACTIVITIES.get(int(label[start]))
        if activity is None:
            continue
        recordings = []
        for place, sensor in enumerate(PLACES):
            values = table[start:end, 2 + 6 * place : 8 + 6 * place].astype(np.float32)
            present = np.isfinite(values).all(axis=1)
            if present.any():
                times = time_ns[start:end][present]
                recordings.append(
                    Recording(user, "", sensor, activity, times // 1_000_000, times, values[present])
                )
        builder.add(recordings)


def _table(path: Path) -> NDArray[np.float64]:
    """Time, activity and the used columns of a file, float64 (rows, 20), NaN where one was lost."""
    import polars as pl

    refuse_irregular(path)
    columns = [0, 1, *(first + place for first in PLACES.values() for place in _USED_COLUMNS)]
    schema = {f"column_{place}": pl.Float64 for place in range(NUM_COLUMNS)}
    try:
        frame = pl.read_csv(
            path, has_header=False, separator=" ", schema=schema, null_values=None, quote_char=None,
            columns=columns,
        )  # fmt: skip
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0][:200]
        raise HharError(
            f"{path}: must hold {NUM_COLUMNS} numbers a row between spaces ({reason}); unpack it again"
        ) from error
    if not len(frame):
        raise HharError(f"{path}: must hold rows of numbers, holds none; unpack it again")
    null = frame.select(pl.any_horizontal(pl.all().is_null()).alias("null"))["null"].to_numpy()
    table = frame.select([f"column_{place}" for place in columns]).to_numpy()
    time_s, label = table[:, 0], table[:, 1]
    is_valid = (np.abs(time_s) <= _LONGEST_S) & (np.abs(label) <= LARGEST) & (label == np.rint(label))
    bad = np.flatnonzero(null | ~is_valid | (np.abs(table) > LARGEST).any(axis=1))  # NaN: a lost packet
    if len(bad):
        raise HharError(
            f"{path}, line {bad[0] + 1}: must be a whole row of {NUM_COLUMNS} numbers, is not ({len(bad)} of "
            f"{len(table)} rows); unpack it again, or take the row out"
        )
    return np.asarray(table, dtype=np.float64)
