"""Raw folder → windows: phones, then watches, one (user, device) at a time to hold the samples only once."""

from __future__ import annotations

from pathlib import Path

from hhar.errors import HharError
from hhar.facts import RAW_FILES
from hhar.progress import ProgressCallback, no_progress
from hhar.raw.parse import Pieces, read_raw, recordings_of
from hhar.windows.cut import WindowBuilder, WindowSpec
from hhar.windows.window_file import Windows

DEVICE_GROUPS = {"phones": ("phones",), "watches": ("watches",), "all": ("phones", "watches")}


def prepare(
    raw_folder: str | Path, spec: WindowSpec, devices: str = "phones", report: ProgressCallback = no_progress
) -> Windows:
    """Windows of all users from HHAR's raw CSV files.

    Args:
        raw_folder: folder with the CSV files, at any depth.
        spec: sensors, rate, window and stride.
        devices: "phones", "watches" or "all".
        report: called with the bytes read and the devices done.

    Raises:
        HharError: a file is missing or malformed, or no recording yields a window.
    """
    if devices not in DEVICE_GROUPS:
        raise HharError(
            f"devices: must be phones, watches or all, but is {devices!r}; choose one of the three"
        )
    groups = DEVICE_GROUPS[devices]
    names = [RAW_FILES[group, sensor] for group in groups for sensor in spec.sensor_names]
    files = find_raw_files(raw_folder, names)
    builder = WindowBuilder(spec)
    for group in groups:
        pieces_by_sensor = {
            sensor: read_raw(files[RAW_FILES[group, sensor]], report) for sensor in spec.sensor_names
        }
        _add_devices(builder, pieces_by_sensor, f"windows of {group}", report)
    return builder.finish()


def find_raw_files(raw_folder: str | Path, names: list[str]) -> dict[str, Path]:
    """Path of each named file under `raw_folder`; of several, the one nearest to the top."""
    folder = Path(raw_folder)
    if not folder.is_dir():
        raise HharError(
            f"{folder}: folder with HHAR's raw CSV files must exist; fetch it with `hhar download`"
        )
    paths: dict[str, Path] = {}
    for name in names:
        candidates = [path for path in folder.rglob(name) if path.is_file() and "__MACOSX" not in path.parts]
        if not candidates:
            raise HharError(
                f"{folder}: must hold {name}, but does not; fetch it with `hhar download` or choose other "
                "--devices/--sensors"
            )
        paths[name] = min(candidates, key=lambda path: (len(path.parts), str(path)))
    return paths


def _add_devices(
    builder: WindowBuilder, pieces_by_sensor: dict[str, Pieces], task: str, report: ProgressCallback
) -> None:
    keys = sorted({key for pieces in pieces_by_sensor.values() for key in pieces})
    for done, (user, device) in enumerate(keys):
        report(task, done, len(keys), "recordings")
        recordings = []
        for sensor, pieces in pieces_by_sensor.items():
            device_pieces = pieces.pop((user, device), None)
            if device_pieces:
                recordings.extend(recordings_of(user, device, sensor, device_pieces))
        builder.add(recordings)
    report(task, len(keys), len(keys), "recordings")
