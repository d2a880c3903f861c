"""Memory, threads and open descriptors of the server, its workers and Ray's own processes."""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import psutil

_MIB = 2**20
USS_SHARE = 0.001  # share of the run's time for reading USS, which walks all pages of all processes


@dataclass(frozen=True)
class ProcessMemory:
    """Measurement of one process.

    Attributes:
        role: "server", "worker", "trainer" (trains for a worker, `train.processes`), "node" (a program of a
            SuperNode), "ray" (Ray's own) or "other" (any other descendant: the reaper, a user's own
            processes, a newer Flower's SuperLink).
        rss_mib: resident set size in MiB; shared pages count in each process.
        fds: open file descriptors; None if the system does not count them (Windows).
        uss_mib: unique set size in MiB, pages of this process only; None if not measured this time.
        threads: number of threads.
        cuda_allocated_mib, cuda_reserved_mib: peak MiB of tensors on its GPU, and of PyTorch's cache for
            them, since the last measurement; None without use of a GPU.
        machine: name of its machine; empty for the server's.
        number: process number (`fedge.process.identity`) on another machine; for a ClientApp, its starter's,
            because each message has a new process; 0 otherwise.
    """

    role: str
    pid: int
    rss_mib: float
    fds: int | None = None
    uss_mib: float | None = None
    threads: int | None = None
    cuda_allocated_mib: float | None = None
    cuda_reserved_mib: float | None = None
    machine: str = ""
    number: int = 0

    @property
    def known_as(self) -> int:
        """Number unique within the run: the process id on the server's machine, `number` on others."""
        return self.number or self.pid


class MemoryWatch:
    """Repeated measurement; USS is read first, and then only as often as `USS_SHARE` of the time allows."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Watch before its first measurement; `now` returns seconds."""
        self._now = now
        self._next_uss = 0.0

    def measure(self) -> list[ProcessMemory]:
        """Measure all processes now."""
        began = self._now()
        with_uss = began >= self._next_uss
        measured = measure(with_uss)
        if with_uss:
            self._next_uss = began + (self._now() - began) / USS_SHARE
        return measured


def measure(with_uss: bool = False) -> list[ProcessMemory]:
    """Measure this process and all its descendants; processes ending meanwhile are left out."""
    server = psutil.Process()
    return sort_processes(_measure_all([server, *server.children(recursive=True)], with_uss))


def sort_processes(processes: Iterable[ProcessMemory]) -> list[ProcessMemory]:
    """Processes in the order of memory.csv: by role, machine (the server's first), and process id."""
    return sorted(processes, key=lambda p: (_ROLES.index(p.role), p.machine, p.pid))


def measure_worker() -> list[ProcessMemory]:
    """Measure this Ray worker, its trainers, and Ray's own processes on its machine.

    Other workers measure themselves; they may belong to another user.
    """
    worker = psutil.Process()
    tree = [worker, *worker.children(recursive=True)]
    raylet = worker.parent()
    ray_processes = [] if raylet is None or raylet.name() != _RAYLET else [raylet, *raylet.children()]
    own_pids = {process.pid for process in tree}
    others = [
        replace(measured, role="ray")  # started by the raylet, whatever its command line
        for measured in _measure_all(ray_processes, False)
        if measured.pid not in own_pids and measured.role != "worker"
    ]
    this_worker = replace(_measure_all([worker], False)[0], role="worker")
    return [
        this_worker,
        *(measured for measured in _measure_all(tree[1:], False) if measured.role == "trainer"),
        *others,
    ]


def measure_these(processes: Iterable[psutil.Process], role: str = "") -> list[ProcessMemory]:
    """Measure the given processes if still alive, with the given role or one from their command lines."""
    measured = _measure_all(processes, False)
    return [replace(process, role=role) for process in measured] if role else measured


def _measure_all(processes: Iterable[psutil.Process], with_uss: bool) -> list[ProcessMemory]:
    """Measure the processes still alive."""
    return [memory for process in processes if (memory := _measure_one(process, with_uss)) is not None]


_RAYLET = "raylet"
_ROLES = ("server", "worker", "trainer", "node", "ray", "other")
# in command lines of Ray's processes and programs, not of an account or environment named ray
_RAYS_OWN = re.compile(r"ray::|/ray/(?:_private|autoscaler|core|dashboard|util)/")
TRAINER = "fedge.parallel.member"  # module of the program in its command line


def _measure_one(process: psutil.Process, with_uss: bool) -> ProcessMemory | None:
    """Measurement of one process; None if it has ended."""
    try:
        with process.oneshot():
            return ProcessMemory(
                role=_role(process),
                pid=process.pid,
                rss_mib=process.memory_info().rss / _MIB,
                fds=process.num_fds() if hasattr(process, "num_fds") else None,
                uss_mib=_uss_mib(process) if with_uss else None,
                threads=process.num_threads(),
            )
    except (psutil.NoSuchProcess, psutil.AccessDenied):  # zombies raise NoSuchProcess
        return None


def _role(process: psutil.Process) -> str:
    """Role of a process in a run, from its command line."""
    if process.pid == os.getpid():
        return "server"
    command_line = " ".join(process.cmdline())
    if TRAINER in command_line:
        return "trainer"
    if "ClientAppActor" in command_line:
        return "worker"
    return "ray" if is_rays_own(command_line) else "other"


def is_rays_own(command_line: str) -> bool:
    """Whether a process is Ray's own or was started by it, from its command line."""
    return _RAYS_OWN.search(command_line) is not None


def _uss_mib(process: psutil.Process) -> float | None:
    """Unique set size in MiB; None without permission to read it."""
    try:
        return float(process.memory_full_info().uss) / _MIB
    except psutil.AccessDenied:
        return None


def with_cuda(
    processes: Sequence[ProcessMemory], cuda_mib: Mapping[int, tuple[float, float]]
) -> list[ProcessMemory]:
    """Processes with their GPU memory: `known_as` → MiB allocated, MiB reserved."""
    result = []
    for process in processes:
        allocated, reserved = cuda_mib.get(process.known_as, (None, None))
        result.append(replace(process, cuda_allocated_mib=allocated, cuda_reserved_mib=reserved))
    return result
