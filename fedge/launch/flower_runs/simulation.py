"""Processes of one `flwr run`: watched while running, and all ended with the command."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

from fedge.config.registers.option import ConfigError
from fedge.process.endings import reaper
from fedge.process.endings.awake_clock import awake, keeping
from fedge.process.endings.parent import tie_children_to_parent
from fedge.records.manifest import MANIFEST

_POLL_S = 0.2
_END_BY_ITSELF_S = 10.0  # for Flower and Ray, after the signal
_END_AFTER_KILL_S = 5.0


def own_environment() -> dict[str, str]:
    """This process's environment, with its Python's folder of commands first in PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**os.environ, "PATH": path}


def start_command(
    command: Sequence[str], environment: dict[str, str], output: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start a command of Flower in its own session, so a terminal's Ctrl-C does not reach it.

    Raises:
        ConfigError: the command cannot be started.
    """
    try:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise ConfigError(
            f"--engine flower needs the command {command[0]}, but: {error.strerror or error}; activate the "
            f"environment that Fedge is installed in"
        ) from error


class Simulation:
    """One ``flwr run`` with all its descendant processes."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str] | None = None) -> None:
        """Start ``flwr run``, with `variables` added to this process's environment."""
        environment = {**own_environment(), **(variables or {})}
        tie_children_to_parent(environment)
        self._process = start_command(command, environment)
        self._descendants: dict[int, psutil.Process] = {}

    @property
    def returncode(self) -> int | None:
        """Exit code of ``flwr run``; None while running."""
        return self._process.returncode

    def startup_output(self) -> str:
        """Flower's output about a run that did not start, if not printed before."""
        return ""

    def wait(self, folder: Path, limit_s: float) -> bool:
        """Wait for the end; False if the run folder has not changed for `limit_s` seconds."""
        with keeping():
            previous, changed_at = _last_changes(folder), awake()
            next_look = 0.0
            while not self._has_ended():
                now = awake()
                if now > next_look:
                    self._note_descendants()
                    changes = _last_changes(folder)
                    if changes != previous:
                        previous, changed_at = changes, now
                    if now - changed_at > limit_s:
                        return False
                    next_look = now + 1.0
                time.sleep(_POLL_S)
            return True

    def _has_ended(self) -> bool:
        """Whether ``flwr run`` has ended."""
        return self._process.poll() is not None

    def _simulation_processes(self) -> list[psutil.Process]:
        """Processes of the simulation, signalled first."""
        try:
            return psutil.Process(self._process.pid).children() if self._process.poll() is None else []
        except psutil.Error:
            return []

    def _note_descendants(self) -> None:
        """Record all descendants, which could not be identified once their parents are gone."""
        for process in self._simulation_processes():
            with suppress(psutil.Error):
                self._descendants[process.pid] = process
                self._descendants.update({child.pid: child for child in process.children(recursive=True)})

    def end(self, signum: int) -> None:
        """End all processes: first by `signum` to the simulation, then by force."""
        self._note_descendants()
        processes = self._simulation_processes()
        for process in processes or ([self._process] if self._process.poll() is None else []):
            with suppress(psutil.Error, OSError):
                process.send_signal(signum)
        with suppress(KeyboardInterrupt):  # a second Ctrl-C: end them by force at once
            self._await_end(_END_BY_ITSELF_S)
        survivors = [process for process in self._descendants.values() if process.is_running()]
        for process in survivors:
            with suppress(psutil.Error):
                if not _is_reaper(process):  # the reaper removes Ray's folder and state files, then ends
                    process.kill()
        if self._process.poll() is None:
            self._process.kill()
        psutil.wait_procs(survivors, timeout=_END_AFTER_KILL_S)
        self._process.wait()

    def _await_end(self, seconds: float) -> None:
        """Wait until all processes have ended, at most `seconds` seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._note_descendants()
            alive = [p for p in self._descendants.values() if _is_alive(p)]
            if self._process.poll() is not None and not alive:
                return
            time.sleep(_POLL_S)


def _is_reaper(process: psutil.Process) -> bool:
    """Whether a process cleans up after a simulation; psutil.Error if the process is gone."""
    return reaper.__file__ in process.cmdline()


def _is_alive(process: psutil.Process) -> bool:
    """Whether a process is running and not a zombie."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _last_changes(folder: Path) -> list[int]:
    """Modification times (ns) of a run folder's growing files, compared singly, as clocks may be set back."""
    times = []
    for path in (folder, folder / MANIFEST, folder / "run.log", folder / "metrics" / "global_rounds.csv"):
        with suppress(OSError):
            times.append(path.stat().st_mtime_ns)
    return times
