"""Runs in separate processes, several at a time, on the in-process engine.

With a process per run, no state carries over to the next run, and a crash affects no other run. Importing
torch takes seconds, but only once: runs are forked from a process that has imported everything and done
nothing else (multiprocessing's fork server; on systems other than Linux, every run imports again). Each
process has its own session, so Ctrl-C reaches only the main process; the others end by themselves when it is
gone.
"""

import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING

from fedge.config.registers.option import ConfigError, Scalar
from fedge.engine.federation import Federation
from fedge.process.endings import exits
from fedge.process.python import leave_safe_path, safe_path
from fedge.process.resources.machine import share_memory
from fedge.records.manifest import read_manifest
from fedge.records.reading.status import read_status
from fedge.states.checkpoint import FOLDER, remove_all
from fedge.sweep.run_states import RunStanding

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

END_S = exits.LEAVE_S + 2.0  # time for an interrupted run to end


@dataclass(frozen=True)
class RunOutcome:
    """Outcome of a run of the sweep.

    Attributes:
        standing: the run's standing before.
        status: "completed", "partial" or "failed".
        reason: reason of a failure, in one line.
        rounds: global rounds done this time.
        seconds: duration of its process.
    """

    standing: RunStanding
    status: str
    reason: str
    rounds: int
    seconds: float


def _new_context() -> "ForkServerContext | SpawnContext":
    """multiprocessing context for starting the runs' processes."""
    if sys.platform != "linux":  # forks of loaded libraries may crash on other systems
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedge.launch.simulate"])
    return context


class RunPool:
    """Processes carrying out a list of runs.

    As a context manager, it interrupts unfinished runs on exit, as Ctrl-C would.
    """

    def __init__(
        self,
        todo: Iterable[RunStanding],
        jobs: int,
        workers: int,
        keep_checkpoints: Mapping[Path, bool],
        concurrent_runs: int | None = None,
    ) -> None:
        """Pool for `todo`, `jobs` at a time; nothing starts before `results` is called.

        Args:
            todo: runs in the order in which they start.
            jobs: runs at a time.
            workers: clients in training at a time in each run.
            keep_checkpoints: folder of a sweep → whether its completed runs keep their checkpoints.
            concurrent_runs: runs sharing the machine's memory, including those of other pools; None: `jobs`.
        """
        self._waiting = deque(todo)
        self._running: dict[int, _Job] = {}  # by process sentinel
        self.jobs = jobs
        self._concurrent_runs = concurrent_runs or jobs
        self._workers = workers
        self._keep_checkpoints = keep_checkpoints
        self._context = _new_context()

    def __enter__(self) -> "RunPool":
        return self

    def __exit__(self, *_: object) -> None:
        self._end_all()

    def results(self) -> Iterator[RunOutcome]:
        """Carry out the runs; yields each as it ends."""
        while self._waiting or self._running:
            while self._waiting and len(self._running) < self.jobs:
                job = _Job(self._context, self._waiting.popleft(), self._workers, self._concurrent_runs)
                self._running[job.process.sentinel] = job
            for sentinel in wait(list(self._running)):
                assert isinstance(sentinel, int)
                outcome = self._running.pop(sentinel).join()
                self._remove_checkpoints(outcome)
                yield outcome

    def runs_in_progress(self) -> dict[str, tuple[str, int, float]]:
        """Runs in progress, in the form of `fedge.sweep.progress.seconds_left`."""
        now = time.monotonic()
        return {
            job.process.name: (job.standing.run.label, job.standing.rounds_left, now - job.began)
            for job in self._running.values()
        }

    def waiting_runs(self) -> list[tuple[str, int]]:
        """Waiting runs, in the form of `fedge.sweep.progress.seconds_left`."""
        return [(standing.run.label, standing.rounds_left) for standing in self._waiting]

    def _remove_checkpoints(self, outcome: RunOutcome) -> None:
        """Remove the checkpoints of a complete run, unless they are to be kept."""
        folder = outcome.standing.run.folder
        if outcome.status != "failed" and not self._keep_checkpoints[folder.parent]:
            remove_all(folder / FOLDER)

    def _end_all(self) -> None:
        """Interrupt all runs, wait for them to write their ends, and kill the rest."""
        for job in self._running.values():
            job.interrupt()
        deadline = time.monotonic() + END_S
        for job in self._running.values():
            job.process.join(max(0.0, deadline - time.monotonic()))
            if job.process.is_alive():
                job.process.kill()
                job.process.join()
        self._running.clear()


class _Job:
    """Process of one run."""

    def __init__(
        self,
        context: "ForkServerContext | SpawnContext",
        standing: RunStanding,
        workers: int,
        concurrent_runs: int,
    ) -> None:
        """Start the process; `concurrent_runs` runs, including this one, may share the machine's memory."""
        run = standing.run
        if standing.action == "again":
            shutil.rmtree(run.folder)
        self.standing = standing
        self.began = time.monotonic()
        self._lifeline, other_end = context.Pipe()
        log = run.folder.with_name("sweep.log")
        self.process = context.Process(
            target=_carry_out,
            args=(standing.run_config, run.supernodes, workers, concurrent_runs, str(log), other_end),
            name=run.name,
            daemon=True,  # always ends with this process
        )
        with safe_path():
            resource_tracker.ensure_running()  # its start would undo the next line
        # Ctrl-C reaches a process that is still loading, too, which would end with a traceback
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with safe_path():
                self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
        other_end.close()

    def interrupt(self) -> None:
        """Interrupt the run."""
        with suppress(ProcessLookupError):
            if self.process.pid is not None:
                os.kill(self.process.pid, signal.SIGINT)

    def join(self) -> RunOutcome:
        """Wait for the process; returns the run's outcome, from its manifest if there is one."""
        self.process.join()
        seconds = time.monotonic() - self.began
        reason = ""
        with suppress(EOFError, OSError):
            if self._lifeline.poll():
                reason = self._lifeline.recv_bytes().decode()
        self._lifeline.close()
        return outcome_of(
            self.standing, reason, seconds, f"its process ended with code {self.process.exitcode}: "
        )


def outcome_of(standing: RunStanding, reason: str, seconds: float, ending: str = "") -> RunOutcome:
    """Outcome of a run whose process has ended, from its manifest if there is one.

    Args:
        standing: the run's standing before.
        reason: reason for a failure, as its process reported it; empty without a report.
        seconds: duration in seconds.
        ending: how its process ended, used without a manifest.
    """
    folder = standing.run.folder
    try:
        manifest = read_manifest(folder)
        rounds = read_status(folder).last_round - standing.done_rounds
        status = "failed" if manifest["status"] == "running" else manifest["status"]
        return RunOutcome(
            standing, status, reason or str(manifest.get("reason", "")), max(rounds, 0), seconds
        )
    except ConfigError as error:
        return RunOutcome(standing, "failed", reason or f"{ending}{error}", 0, seconds)


def _carry_out(
    run_config: dict[str, Scalar],
    supernodes: int,
    workers: int,
    concurrent_runs: int,
    log: str,
    lifeline: Connection,
) -> None:
    """Carry out a run in its process; the exit code is the run's."""
    leave_safe_path()
    _detach_from_terminal(Path(log))
    share_memory(concurrent_runs)
    threading.Thread(target=_end_when_closed, args=(lifeline,), name="lifeline", daemon=True).start()
    from fedge.launch.simulate import run_in_process  # loads torch, not needed in the command's process

    code, reason = exits.FAILED, ""
    try:
        with exits.signals_as_exceptions(), open(os.devnull, "w") as null:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            outcome = run_in_process(run_config, Federation(supernodes), workers, null, owns_process=True)
            code, reason = outcome.exit_code, outcome.reason
    except ConfigError as error:
        reason = str(error)
    except KeyboardInterrupt as error:
        code = (exits.find_interruption(error) or exits.Interrupted()).exit_code
    if reason:
        with suppress(OSError):
            lifeline.send_bytes(reason.encode())
    sys.exit(code)


def _detach_from_terminal(log: Path) -> None:
    """Leave the terminal's session, and redirect libraries' output to `log`."""
    if hasattr(os, "setsid"):
        with suppress(OSError):  # already a group leader
            os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


def _end_when_closed(lifeline: Connection) -> None:
    """End this process by SIGTERM when the other end of `lifeline` is closed."""
    with suppress(EOFError, OSError):
        while True:
            lifeline.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)
