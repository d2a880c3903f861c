"""Makes two sources from one: half of the users with their accelerometer, the others with their gyroscope.

    python -m benchmarks.grouping.sensors FILE.npz ACCELEROMETERS.npz GYROSCOPES.npz

Both files have three channels of the same names, as if the sensor had not been recorded: a difference between
users, not planted, for `four-sensors` of `python -m benchmarks.grouping.truth`.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.commands import exit_with
from hhar.windows.window_file import Windows, load_windows, save_windows

AXES = ("acc_x", "acc_y", "acc_z")


def one_sensor(windows: Windows, users: Sequence[str], first: int) -> Windows:
    """Three channels, from `first` on, of some users' windows, with names of an accelerometer.

    Args:
        windows: windows with the channels of both sensors.
        users: users whose windows are kept.
        first: 0 for the accelerometer, 3 for the gyroscope.
    """
    rows = np.isin(windows.user, users)
    return replace(
        windows,
        x=np.ascontiguousarray(windows.x[rows, first : first + 3]),
        y=windows.y[rows],
        user=windows.user[rows],
        device=None if windows.device is None else windows.device[rows],
        session=None if windows.session is None else windows.session[rows],
        channels=AXES,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path, nargs=2, metavar="OUT")
    options = parser.parse_args(arguments)
    windows = load_windows(options.file)
    if len(windows.channels) != 6:
        raise SystemExit(f"{options.file} must have six channels, of two sensors, but has {windows.channels}")
    users = sorted(set(windows.user.tolist()))
    for number, path in enumerate(options.out):
        part = one_sensor(windows, users[number::2], 3 * number)
        save_windows(path, part)
        print(f"{path}: {len(part.x)} windows of {len(set(part.user.tolist()))} users")


if __name__ == "__main__":
    exit_with(main)
