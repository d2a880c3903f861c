"""MotionSense (Malekzadeh et al. 2018): 24 people, six activities in 15 trials, an iPhone 6s in the pocket.

`A_DeviceMotion_data/dws_1/sub_1.csv` is trial 1 (downstairs) of person 1, a row every 20 ms without a time.
Gravity and the user's acceleration are separate columns; their sum, in g, is the acceleration of other data
sets. Windows are in the order of the files' names, as in the file behind docs/results.md, and a session is
one trial of one person.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from fedge.datasets.cards import DataCard, RemoteFile
from fedge.datasets.tables import read_columns
from hhar.errors import HharError
from hhar.progress import ProgressCallback, no_progress
from hhar.windows.cut import WindowBuilder, WindowSpec
from hhar.windows.recordings import Recording
from hhar.windows.window_file import Windows

CODES = {"dws": "downstairs", "ups": "upstairs", "wlk": "walk", "jog": "jog", "std": "stand", "sit": "sit"}
CHANNELS = ("acc_x", "acc_y", "acc_z", "gyr_x", "gyr_y", "gyr_z")
RATE_HZ = 50.0
_TRIAL = re.compile(r"(dws|ups|wlk|jog|std|sit)_(\d{1,2})")
_PERSON = re.compile(r"sub_(\d{1,3})\.csv")
_AXES = [f"{sensor}.{axis}" for sensor in ("gravity", "userAcceleration", "rotationRate") for axis in "xyz"]

CARD = DataCard(
    name="motionsense",
    title="MotionSense",
    users=24,
    classes=tuple(CODES.values()),
    rate_hz=RATE_HZ,
    units="acceleration with gravity in g, angular velocity in rad/s",
    licence="MIT",
    citation="Malekzadeh, Clegg, Cavallaro, Haddadi: Protecting Sensory Data against Sensitive Inferences, "
    "W-P2DS 2018, doi:10.1145/3195258.3195260",
    source="https://github.com/mmalekzadeh/motion-sense",
    files=(
        RemoteFile(
            "https://github.com/mmalekzadeh/motion-sense/raw/master/data/A_DeviceMotion_data.zip",
            "A_DeviceMotion_data.zip",
            69,
        ),
    ),
    spec=WindowSpec("imu", RATE_HZ, 2.56, 1.28, CHANNELS),
)


def read(folder: Path, spec: WindowSpec, report: ProgressCallback = no_progress) -> Windows:
    """Windows of every trial under `folder`.

    Raises:
        HharError: no trial is there, or a file is not as published.
    """
    files = find_trials(folder)
    builder = WindowBuilder(spec, CARD.classes, sort=False)
    for done, (code, trial, person, path) in enumerate(files):
        report("reading trials", done, len(files), "trials")
        builder.add([_recording(code, trial, person, path)])
    report("reading trials", len(files), len(files), "trials")
    return builder.finish()


def find_trials(folder: Path) -> list[tuple[str, str, str, Path]]:
    """(activity code, trial, person, file) of every trial, in the order of their names.

    Only folder A counts; the accelerometer's and gyroscope's own recordings (folders B and C) are ignored.
    """
    trials = []
    for path in folder.rglob("sub_*.csv"):
        trial, person = _TRIAL.fullmatch(path.parent.name), _PERSON.fullmatch(path.name)
        if trial and person and "__MACOSX" not in path.parts:
            trials.append((trial[1], trial[2], person[1], path))
    device_motion = [entry for entry in trials if entry[3].parent.parent.name.startswith("A_DeviceMotion")]
    if not trials:
        raise HharError(
            f"{folder}: must hold files like A_DeviceMotion_data/dws_1/sub_1.csv, holds none; fetch them "
            "with `fedge datasets download motionsense`"
        )
    return sorted(device_motion or trials, key=lambda entry: (entry[3].parent.name, entry[3].name))


def _recording(code: str, trial: str, person: str, path: Path) -> Recording:
    """One trial: six channels, sampled evenly."""
    table = read_columns(path, _AXES)
    values = np.concatenate([table[:, :3] + table[:, 3:6], table[:, 6:]], axis=1).astype(np.float32)
    number = np.arange(len(values), dtype=np.int64)
    user = f"{int(person):02d}"
    session = f"{user}-{int(trial):02d}"
    return Recording(user, "", "imu", CODES[code], number * 20, number * 20_000_000, values, session)
