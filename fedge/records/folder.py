"""Folder of a run under `runs-dir`: its name, the link `latest`, and files removed when the run ends."""

import errno
import json
import logging
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError
from fedge.config.registers.own_files import has_working_folder
from fedge.process.durable import make_durable_folder, sync, write_bytes

logger = logging.getLogger(__name__)

LATEST = "latest"  # the link to the newest run
MANIFEST = "manifest.json"  # in the folder of every started run
REPORT = "report.html"
_FIRST_S, _LAST_S = -62104060800.0, 253370764800.0  # years 2 and 9999, valid in every time zone


def create_run_folder(runs_dir: str, name: str, seed: int) -> Path:
    """Create ``runs_dir/name`` (named by date, time and seed if empty), and point ``runs_dir/latest`` at it.

    Raises:
        ConfigError: a run of this name exists (nothing is overwritten), or the folder cannot be created.
    """
    parent = Path(runs_dir)
    refuse_taken_name(runs_dir, name)
    with writing_below(parent):
        make_durable_folder(parent)
        if name:
            folder = parent / name
            try:
                folder.mkdir()
            except FileExistsError:  # another run of this name was created meanwhile
                refuse_taken_name(runs_dir, name)
                raise
        else:
            folder = _create_unique_folder(parent, dated_name(seed))
        sync(parent)
    update_latest_link(folder)
    return folder.absolute()


def dated_name(seed: int, *, with_microseconds: bool = False) -> str:
    """Name of a run by date, time and seed, with microseconds if no folder is made at once."""
    now = datetime.now()
    return f"{now:%Y%m%d-%H%M%S}-seed{seed}" + (f"-{now:%f}" if with_microseconds else "")


@contextmanager
def writing_below(folder: Path) -> Iterator[None]:
    """Context that turns an OSError while writing below `folder` into a ConfigError about runs-dir."""
    try:
        yield
    except OSError as error:
        if not has_working_folder():
            raise ConfigError(
                "the working directory must exist throughout a run, but was removed, perhaps by own code; "
                "use absolute paths there instead of os.chdir"
            ) from error
        raise ConfigError(
            f"runs-dir must be a writable folder, but {error.filename or folder}: {error.strerror or error}; "
            f"choose another runs-dir"
        ) from error


def find_run(run: str, runs_dir: str | Path = "runs", name: str = "RUN") -> Path:
    """Folder of a run, given by its path or by its name under `runs_dir`.

    Args:
        run: path or name; "latest" is that of `runs_dir`, even if another folder has this name.
        runs_dir: folder of all runs.
        name: name of the argument `run` in error messages.

    Raises:
        ConfigError: there is no such folder.
    """
    candidate = Path(runs_dir) / run
    for folder in (candidate, Path(run)) if run == LATEST else (Path(run), candidate):
        if run and _is_folder(folder, name):
            return folder.resolve()
    if run == LATEST and not any(Path(runs_dir).glob(f"*/{MANIFEST}")):
        raise ConfigError(
            f"there is no run yet in {runs_dir}; start one with `fedge run`, or name its folder"
        )
    raise ConfigError(
        f"{name} must be a run folder or a name under {runs_dir}, but {run!r} is neither; "
        f"`fedge runs` lists them"
    )


def _is_folder(path: Path, name: str) -> bool:
    """Whether a path is a folder; ConfigError, with the argument's name, if this user may not look."""
    try:
        return path.is_dir()
    except PermissionError as error:
        raise ConfigError(
            f"{name} must be in folders that this user may enter, but {path}: {error.strerror or error}; "
            f"change their permissions (chmod, chown), or name another"
        ) from error
    except (OSError, ValueError):  # an impossible path: too long, or with a null character
        return False


def refuse_taken_name(runs_dir: str, name: str) -> None:
    """Raise ConfigError if a run of this name exists; an empty name is never taken."""
    folder = Path(runs_dir) / name
    if name and os.path.lexists(folder):
        raise ConfigError(f"run-name must be new, but {folder} exists; choose another, or leave it empty")


def _create_unique_folder(parent: Path, stem: str) -> Path:
    """Create ``stem``, or ``stem-2``, ``stem-3``, … for runs started in the same second."""
    for number in range(1, 1000):
        folder = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir()
            return folder
        except FileExistsError:
            continue
    raise FileExistsError(errno.EEXIST, "it and 998 more exist", str(parent / stem))


def update_latest_link(folder: Path) -> None:
    """Point ``latest`` beside `folder` at it; skipped on file systems without links."""
    parent = folder.parent
    link = parent / f".latest-{os.getpid()}-{folder.name}"
    try:
        link.symlink_to(folder.name)
        link.replace(parent / LATEST)
    except OSError as error:
        logger.warning("cannot point %s at %s: %s", parent / LATEST, folder.name, error)
        with suppress(OSError):  # a read-only disk
            link.unlink(missing_ok=True)


def remove_client_data(folder: Path) -> None:
    """Remove the run's copy of the client windows, and leftovers of interrupted writes."""
    for path in (folder, folder.with_name(folder.name + ".tmp")):
        shutil.rmtree(path, ignore_errors=True)


def write_json(path: Path, value: Any, indent: int | None = None, durably: bool = True) -> None:
    """Write a small JSON file atomically; see `fedge.process.durable.write_bytes`."""
    write_bytes(path, (json.dumps(value, indent=indent) + "\n").encode(), durably)


def client_data_folder(folder: Path, resumed: int) -> Path:
    """Folder of the client windows of a run after `resumed` resumptions.

    It differs each time, because a worker outliving a killed run must not write into the next run's data.
    """
    return folder / (f"data-{resumed}" if resumed else "data")


def data_folders(folder: Path) -> list[Path]:
    """Existing folders of client windows in a run folder, including partly written ones."""
    folders = {path.with_name(path.name.removesuffix(".tmp")) for path in folder.glob("data*")}
    return sorted(path for path in folders if re.fullmatch(r"data(-\d+)?", path.name))


def resume_command(folder: Path, arguments: str = "", *, of_script: bool = False) -> str:
    """Command that resumes a run; or the call, if a part of the run is code from a script or notebook.

    Args:
        folder: the run folder.
        arguments: further arguments of the command.
        of_script: result of `has_code_of_script`.
    """
    if of_script:
        return f'the same call of fedge.simulate and the option "resume": {json.dumps(short(folder))}'
    return f"fedge resume {shlex.quote(short(folder))}{arguments}"


def has_code_of_script(config: Mapping[str, Any]) -> bool:
    """Whether options name code from a script or notebook, which no command can load.

    >>> has_code_of_script({"callbacks": "csv, __main__:Mine"})
    True
    """
    return any("__main__:" in str(value) for value in config.values())


def short(folder: Path) -> str:
    """A folder relative to the working directory, if inside it."""
    try:
        relative = os.path.relpath(folder)
    except OSError:  # the working directory was removed during the run
        return str(folder)
    is_outside = relative == os.pardir or relative.startswith(os.pardir + os.sep)
    return str(folder) if is_outside else relative


def time_written(path: Path, zone: timezone | None = None) -> datetime:
    """Time of a file's last write, in a zone (None: the local one, unnamed).

    A time outside the calendar, left by a wrong clock or a copy, becomes the nearest valid time.
    """
    return datetime.fromtimestamp(min(max(path.stat().st_mtime, _FIRST_S), _LAST_S), zone)
