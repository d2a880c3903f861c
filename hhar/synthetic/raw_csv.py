"""Write the synthetic set as raw CSV in UCI's layout, to try `hhar prepare` without the download.

Numbers are printed to be read back exactly: integers in full, float32 in the shortest form that round-trips.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import polars as pl

from hhar.errors import HharError
from hhar.facts import DEVICES, RAW_COLUMNS, RAW_FILES, SENSORS
from hhar.progress import ProgressCallback, no_progress
from hhar.synthetic.generate import synthetic_recordings
from hhar.windows.recordings import Recording


def write_raw(
    folder: str | Path,
    num_users: int = 9,
    seed: int = 0,
    *,
    fraction: float = 1.0,
    report: ProgressCallback = no_progress,
) -> dict[str, int]:
    """Write the four CSV files of HHAR with synthetic rows, one user after the other.

    Args:
        folder: created if absent; files of the same names are replaced once all rows are written.
        num_users: at least 1; HHAR has 9.
        seed: seed of the synthetic set.
        fraction: share of each bout's length; 1 gives about 34 million rows and 3.3 GB.
        report: called after each user.

    Returns:
        File name → number of rows without the header.

    Raises:
        HharError: `num_users` or `fraction` is out of range.
    """
    if num_users < 1:
        raise HharError(f"num_users: must be at least 1, but is {num_users}; HHAR has 9")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    rows = dict.fromkeys(RAW_FILES.values(), 0)
    partial = {name: target / f".{name}.part" for name in rows}
    try:
        with ExitStack() as stack:
            streams = {name: stack.enter_context(path.open("wb")) for name, path in partial.items()}
            for stream in streams.values():
                stream.write((",".join(RAW_COLUMNS) + "\n").encode())
            for index in range(num_users):
                report("writing", index, num_users, "users")
                by_device = synthetic_recordings(
                    index, seed, devices="all", fraction=fraction, with_null=True
                )
                for device, recordings in by_device.items():
                    kind = "watches" if DEVICES[device].is_watch else "phones"
                    for sensor in SENSORS:
                        sensor_recordings = [
                            recording for recording in recordings if recording.sensor == sensor
                        ]
                        if sensor_recordings:
                            name = RAW_FILES[kind, sensor]
                            frame = raw_frame(sensor_recordings)
                            frame.write_csv(streams[name], include_header=False)
                            rows[name] += len(frame)
        for name, path in partial.items():
            path.replace(target / name)
    finally:
        for path in partial.values():
            with suppress(OSError):  # a full disk raises above
                path.unlink(missing_ok=True)
    report("writing", num_users, num_users, "users")
    return rows


def raw_frame(recordings: Sequence[Recording]) -> pl.DataFrame:
    """Rows of one sensor of one (user, device) in UCI's columns, in order of delivery."""
    first = recordings[0]
    sizes = [len(recording.arrival_ms) for recording in recordings]
    values = np.concatenate([recording.values for recording in recordings])
    columns = {
        "Index": np.arange(len(values)),
        "Arrival_Time": np.concatenate([recording.arrival_ms for recording in recordings]),
        "Creation_Time": np.concatenate([recording.creation_ns for recording in recordings]),
        "x": values[:, 0],
        "y": values[:, 1],
        "z": values[:, 2],
    }
    labels = pl.concat(
        [
            pl.repeat(recording.activity, size, eager=True)
            for recording, size in zip(recordings, sizes, strict=True)
        ]
    )
    return pl.DataFrame(columns).with_columns(
        User=pl.lit(first.user),
        Model=pl.lit(DEVICES[first.device].model),
        Device=pl.lit(first.device),
        gt=labels,
    )
