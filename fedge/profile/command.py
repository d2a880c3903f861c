"""``fedge profile``: two short runs, one watched and one under memray; or two profiles compared."""

import argparse
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from fedge.config.config import Config
from fedge.config.flat import options
from fedge.config.registers.engines import engine_kind
from fedge.config.registers.option import ConfigError, Scalar
from fedge.engine.federation import Federation
from fedge.launch.flower_runs.flower import toml_of
from fedge.launch.preflight import check
from fedge.launch.projects.project import Project
from fedge.process.capture import FOLDER
from fedge.process.endings import exits
from fedge.process.python import python_words
from fedge.process.versions import versions
from fedge.profile.allocators import Capture, read_capture
from fedge.profile.result import (
    Profile,
    flame_file,
    largest_captures,
    read_profile,
    resident_changes,
    write_profile,
)
from fedge.profile.watch import Sample, run_watched
from fedge.records.folder import short
from fedge.records.manifest import read_manifest
from hhar.quantity import quantity

PAGE = "profile.html"
_ROUNDS = 5
_WATCHED, _CAPTURED = "watched", "captured"  # folders of the two runs, until they are read
_OUTPUT = "output.txt"  # a run's output


def profile(options: argparse.Namespace) -> int:
    """Profile a run, or compare two profiles; returns the exit code.

    Raises:
        ConfigError: memray is missing, the run cannot work or failed, or a profile cannot be read.
    """
    if options.compare:
        return _compare(options)
    _refuse_missing_memray()
    project = Project(Path(options.app))
    options.app = str(project.folder)
    run_config = {
        **project.run_config([f"num-server-rounds={_ROUNDS}", *options.run_config]),
        "report": False,
    }
    federation = project.federation(options.federation)
    if options.clients is not None:
        run_config["clients"] = options.clients
    prepared = check({**run_config, "run-name": ""}, federation, on_ray=engine_kind(options.engine).on_ray)
    config, federation = prepared.config, replace(federation, num_supernodes=prepared.num_clients)
    del prepared  # and the data with it
    with _new_folder(options) as folder:
        result = _measure(options, run_config, config, federation, folder)
        write_profile(folder, result)
        _draw_flames(folder, result.captures)
        for name in (_WATCHED, _CAPTURED):
            shutil.rmtree(folder / name, ignore_errors=True)
        _show(result, folder)
    return exits.COMPLETED


def _refuse_missing_memray() -> None:
    """Raise ConfigError if memray is not installed."""
    if importlib.util.find_spec("memray") is None:
        raise ConfigError("fedge profile needs memray, but it is not installed; pip install 'fedge[profile]'")


@contextmanager
def _new_folder(options: argparse.Namespace) -> Iterator[Path]:
    """Create the folder of the profile; an interruption removes it, with those above that are new, too."""
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{options.engine}"
    folder = Path(options.output or Path("profiles") / name)
    new_above = [path for path in folder.parents if not path.exists()]
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(
            f"--output must be a new folder, but {folder}: {error.strerror or error}; choose another"
        ) from error
    try:
        yield folder
    except KeyboardInterrupt:
        with exits.uninterrupted(), suppress(OSError):  # something else may have been put above
            shutil.rmtree(folder, ignore_errors=True)
            for path in new_above:
                path.rmdir()
        raise


# --- the two runs -------------------------------------------------------------------------------------


def _measure(
    options: argparse.Namespace,
    run_config: Mapping[str, Scalar],
    config: Config,
    federation: Federation,
    folder: Path,
) -> Profile:
    """Carry out both runs; returns the findings."""
    rounds = config.num_server_rounds
    print(f"1/2  {options.engine}: {quantity(rounds, 'global round')}, watched from outside", flush=True)
    samples, seconds = _run(options, run_config, folder, _WATCHED)
    print(f"2/2  {options.engine}: the same under memray, which takes longer", flush=True)
    _, seconds_captured = _run(options, run_config, folder, _CAPTURED)
    captures = _read_captures(folder / _CAPTURED)
    facts = {
        "engine": options.engine,
        "rounds": rounds,
        "clients": federation.num_supernodes,
        "changed": _changed_options(run_config),
        "versions": versions(),
        "when": f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
        "seconds": seconds,
        "seconds_captured": seconds_captured,
    }
    return Profile(folder.resolve().name, facts, samples, captures)


def _changed_options(run_config: Mapping[str, Scalar]) -> dict[str, Any]:
    """Options differing from their defaults, except those about the run's folder and report."""
    defaults = {key: default for key, (default, _) in options().items()}
    places = ("runs-dir", "run-name", "report", "resume")
    return {key: value for key, value in run_config.items() if key not in places and defaults[key] != value}


def _run(
    options: argparse.Namespace, run_config: Mapping[str, Scalar], folder: Path, name: str
) -> tuple[list[Sample], float]:
    """Carry out one of the two runs in ``folder/NAME``; returns its memory and its seconds.

    Raises:
        ConfigError: it did not complete.
    """
    run_folder = folder / name
    run_folder.mkdir()
    settings = {**run_config, "runs-dir": str(run_folder.resolve()), "run-name": "run"}
    environment = dict(os.environ)
    if name == _CAPTURED:
        environment[FOLDER] = str(run_folder.resolve())
    started = time.monotonic()
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as overrides:
        overrides.write(toml_of(settings))
        overrides.flush()
        with (run_folder / _OUTPUT).open("w", encoding="utf-8") as output:
            command = _run_command(options, overrides.name)
            code, samples = run_watched(command, env=environment, stdout=output, stderr=output)
    if code not in (exits.COMPLETED, exits.PARTIAL):
        raise ConfigError(
            f"the run must complete, but {_failure_reason(run_folder, code)}; see {short(run_folder)}"
        )
    return samples, time.monotonic() - started


def _run_command(options: argparse.Namespace, overrides: str) -> list[str]:
    """Command of a run."""
    command = python_words("-m", "fedge.cli", "run", options.app)
    command += [options.federation] if options.federation else []
    command += ["--engine", options.engine, "-c", overrides]
    return command + (["--workers", str(options.workers)] if options.workers else [])


def _failure_reason(run_folder: Path, code: int) -> str:
    """Reason why a run did not complete."""
    try:
        return f"it is {(manifest := read_manifest(run_folder / 'run'))['status']}: {manifest.get('reason')}"
    except ConfigError:
        return f"it ended with code {code} before it began"


def _read_captures(run_folder: Path) -> list[Capture]:
    """Captures of all processes: the server's, then the workers', largest first."""
    captures = [capture for path in run_folder.glob("*.bin") if (capture := _read_capture(path)) is not None]
    return sorted(captures, key=lambda capture: (capture.role, -capture.mib, capture.pid))


def _read_capture(path: Path) -> Capture | None:
    """One capture; None, with a note, if its process was killed."""
    try:
        return read_capture(path)
    except (OSError, ValueError) as error:
        print(f"note: {path.name} is incomplete and left out: {error}")
        return None


def _draw_flames(folder: Path, captures: Sequence[Capture]) -> None:
    """Write memray's flame graph of the server and of the largest worker."""
    for capture in largest_captures(captures):
        source = folder / _CAPTURED / f"{capture.role}-{capture.pid}.bin"
        flags = ["flamegraph", "--no-web", "--split-threads", "-f", "-o", str(folder / flame_file(capture))]
        subprocess.run(
            python_words("-m", "memray", *flags, str(source)), check=True, stdout=subprocess.DEVNULL
        )


# --- tables shown ------------------------------------------------------------------------------------


def _show(result: Profile, folder: Path) -> None:
    """Write the page and print the largest numbers."""
    from fedge.profile.page import profile_lines, write_profile_page  # Matplotlib

    write_profile_page(result, folder / PAGE)
    print(*profile_lines(result), sep="\n")
    print(short(folder / PAGE))


def _compare(options: argparse.Namespace) -> int:
    """Compare two profiles; returns the exit code, that of a failure if memory has grown beyond the limit."""
    from fedge.profile.page import change_lines, write_comparison_page

    before, after = (read_profile(Path(folder)) for folder in options.compare)
    path = Path(options.output or "profile-compare.html")
    try:
        write_comparison_page(before, after, path)
    except OSError as error:
        raise ConfigError(
            f"--output must be a writable file, but {path}: {error.strerror or error}"
        ) from error
    print(*change_lines(before, after), sep="\n")
    print(short(path))
    limit = options.max_growth
    grown = [c for c in resident_changes(before, after) if limit is not None and (c.percent or 0.0) > limit]
    for change in grown:
        print(f"grown: {change.name} by {change.percent:.1f} %, more than {limit:g} %")
    return exits.FAILED if grown else exits.COMPLETED
