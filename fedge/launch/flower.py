"""`flwr run` as a child process: live output, its whole family ended with it, an exit code that is true.

Flower 1.25 exits with 0 whatever happened, and on Ctrl-C kills its simulation after 0.25 s. Here it runs in a
session of its own, so that a terminal's Ctrl-C reaches only this process, which lets the simulation end by
itself and then sees to it that nothing of it is left. The manifest tells how the run ended.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psutil

from fedge.config.option import ConfigError, Scalar
from fedge.config.sections import Config
from fedge.launch.project import Project
from fedge.process import exits
from fedge.process.parent import be_followed
from fedge.process.watchdog import GRACE_S, stall_limit_s
from fedge.records.folder import find_run
from fedge.records.manifest import MANIFEST, read_manifest, write_manifest

_POLL_S = 0.2
_END_BY_ITSELF_S = 10.0  # for Flower and Ray, after the signal
_END_AFTER_KILL_S = 5.0


def run_on_flower(
    app: str,
    federation: str | None,
    run_config: Mapping[str, Scalar],
    config: Config,
    supernodes: int | None = None,
) -> int:
    """Carry out a checked run with ``flwr run``; returns the exit code.

    Args:
        app: folder of pyproject.toml.
        federation: name of one; None for the default.
        run_config: all options, as the run is to have them.
        config: the same, checked.
        supernodes: clients, where they are not as many as the federation has.
    """
    name = config.run_name or f"{datetime.now():%Y%m%d-%H%M%S-%f}"
    folder = (
        find_run(config.resume, config.runs_dir, "resume") if config.resume else Path(config.runs_dir) / name
    )
    with tempfile.NamedTemporaryFile("w", suffix=".toml", encoding="utf-8") as overrides:
        overrides.write(toml_of(Project(Path(app)).as_declared({**run_config, "run-name": name})))
        overrides.flush()
        words = ["flwr", "run", app, *([federation] if federation else []), "-c", overrides.name]
        words += ["--federation-config", f"options.num-supernodes={supernodes}"] if supernodes else []
        child = _Child(words)
        # the server process notices a stall by itself, unless it is frozen as a whole
        limit_s = stall_limit_s(config.guard) + config.guard.start_timeout + 2 * GRACE_S
        try:
            stalled = not child.wait(folder, limit_s)
        except KeyboardInterrupt as error:
            interrupted = exits.interrupted_by(error)
            assert interrupted is not None
            child.end(signal.SIGINT)
            _set_end(folder, interrupted.exit_code, interrupted.reason, overrule="interrupted")
            return interrupted.exit_code
        child.end(signal.SIGKILL if stalled else signal.SIGINT)
    if stalled:
        reason = f"stalled: no sign of life for {limit_s:g} s; the processes were killed"
        print(f"fedge: {reason}; run folder: {os.path.relpath(folder)}", file=sys.stderr)
        _set_end(folder, exits.STALLED, reason)
    return _exit_code(folder, child.returncode)


def toml_of(table: Mapping[str, Any]) -> str:
    """Return a flat mapping as TOML; JSON's strings and numbers are TOML's."""
    return "".join(
        f"{_quoted(key)} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in table.items()
    )


def _quoted(key: str) -> str:
    """Return a dotted key as a TOML key path."""
    return ".".join(f'"{part}"' for part in key.split("."))


class _Child:
    """One ``flwr run`` with all processes below it."""

    def __init__(self, words: Sequence[str]) -> None:
        """Start it."""
        try:
            environment = dict(os.environ)
            be_followed(environment)
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, start_new_session=True, env=environment
            )
        except OSError as error:
            raise ConfigError(
                f"--engine flower needs the command {words[0]}, but: {error.strerror}; activate the "
                f"environment that Fedge is installed in"
            ) from error
        self._family: dict[int, psutil.Process] = {}

    @property
    def returncode(self) -> int | None:
        """Exit code of ``flwr run``."""
        return self._process.returncode

    def wait(self, folder: Path, limit_s: float) -> bool:
        """Wait until it ends; False when the run's folder shows no sign of life for `limit_s` seconds."""
        seen, last = 0.0, time.monotonic()
        next_look = 0.0
        while self._process.poll() is None:
            now = time.monotonic()
            if now > next_look:
                self._look_around()
                newest = _newest_change(folder)
                if newest != seen:
                    seen, last = newest, now
                if now - last > limit_s:
                    return False
                next_look = now + 1.0
            time.sleep(_POLL_S)
        return True

    def _look_around(self) -> None:
        """Note all processes below: once their parents are gone nobody could tell that they were."""
        try:
            below = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.Error:
            return
        self._family.update({process.pid: process for process in below})

    def end(self, signum: int) -> None:
        """End it and everything below it: first with `signum` to the simulation, then by force."""
        self._look_around()
        try:
            simulation = psutil.Process(self._process.pid).children() if self._process.poll() is None else []
        except psutil.Error:
            simulation = []
        for process in simulation or ([self._process] if self._process.poll() is None else []):
            with suppress(psutil.Error, OSError):
                process.send_signal(signum)
        with suppress(KeyboardInterrupt):  # a second Ctrl-C: by force at once
            self._await_end(_END_BY_ITSELF_S)
        left = [process for process in self._family.values() if process.is_running()]
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        if self._process.poll() is None:
            self._process.kill()
        psutil.wait_procs(left, timeout=_END_AFTER_KILL_S)
        self._process.wait()

    def _await_end(self, seconds: float) -> None:
        """Wait until it and everything below it have ended, at most `seconds` seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._look_around()
            alive = [p for p in self._family.values() if _is_alive(p)]
            if self._process.poll() is not None and not alive:
                return
            time.sleep(_POLL_S)


def _is_alive(process: psutil.Process) -> bool:
    """Tell whether a process still does something."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _newest_change(folder: Path) -> float:
    """Return when something in a run folder changed last; 0 while there is none."""
    newest = 0.0
    for path in (folder, folder / MANIFEST, folder / "run.log", folder / "metrics" / "global_rounds.csv"):
        with suppress(OSError):
            newest = max(newest, path.stat().st_mtime)
    return newest


def _set_end(folder: Path, exit_code: int, reason: str, overrule: str = "") -> None:
    """Write into the manifest how the run was ended from here, if it did not end before.

    Args:
        folder: the run's.
        exit_code: to write.
        reason: to write.
        overrule: a reason that the simulation may have written, which knows less.
    """
    try:
        manifest = read_manifest(folder)
        before = str(manifest.get("reason", ""))
        if manifest["status"] in ("completed", "partial"):
            return
        if "ended" in manifest and before != overrule:
            return
        ended = manifest.get("ended") or datetime.now(timezone.utc).isoformat(timespec="seconds")
        manifest.update(status="failed", exit_code=exit_code, reason=reason, ended=ended)
        write_manifest(folder, manifest)
    except (ConfigError, OSError) as error:
        print(f"fedge: {reason}; {error}", file=sys.stderr, flush=True)


def _exit_code(folder: Path, returncode: int | None) -> int:
    """Return the exit code that the manifest stands for; says why where there is none."""
    try:
        manifest = read_manifest(folder)
    except ConfigError as error:
        print(f"fedge: flwr run ended with code {returncode} before the run: {error}", file=sys.stderr)
        return exits.FAILED
    if "ended" not in manifest:
        reason = manifest.get("reason") or f"flwr run ended with code {returncode} in the middle of the run"
        _set_end(folder, exits.FAILED, reason)
        print(f"fedge: {reason}; run folder: {os.path.relpath(folder)}", file=sys.stderr)
        return exits.FAILED
    code = manifest["exit_code"]
    assert isinstance(code, int)
    return code
