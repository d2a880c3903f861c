"""UCI HAR (Anguita et al. 2013): 30 people, six activities, a Galaxy S II at the waist, 50 Hz.

Two forms exist. *Windows* ("UCI HAR Dataset"): 10,299 half-overlapping windows of 128 samples, in `train/`
and `test/`, filtered. Neighbours with a common half are joined into recordings again, so any window length
can be cut, and 2.56 s with a stride of 1.28 s gives the published windows; a session is a run of rows of one
person and one activity. *Recordings* ("HAPT Data Set", Reyes-Ortiz et al. 2015): the same people, raw, with
the bounds of every activity in `labels.txt`; its postural transitions are left out, and both forms have six
classes.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedge.datasets.cards import DataCard, RemoteFile
from fedge.datasets.tables import read_matrix, read_whole
from hhar.errors import HharError
from hhar.progress import ProgressCallback, no_progress
from hhar.windows.cut import WindowBuilder, WindowSpec
from hhar.windows.recordings import Recording
from hhar.windows.window_file import Windows

CLASSES = ("walk", "upstairs", "downstairs", "sit", "stand", "lie")  # 1 to 6 in the files
CHANNELS = ("acc_x", "acc_y", "acc_z", "gyro_x", "gyro_y", "gyro_z")
RATE_HZ = 50.0
SAMPLES, HALF = 128, 64
_SIGNALS = [f"{signal}_{axis}" for signal in ("total_acc", "body_gyro") for axis in "xyz"]
_RAW = re.compile(r"acc_exp(\d+)_user(\d+)\.txt")
_STEP_NS = 20_000_000

CARD = DataCard(
    name="uci-har",
    title="Human Activity Recognition Using Smartphones (UCI HAR)",
    users=30,
    classes=CLASSES,
    rate_hz=RATE_HZ,
    units="acceleration with gravity in g, angular velocity in rad/s",
    licence="CC BY 4.0",
    citation="Anguita, Ghio, Oneto, Parra, Reyes-Ortiz: A Public Domain Dataset for Human Activity "
    "Recognition Using Smartphones, ESANN 2013",
    source="https://archive.ics.uci.edu/dataset/240 (doi:10.24432/C54S4K)",
    files=(
        RemoteFile(
            "https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip",
            "uci-har.zip",
            61,
            "c00b803081a5c797cd5e4b83700a9810b38d53d9d84e01917e090e1fdbc81031",
        ),
    ),
    spec=WindowSpec("imu", RATE_HZ, 2.56, 1.28, CHANNELS),
)


def read(folder: Path, spec: WindowSpec, report: ProgressCallback = no_progress) -> Windows:
    """Windows of either form.

    Raises:
        HharError: neither is there, or a file is not as published.
    """
    builder = WindowBuilder(spec, CLASSES)
    signals = sorted(folder.rglob("Inertial Signals/total_acc_x_*.txt"))
    raw = sorted(path for path in folder.rglob("acc_exp*_user*.txt") if _RAW.fullmatch(path.name))
    if signals:
        _add_windows(builder, signals, report)
    elif raw:
        _add_raw(builder, raw, report)
    else:
        features = any(folder.rglob("X_train.txt"))
        raise HharError(
            f"{folder}: must hold train/Inertial Signals/total_acc_x_train.txt or RawData/acc_exp01_user01"
            f".txt, holds {'features only (X_train.txt)' if features else 'neither'}; fetch it with `fedge "
            "datasets download uci-har`"
        )
    return builder.finish()


def _add_windows(builder: WindowBuilder, files: list[Path], report: ProgressCallback) -> None:
    """Add recordings joined from published windows."""
    bouts: Counter[tuple[str, str]] = Counter()
    for done, first in enumerate(files):
        report("reading windows", done, len(files), "parts")
        part = first.stem.removeprefix("total_acc_x_")
        folder = first.parent.parent
        x = np.stack(
            [read_matrix(first.with_name(f"{name}_{part}.txt"), SAMPLES) for name in _SIGNALS], axis=2
        ).astype(np.float32)
        person = read_whole(folder / f"subject_{part}.txt", 1)[:, 0]
        label = read_whole(folder / f"y_{part}.txt", 1)[:, 0]
        _refuse_unequal_rows(folder, x, person, label)
        ends = np.flatnonzero((np.diff(person) != 0) | (np.diff(label) != 0)) + 1
        for start, end in pairwise([0, *ends.tolist(), len(x)]):
            user, activity = f"{person[start]:02d}", CLASSES[label[start] - 1]
            bouts[user, activity] += 1
            session = f"{user}/{activity}/{bouts[user, activity]:02d}"
            for row, values in stitch_recordings(x[start:end]):
                builder.add([_recording(user, activity, session, (start + row) * HALF, values)])
    report("reading windows", len(files), len(files), "parts")


def stitch_recordings(x: NDArray[np.float32]) -> list[tuple[int, NDArray[np.float32]]]:
    """(first row, recording) of every run of half-overlapping windows.

    Args:
        x: float32 (windows, 128 samples, channels) in order of time; a recording is (samples, channels).
    """
    joined = (x[:-1, HALF:] == x[1:, :HALF]).all(axis=(1, 2))
    bounds = [0, *(np.flatnonzero(~joined) + 1).tolist(), len(x)]
    return [(a, np.concatenate([x[a], *x[a + 1 : b, HALF:]])) for a, b in pairwise(bounds)]


def _add_raw(builder: WindowBuilder, files: list[Path], report: ProgressCallback) -> None:
    """Add every labelled stretch of the raw recordings."""
    labels = read_whole(files[0].with_name("labels.txt"), 5)
    bouts: Counter[tuple[str, str]] = Counter()
    for done, path in enumerate(files):
        report("reading recordings", done, len(files), "recordings")
        name = _RAW.fullmatch(path.name)
        assert name is not None
        gyro = path.with_name(path.name.replace("acc_", "gyro_", 1))
        signals = [read_matrix(path, 3), read_matrix(gyro, 3)]
        length = min(map(len, signals))
        values = np.concatenate([part[:length] for part in signals], axis=1).astype(np.float32)
        user = f"{int(name[2]):02d}"
        for _, _, label, start, end in labels[labels[:, 0] == int(name[1])].tolist():
            if 1 <= label <= len(CLASSES) and 1 <= start < end:
                activity = CLASSES[label - 1]
                bouts[user, activity] += 1
                session = f"{user}/{activity}/{bouts[user, activity]:02d}"
                if len(piece := values[start - 1 : end]):
                    builder.add([_recording(user, activity, session, start, piece)])
    report("reading recordings", len(files), len(files), "recordings")


def _recording(user: str, activity: str, session: str, start: int, values: NDArray[np.float32]) -> Recording:
    """Samples 20 ms apart, from sample `start` on."""
    number = start + np.arange(len(values), dtype=np.int64)
    return Recording(user, "", "imu", activity, number * 20, number * _STEP_NS, values, session)


def _refuse_unequal_rows(
    folder: Path, x: NDArray[np.float32], person: NDArray[np.int64], label: NDArray[np.int64]
) -> None:
    if not len(x) == len(person) == len(label):
        raise HharError(
            f"{folder}: signals, subject and y must have as many rows, have {len(x)}, {len(person)}, "
            f"{len(label)}; unpack the archive again"
        )
    if label.min() < 1 or label.max() > len(CLASSES):
        raise HharError(
            f"{folder}: y must lie in 1..6, is {label.min()}..{label.max()}; use the published files"
        )
