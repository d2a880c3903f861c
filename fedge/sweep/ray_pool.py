"""A sweep's runs as tasks of a Ray cluster: ``fedge sweep --launcher ray``.

A task carries out one run by ``fedge sweep FILE --only NAME``, like a task of a Slurm array
(`fedge.sweep.slurm`), and resumes from the run's checkpoint if there is one. So retries of tasks whose
machine died, and repeated sweeps, only do the rest. The machines share the sweep's folder. This process
starts as many tasks as the cluster has room for, and ends them when it ends.
"""

import os
import subprocess
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError
from fedge.engine.cluster import machines
from fedge.process.endings.parent import ending_with_parent
from fedge.process.python import python_words
from fedge.sweep.plan import Sweep
from fedge.sweep.pool import RunOutcome, outcome_of
from fedge.sweep.run_states import RunStanding

_RETRIES = 3  # retries of a task whose machine or worker has died
_POLL_S = 1.0
_END_S = 20.0  # time for interrupted runs to end
# variables of Ray's workers, not to be inherited by runs
_RAY_VARIABLES = ("OMP_NUM_THREADS", "RAY_ADDRESS", "SEED")


def runs_with_room(address: str, workers: int) -> int:
    """Number of runs for which a cluster has room, each with `workers` CPUs.

    Raises:
        ConfigError: there is no address, the cluster does not answer, or no machine has room for one.
    """
    if not address:
        raise ConfigError(
            "--launcher ray needs a cluster, but none is given; add --address HOST:PORT, or set RAY_ADDRESS"
        )
    nodes = machines(address)
    room = sum(int(node.get("CPU", 0)) // workers for node in nodes)
    if not room:
        most = max((int(node.get("CPU", 0)) for node in nodes), default=0)
        raise ConfigError(
            f"--workers must fit on one machine of the cluster, but is {workers}, and they have up to {most} "
            f"CPUs; set --workers {max(most, 1)}"
        )
    return room


class RayPool:
    """Tasks carrying out a list of runs, with the interface of `fedge.sweep.pool.RunPool`.

    As a context manager, it ends unfinished runs on exit.
    """

    def __init__(
        self, sweeps: Iterable[Sweep], todo: Iterable[RunStanding], jobs: int, workers: int, address: str
    ) -> None:
        """Pool for `todo`; nothing starts before `results` is called.

        Args:
            sweeps: sweeps of the runs.
            todo: runs in the order in which they start.
            jobs: runs at a time.
            workers: clients in training at a time in each run, and CPUs of a task.
            address: address of the cluster.
        """
        self.jobs = jobs
        self._file_of = {sweep.folder: sweep.path.resolve() for sweep in sweeps}
        self._waiting = deque(todo)
        self._running: dict[Any, tuple[RunStanding, float]] = {}  # task → its run and start time
        self._workers = workers
        self._address = address
        self._ray: Any = None

    def __enter__(self) -> "RayPool":
        import ray  # type: ignore[import-untyped,unused-ignore]

        self._ray = ray
        ray.init(address=self._address, log_to_driver=False, logging_level="error")
        return self

    def __exit__(self, *_: object) -> None:
        for task in self._running:
            self._ray.cancel(task, force=True)
        deadline = time.monotonic() + _END_S  # a run may write its end after its task is gone
        while any(_is_in_progress(run) for run, _ in self._running.values()) and time.monotonic() < deadline:
            time.sleep(_POLL_S / 10)
        self._running.clear()
        self._ray.shutdown()

    def results(self) -> Iterator[RunOutcome]:
        """Carry out the runs; yields each as it ends."""
        task = self._ray.remote(num_cpus=self._workers, max_retries=_RETRIES)(_carry_out)
        while self._waiting or self._running:
            while self._waiting and len(self._running) < self.jobs:
                standing = self._waiting.popleft()
                file = self._file_of[standing.run.folder.parent]
                new_ref = task.remote(str(file), standing.run.name, self._workers, str(Path.cwd()))
                self._running[new_ref] = (standing, time.monotonic())
            ended_refs, _ = self._ray.wait(list(self._running), timeout=_POLL_S)
            for ref in ended_refs:
                standing, began_s = self._running.pop(ref)
                yield outcome_of(standing, self._failure_reason(ref), time.monotonic() - began_s)

    def _failure_reason(self, ref: Any) -> str:
        """Reason why a task's run did not start or end; empty if the run folder has it."""
        try:
            code, words = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            return f"its Ray task failed: {type(error).__name__}"
        return f"its process was ended by signal {-code}" if code < 0 else words

    def runs_in_progress(self) -> dict[str, tuple[str, int, float]]:
        """Runs in progress, in the form of `fedge.sweep.progress.seconds_left`."""
        now = time.monotonic()
        return {s.run.name: (s.run.label, s.rounds_left, now - began) for s, began in self._running.values()}

    def waiting_runs(self) -> Sequence[tuple[str, int]]:
        """Waiting runs, in the form of `fedge.sweep.progress.seconds_left`."""
        return [(standing.run.label, standing.rounds_left) for standing in self._waiting]


def _is_in_progress(standing: RunStanding) -> bool:
    """Whether a run's process holds the lock on its folder."""
    from fedge.records.lock import is_locked

    with suppress(OSError):
        return is_locked(standing.run.folder)
    return False


def _carry_out(file: str, name: str, workers: int, folder: str) -> tuple[int, str]:
    """Carry out one run in a process ending with this task; returns exit code and reason for a refusal."""
    command = python_words("-m", "fedge.cli", "sweep", file, "--only", name, "--workers", str(workers))
    process = subprocess.run(
        ending_with_parent(command), cwd=folder, env=_without_ray(os.environ), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    errors = [line for line in process.stderr.splitlines() if line.startswith("fedge: ")]
    return process.returncode, errors[-1].removeprefix("fedge: ") if errors else ""


def _without_ray(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment without Ray's variables, which would change a run's threads and thus its bits."""
    return {key: value for key, value in environment.items() if key not in _RAY_VARIABLES}
