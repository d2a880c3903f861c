"""Carries out runs in processes of their own, several at a time, on the in-process engine.

A process per run leaves nothing of a run behind for the next, and one that dies takes no other with it. What
would speak for long-lived processes, the seconds that loading torch takes, is spent once: runs are forked
from a process that has loaded everything and done nothing (multiprocessing's fork server; elsewhere than on
Linux every run loads anew). A run's process is in a session of its own, so that Ctrl-C reaches only us; it
ends by itself when we are gone.
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
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING

from fedge.config.option import ConfigError, Scalar
from fedge.engine.federation import Federation
from fedge.process import exits
from fedge.process.machine import share_memory
from fedge.records.manifest import read_manifest
from fedge.records.status import read_status
from fedge.states.checkpoint import FOLDER, remove_all
from fedge.sweep.standing import RunStanding

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

END_S = exits.LEAVE_S + 2.0  # for a run with an order to end


@dataclass(frozen=True)
class Ended:
    """How a run of the sweep ended.

    Attributes:
        standing: as it was before.
        status: "completed", "partial" or "failed".
        reason: why it failed, in one line.
        rounds: global rounds that were done now.
        seconds: from the start of its process to its end.
    """

    standing: RunStanding
    status: str
    reason: str
    rounds: int
    seconds: float


def _new_context() -> "ForkServerContext | SpawnContext":
    """Context that starts processes."""
    if sys.platform != "linux":  # a fork of loaded libraries may not live there
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedge.launch.simulate"])
    return context


class RunPool:
    """Processes that carry out the runs of one list.

    Use as a context manager: leaving it ends the runs that are at work, as Ctrl-C ends them.
    """

    def __init__(
        self,
        todo: Iterable[RunStanding],
        jobs: int,
        workers: int,
        keep_checkpoints: Mapping[Path, bool],
        beside: int | None = None,
    ) -> None:
        """Prepare to carry out `todo`, `jobs` at a time; nothing starts before `results` is asked.

        Args:
            todo: in the order in which they start.
            jobs: runs at a time.
            workers: clients that train at a time in each run.
            keep_checkpoints: folder of a sweep → whether those of its runs that end well are kept.
            beside: runs that may share the machine's memory, those of other pools included; None: `jobs`.
        """
        self._waiting = deque(todo)
        self._running: dict[int, _Job] = {}  # by the handle that tells of a process's end
        self.jobs = jobs
        self._beside = beside or jobs
        self._workers = workers
        self._keep_checkpoints = keep_checkpoints
        self._context = _new_context()

    def __enter__(self) -> "RunPool":
        return self

    def __exit__(self, *_: object) -> None:
        self._end_all()

    def results(self) -> Iterator[Ended]:
        """Carry out the runs; yields each as it ends."""
        while self._waiting or self._running:
            while self._waiting and len(self._running) < self.jobs:
                job = _Job(self._context, self._waiting.popleft(), self._workers, self._beside)
                self._running[job.process.sentinel] = job
            for sentinel in wait(list(self._running)):
                assert isinstance(sentinel, int)
                ended = self._running.pop(sentinel).ended()
                self._tidy(ended)
                yield ended

    def at_work(self) -> dict[str, tuple[str, int, float]]:
        """Runs at work, as `fedge.sweep.progress.seconds_left` takes them."""
        now = time.monotonic()
        return {
            job.process.name: (job.standing.run.label, job.standing.rounds_left, now - job.began)
            for job in self._running.values()
        }

    def to_come(self) -> list[tuple[str, int]]:
        """Runs that wait, in the same form."""
        return [(standing.run.label, standing.rounds_left) for standing in self._waiting]

    def _tidy(self, ended: Ended) -> None:
        """Remove the checkpoints of a run that is complete, where they are not to be kept."""
        folder = ended.standing.run.folder
        if ended.status != "failed" and not self._keep_checkpoints[folder.parent]:
            remove_all(folder / FOLDER)

    def _end_all(self) -> None:
        """Interrupt runs, wait until they have written their ends, and kill those that do not end."""
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
    """One run's process."""

    def __init__(
        self,
        context: "ForkServerContext | SpawnContext",
        standing: RunStanding,
        workers: int,
        beside: int,
    ) -> None:
        """Start it; `beside` runs, itself included, may share the machine's memory."""
        run = standing.run
        if standing.action == "again":
            shutil.rmtree(run.folder)
        self.standing = standing
        self.began = time.monotonic()
        self._lifeline, other_end = context.Pipe()
        log = run.folder.with_name("sweep.log")
        self.process = context.Process(
            target=_carry_out,
            args=(standing.run_config, run.supernodes, workers, beside, str(log), other_end),
            name=run.name,
            daemon=True,  # ended when we end, in any case
        )
        self.process.start()
        other_end.close()

    def interrupt(self) -> None:
        """Tell it to end."""
        with suppress(ProcessLookupError):
            if self.process.pid is not None:
                os.kill(self.process.pid, signal.SIGINT)

    def ended(self) -> Ended:
        """How it ended; the manifest is the truth, if there is one."""
        self.process.join()
        seconds = time.monotonic() - self.began
        said = ""
        with suppress(EOFError, OSError):
            if self._lifeline.poll():
                said = self._lifeline.recv_bytes().decode()
        self._lifeline.close()
        return ended_as(
            self.standing, said, seconds, f"its process ended with code {self.process.exitcode}: "
        )


def ended_as(standing: RunStanding, said: str, seconds: float, otherwise: str = "") -> Ended:
    """How a run ended that nobody carries out any more; its manifest is the truth, if it has one.

    Args:
        standing: as it was before.
        said: why it failed, as its process said it; empty if it did not.
        seconds: that it took.
        otherwise: facts of its process, where there is no manifest.
    """
    folder = standing.run.folder
    try:
        manifest = read_manifest(folder)
        rounds = read_status(folder).last_round - standing.done_rounds
        status = "failed" if manifest["status"] == "running" else manifest["status"]
        return Ended(standing, status, said or str(manifest.get("reason", "")), max(rounds, 0), seconds)
    except ConfigError as error:
        return Ended(standing, "failed", said or f"{otherwise}{error}", 0, seconds)


def _carry_out(
    run_config: dict[str, Scalar], supernodes: int, workers: int, beside: int, log: str, lifeline: Connection
) -> None:
    """Do the work of a run's process; its exit code is the run's."""
    _leave_the_terminal(Path(log))
    share_memory(beside)
    threading.Thread(target=_end_with, args=(lifeline,), name="lifeline", daemon=True).start()
    from fedge.launch.simulate import run_in_process  # torch: here, not in the process of the command

    code, reason = exits.FAILED, ""
    try:
        with exits.signals_as_exceptions(), open(os.devnull, "w") as nowhere:
            outcome = run_in_process(run_config, Federation(supernodes), workers, nowhere, owns_process=True)
            code, reason = outcome.exit_code, outcome.reason
    except ConfigError as error:
        reason = str(error)
    except KeyboardInterrupt as error:
        code = (exits.interrupted_by(error) or exits.Interrupted()).exit_code
    if reason:
        with suppress(OSError):
            lifeline.send_bytes(reason.encode())
    sys.exit(code)


def _leave_the_terminal(log: Path) -> None:
    """Get out of reach of the terminal's Ctrl-C, and send libraries' output to `log`."""
    if hasattr(os, "setsid"):
        with suppress(OSError):  # it leads a group already
            os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


def _end_with(lifeline: Connection) -> None:
    """End this process as SIGTERM does when the other end of `lifeline` is gone."""
    with suppress(EOFError, OSError):
        while True:
            lifeline.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)
