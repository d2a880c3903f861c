"""`flwr run` as a child process: live output, no process left behind, and a truthful exit code.

Flower always exits with 0. Version 1.25 kills its simulation 0.25 s after a Ctrl-C; 1.41 and 1.42 print
nothing and leave a SuperLink behind (`fedge.launch.flower_runs.superlink`). Here Flower runs in its own
session, so a terminal's Ctrl-C reaches only this process, which lets the simulation end by itself and then
ends the remaining processes. The manifest records how the run ended.
"""

import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from fedge.config.config import Config
from fedge.config.registers.option import ConfigError, Scalar
from fedge.engine.federation import Federation
from fedge.flower import uses_superlink
from fedge.launch.flower_runs.simulation import Simulation
from fedge.launch.flower_runs.superlink import behind_superlink, made_app, toml_of
from fedge.launch.projects.project import Project
from fedge.process.endings import exits
from fedge.process.endings.reaper import remove_at_end, start_reaper
from fedge.process.endings.watchdog import GRACE_S, stall_limit_s
from fedge.records.folder import REPORT, dated_name, find_run
from fedge.records.manifest import read_manifest, write_manifest
from fedge.report.report_hook import write_report_at_end
from fedge.run.ending import failure_lines
from fedge.seeding import resolve_seed


def run_on_flower(
    app: str,
    federation_name: str | None,
    run_config: Mapping[str, Scalar],
    config: Config,
    federation: Federation,
) -> int:
    """Carry out a checked run with ``flwr run``; returns the exit code.

    Args:
        app: folder of pyproject.toml.
        federation_name: name of a federation; None for the default.
        run_config: all options of the run.
        config: the same options, checked.
        federation: the federation, with the run's number of clients.
    """
    name = config.run_name or dated_name(resolve_seed(config.seed)[0], with_microseconds=True)
    folder = (
        find_run(config.resume, config.runs_dir, "resume") if config.resume else Path(config.runs_dir) / name
    )
    with _start_simulation(
        Path(app), federation_name, {**run_config, "run-name": name}, federation
    ) as simulation:
        # the server process detects a stall itself, unless it is frozen entirely
        limit_s = stall_limit_s(config.guard) + config.guard.start_timeout + 2 * GRACE_S
        try:
            with exits.interruptions():
                stalled = not simulation.wait(folder, limit_s)
        except KeyboardInterrupt as error:
            interrupted = exits.find_interruption(error)
            assert interrupted is not None
            simulation.end(signal.SIGINT)
            _end_run(folder, config, interrupted.exit_code, interrupted.reason, overrule="interrupted")
            return interrupted.exit_code
        simulation.end(signal.SIGKILL if stalled else signal.SIGINT)
        why_not = simulation.startup_output()
    if stalled:
        reason = f"stalled: no progress for {limit_s:g} s; the processes were killed"
        _end_run(folder, config, exits.STALLED, reason)
    return _exit_code(folder, config, simulation.returncode, why_not)


@contextmanager
def _start_simulation(
    app: Path, name: str | None, run_config: Mapping[str, Scalar], federation: Federation
) -> Iterator[Simulation]:
    """Start ``flwr run`` as this version of Flower requires; returns its simulation."""
    project = Project(app)
    if uses_superlink():
        with behind_superlink(project, federation, run_config) as simulation:
            yield simulation
        return
    start_reaper()  # until they have loaded Fedge, the other processes do not end with this one
    configured = project.federation(name)
    if project.is_own(name) or configured.is_auto:
        with tempfile.TemporaryDirectory(prefix="fedge-") as folder:
            remove_at_end(Path(folder))
            yield made_app(Path(folder), project, federation, run_config)
        return
    supernodes = federation.num_supernodes if federation.num_supernodes != configured.num_supernodes else 0
    with tempfile.NamedTemporaryFile("w", prefix="fedge-", suffix=".toml", encoding="utf-8") as overrides:
        remove_at_end(Path(overrides.name))
        overrides.write(toml_of(project.as_declared(run_config)))
        overrides.flush()
        command = ["flwr", "run", str(app), *([name] if name else []), "-c", overrides.name]
        command += ["--federation-config", f"options.num-supernodes={supernodes}"] if supernodes else []
        yield Simulation(command)


def _end_run(folder: Path, config: Config, exit_code: int, reason: str, overrule: str = "") -> None:
    """Record, print (below the live view) and report the end of a run, as far as its processes could not.

    Arguments as for `_set_end`.
    """
    if _set_end(folder, exit_code, reason, overrule):
        print("", *failure_lines(folder, reason, exit_code), sep="\n", flush=True)
    _write_missing_report(folder, config)


def _write_missing_report(folder: Path, config: Config) -> None:
    """Write the report of an ended run, if its processes were killed before they could."""
    if not config.report:
        return
    try:
        ended = datetime.fromisoformat(read_manifest(folder)["ended"])
        if (folder / REPORT).stat().st_mtime >= ended.timestamp():
            return
    except (ConfigError, KeyError):
        return  # the run never began, or its manifest is damaged: both were printed
    except OSError:
        pass
    write_report_at_end(folder, partial(print, flush=True))


def _set_end(folder: Path, exit_code: int, reason: str, overrule: str = "") -> bool:
    """Record in the manifest how the run was ended from here, unless its end is recorded already.

    Returns True if no end was recorded before.

    Args:
        folder: the run folder.
        exit_code: exit code to write.
        reason: reason to write.
        overrule: a less specific reason, possibly written by the simulation, that may be replaced.
    """
    try:
        manifest = read_manifest(folder)
        recorded_reason = str(manifest.get("reason", ""))
        if manifest["status"] in ("completed", "partial"):
            return False
        if "ended" in manifest and recorded_reason != overrule:
            return False
        is_first = "ended" not in manifest
        ended = manifest.get("ended") or datetime.now(timezone.utc).isoformat(timespec="seconds")
        manifest.update(status="failed", exit_code=exit_code, reason=reason, ended=ended)
        write_manifest(folder, manifest)
        return is_first
    except (ConfigError, OSError) as error:
        print(f"fedge: {reason}; {error}", file=sys.stderr, flush=True)
        return False


def _exit_code(folder: Path, config: Config, returncode: int | None, why_not: str = "") -> int:
    """Exit code from the manifest; prints the reason if the manifest has none."""
    try:
        manifest = read_manifest(folder)
    except ConfigError as error:
        explanation = f" ({why_not})" if why_not else ""
        print(
            f"fedge: flwr run ended with code {returncode} before the run began{explanation}: {error}",
            file=sys.stderr,
        )
        return exits.FAILED
    if "ended" not in manifest:
        reason = manifest.get("reason") or f"flwr run ended with code {returncode} in the middle of the run"
        _end_run(folder, config, exits.FAILED, reason)
        return exits.FAILED
    code = manifest["exit_code"]
    assert isinstance(code, int)
    return code
