"""A sweep's runs as tasks of a Ray cluster: ``fedge sweep --launcher ray``.

A task carries out one run by ``fedge sweep FILE --only NAME``, as a task of a Slurm array does
(`fedge.sweep.slurm`): it goes on from the run's checkpoint if there is one. So a task that Ray starts again,
because its machine died, and a sweep that is started again, do the rest. Machines share the folder of the
sweep, and this process follows: it starts as many tasks as the cluster has room for, and ends them when it
ends.
"""

import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedge.config.option import ConfigError
from fedge.engine.cluster import machines
from fedge.process.parent import ending_with_parent
from fedge.sweep.plan import Sweep
from fedge.sweep.pool import Ended, ended_as
from fedge.sweep.standing import RunStanding

_TRIES_AGAIN = 3  # of a task whose machine or worker has died
_LOOK_S = 1.0
_END_S = 20.0  # for runs with an order to end
_OF_RAY = ("OMP_NUM_THREADS", "RAY_ADDRESS", "SEED")  # variables of a worker's environment, not of a run's


def room_for(address: str, workers: int) -> int:
    """How many runs a cluster has room for, each with so many CPUs.

    Raises:
        ConfigError: there is no address, nobody answers there, or no machine has room for one.
    """
    if not address:
        raise ConfigError(
            "--launcher ray needs a cluster, but none is named; add --address HOST:PORT, or set RAY_ADDRESS"
        )
    there = machines(address)
    room = sum(int(node.get("CPU", 0)) // workers for node in there)
    if not room:
        most = max((int(node.get("CPU", 0)) for node in there), default=0)
        raise ConfigError(
            f"--workers must fit on a machine of the cluster, but is {workers}, and they have {most} CPUs at "
            f"most; set --workers {max(most, 1)}"
        )
    return room


class RayPool:
    """Tasks that carry out the runs of one list, as `fedge.sweep.pool.RunPool` does.

    Use as a context manager: leaving it ends the runs that are at work.
    """

    def __init__(
        self, sweeps: Iterable[Sweep], todo: Iterable[RunStanding], jobs: int, workers: int, address: str
    ) -> None:
        """Prepare to carry out `todo`; nothing starts before `results` is asked.

        Args:
            sweeps: whose runs these are.
            todo: in the order in which they start.
            jobs: runs at a time.
            workers: clients that train at a time in each run, and CPUs of a task.
            address: of the cluster.
        """
        self.jobs = jobs
        self._file_of = {sweep.folder: sweep.path.resolve() for sweep in sweeps}
        self._waiting = deque(todo)
        self._running: dict[
            Any, tuple[RunStanding, float]
        ] = {}  # Ray's name of a task → its run, when it began
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
        deadline = time.monotonic() + _END_S  # a run says how it ended after its task is gone
        while any(_is_going_on(run) for run, _ in self._running.values()) and time.monotonic() < deadline:
            time.sleep(_LOOK_S / 10)
        self._running.clear()
        self._ray.shutdown()

    def results(self) -> Iterator[Ended]:
        """Carry out the runs; yields each as it ends."""
        task = self._ray.remote(num_cpus=self._workers, max_retries=_TRIES_AGAIN)(_carry_out)
        while self._waiting or self._running:
            while self._waiting and len(self._running) < self.jobs:
                standing = self._waiting.popleft()
                file = self._file_of[standing.run.folder.parent]
                began = task.remote(str(file), standing.run.name, self._workers, str(Path.cwd()))
                self._running[began] = (standing, time.monotonic())
            done, _ = self._ray.wait(list(self._running), timeout=_LOOK_S)
            for ref in done:
                standing, began_s = self._running.pop(ref)
                yield ended_as(standing, self._said(ref), time.monotonic() - began_s)

    def _said(self, ref: Any) -> str:
        """Why a task's run did not start or did not end; empty where its folder says how it ended."""
        try:
            code, words = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            return f"its Ray task failed: {type(error).__name__}"
        return f"its process was ended by signal {-code}" if code < 0 else words

    def at_work(self) -> dict[str, tuple[str, int, float]]:
        """Runs at work, as `fedge.sweep.progress.seconds_left` takes them."""
        now = time.monotonic()
        return {s.run.name: (s.run.label, s.rounds_left, now - began) for s, began in self._running.values()}

    def to_come(self) -> Sequence[tuple[str, int]]:
        """Runs that wait, in the same form."""
        return [(standing.run.label, standing.rounds_left) for standing in self._waiting]


def _is_going_on(standing: RunStanding) -> bool:
    """Whether a run's process holds its folder."""
    from fedge.records.lock import is_locked

    with suppress(OSError):
        return is_locked(standing.run.folder)
    return False


def _carry_out(file: str, name: str, workers: int, folder: str) -> tuple[int, str]:
    """Carry out one run in a process that ends with this task; returns its exit code, and why it refused."""
    words = [sys.executable, "-m", "fedge.cli", "sweep", file, "--only", name, "--workers", str(workers)]
    done = subprocess.run(
        ending_with_parent(words), cwd=folder, env=_without_ray(os.environ), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    refused = [line for line in done.stderr.splitlines() if line.startswith("fedge: ")]
    return done.returncode, refused[-1].removeprefix("fedge: ") if refused else ""


def _without_ray(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without Ray's variables: the number of a run's threads decides its bits."""
    return {key: value for key, value in environment.items() if key not in _OF_RAY}
