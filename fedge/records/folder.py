"""The place of a run: its folder under `runs-dir`, the link `latest`, and what goes when the run ends."""

import errno
import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from fedge.config.option import ConfigError
from fedge.process import exits
from fedge.process.identity import has_ended

logger = logging.getLogger(__name__)


def create_run_folder(runs_dir: str, name: str, seed: int) -> Path:
    """Make ``runs_dir/name`` (date, time and seed without a name) and point ``runs_dir/latest`` at it.

    Raises:
        ConfigError: a named run is already there (nothing is overwritten), or the folder cannot be made.
    """
    parent = Path(runs_dir)
    refuse_taken_name(runs_dir, name)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        if name:
            folder = parent / name
            folder.mkdir()
        else:
            folder = _fresh_folder(parent, f"{datetime.now():%Y%m%d-%H%M%S}-seed{seed}")
    except OSError as error:
        raise ConfigError(
            f"runs-dir must be a writable folder, but {error.filename}: {error.strerror}; "
            f"choose another runs-dir"
        ) from error
    point_latest(folder)
    return folder.absolute()


def refuse_taken_name(runs_dir: str, name: str) -> None:
    """Raise ConfigError when a run of that name is already there; an empty name is never taken."""
    folder = Path(runs_dir) / name
    if name and os.path.lexists(folder):
        raise ConfigError(f"run-name must be new, but {folder} exists; choose another or leave it empty")


def _fresh_folder(parent: Path, stem: str) -> Path:
    """Make ``stem``, or ``stem-2``, ``stem-3``, … when runs start in the same second."""
    for number in range(1, 1000):
        folder = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            continue
    raise FileExistsError(errno.EEXIST, "it and 998 more exist", str(parent / stem))


def point_latest(folder: Path) -> None:
    """Let ``latest`` beside `folder` point at it; a file system without links goes without it."""
    parent = folder.parent
    link = parent / f".latest-{os.getpid()}-{folder.name}"
    try:
        link.symlink_to(folder.name)
        link.replace(parent / "latest")
    except OSError as error:
        logger.warning("cannot point %s at %s: %s", parent / "latest", folder.name, error)
        link.unlink(missing_ok=True)


def remove_client_data(folder: Path) -> None:
    """Remove the run's copy of the client windows, also what an interrupted write left."""
    for path in (folder, folder.with_name(folder.name + ".tmp")):
        shutil.rmtree(path, ignore_errors=True)


MANIFEST = "manifest.json"
_STATUSES = ("running", "completed", "partial", "failed")


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Replace a run's manifest as a whole."""
    write_whole(folder / MANIFEST, manifest, indent=2)


def write_whole(path: Path, value: Any, indent: int | None = None) -> None:
    """Write a small JSON file as a whole: whoever reads it sees the old or the new one."""
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        temporary.write_text(json.dumps(value, indent=indent) + "\n", encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return a run's manifest, with `status`, `exit_code` and, if it failed, `reason` as they are now.

    A process that is killed cannot write that it ended: a run that says "running" and whose process is gone
    is returned as failed.

    Raises:
        ConfigError: there is no such run, or its manifest is damaged.
    """
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"a run folder must hold {MANIFEST}, but {path}: {error.strerror}; name another run"
        ) from error
    except (ValueError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("status") not in _STATUSES:
        raise ConfigError(
            f"{MANIFEST} must be a run's manifest, but {path} is damaged; look into the folder by hand"
        )
    process = manifest.get("process")
    if manifest["status"] == "running" and isinstance(process, Mapping) and has_ended(process):
        manifest.update(
            status="failed",
            exit_code=exits.FAILED,
            reason=f"died: process {process['pid']} is gone without a word (killed, no memory, reboot)",
        )
    code = manifest.get("exit_code")
    if type(code) is not int or manifest["status"] == "running":
        manifest["exit_code"] = exits.BY_STATUS[manifest["status"]]
    return manifest


def client_data_folder(folder: Path, resumed: int) -> Path:
    """Return where the client windows of a run lie that was resumed `resumed` times.

    Each time elsewhere: a worker that outlives a killed run must not write into the next one's data.
    """
    return folder / (f"data-{resumed}" if resumed else "data")


def data_folders(folder: Path) -> list[Path]:
    """Return all that `client_data_folder` has named in a run folder and that is there, also half written."""
    found = {path.with_name(path.name.removesuffix(".tmp")) for path in folder.glob("data*")}
    return sorted(path for path in found if re.fullmatch(r"data(-\d+)?", path.name))


def short(folder: Path) -> str:
    """Return a folder relative to the working directory where it lies below that."""
    relative = os.path.relpath(folder)
    outside = relative == os.pardir or relative.startswith(os.pardir + os.sep)
    return str(folder) if outside else relative
