"""Memory, threads and open descriptors of the server, its workers and Ray's own processes."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import psutil

_MIB = 2**20
USS_SHARE = 0.001  # share of the run's time for reading USS: the kernel walks all pages of all processes


@dataclass(frozen=True)
class ProcessMemory:
    """One process at one moment.

    Attributes:
        role: "server", "worker", "trainer" for one that trains for a worker (`train.processes`), "node" for
            programs of a SuperNode, "ray" for Ray's own processes, or "other" for all else that they have
            started (the reaper, processes of a user's own code, a newer Flower's SuperLink).
        rss_mib: resident set size; pages shared between processes count in each.
        fds: open file descriptors; None where the system does not count them (Windows).
        uss_mib: unique set size, pages that no other process has; None where it was not measured this time.
        threads: of the process.
        cuda_allocated_mib, cuda_reserved_mib: most that tensors took on its GPU, and that PyTorch held there
            for them, since the last time; None where it has not used one.
        machine: where it is; empty for the server's machine.
        number: its second name, else 0: its process number (`fedge.process.identity`) where it is on
            another machine; of a ClientApp, the number of the process that starts one for each message.
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
        """The number by which no other process of the run is known: its id on the server's machine."""
        return self.number or self.pid


class MemoryWatch:
    """Measures again and again; USS only as often as takes `USS_SHARE` of the time, the first time always."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Start; `now` gives seconds."""
        self._now = now
        self._next_uss = 0.0

    def measure(self) -> list[ProcessMemory]:
        """Measure now."""
        began = self._now()
        with_uss = began >= self._next_uss
        found = measure(with_uss)
        if with_uss:
            self._next_uss = began + (self._now() - began) / USS_SHARE
        return found


def measure(with_uss: bool = False) -> list[ProcessMemory]:
    """Measure this process and everything it has started; processes that end meanwhile are left out."""
    server = psutil.Process()
    return in_order(_measure_all([server, *server.children(recursive=True)], with_uss))


def in_order(processes: Iterable[ProcessMemory]) -> list[ProcessMemory]:
    """Processes in the order of memory.csv: by role, then the server's machine, then process id."""
    return sorted(processes, key=lambda p: (_ROLES.index(p.role), p.machine, p.pid))


def measure_worker() -> list[ProcessMemory]:
    """Measure this worker of Ray's, its children, and Ray's own processes beside it on its machine.

    Other workers measure themselves; they may be somebody else's.
    """
    worker = psutil.Process()
    mine = [worker, *worker.children(recursive=True)]
    raylet = worker.parent()
    beside = [] if raylet is None or raylet.name() != _RAYLET else [raylet, *raylet.children()]
    own = {process.pid for process in mine}
    others = [
        replace(one, role="ray")  # under any command line: the raylet has started it
        for one in _measure_all(beside, False)
        if one.pid not in own and one.role != "worker"
    ]
    here = replace(_measure_all([worker], False)[0], role="worker")
    return [here, *(one for one in _measure_all(mine[1:], False) if one.role == "trainer"), *others]


def measure_these(processes: Iterable[psutil.Process], role: str = "") -> list[ProcessMemory]:
    """Measure those of other processes that have not ended; roles are given, or as they seem."""
    found = _measure_all(processes, False)
    return [replace(one, role=role) for one in found] if role else found


def _measure_all(processes: Iterable[psutil.Process], with_uss: bool) -> list[ProcessMemory]:
    """Measure those that have not ended."""
    return [found for process in processes if (found := _measure_one(process, with_uss)) is not None]


_RAYLET = "raylet"
_ROLES = ("server", "worker", "trainer", "node", "ray", "other")
_RAYS_OWN = ("ray::", "/ray/", "/ray_")  # in command lines of Ray's processes, and of programs in its folder
TRAINER = "fedge.parallel.member"  # the program, as the command line names it


def _measure_one(process: psutil.Process, with_uss: bool) -> ProcessMemory | None:
    """Memory of one process, or None if it has ended."""
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
    except (psutil.NoSuchProcess, psutil.AccessDenied):  # a zombie is a NoSuchProcess
        return None


def _role(process: psutil.Process) -> str:
    """Role of a process in a run, from its command line."""
    if process.pid == os.getpid():
        return "server"
    line = " ".join(process.cmdline())
    if TRAINER in line:
        return "trainer"
    if "ClientAppActor" in line:
        return "worker"
    return "ray" if any(words in line for words in _RAYS_OWN) else "other"


def _uss_mib(process: psutil.Process) -> float | None:
    """The unique set size, or None where the system does not let us see it."""
    try:
        return float(process.memory_full_info().uss) / _MIB
    except psutil.AccessDenied:
        return None


def with_cuda(
    processes: Sequence[ProcessMemory], cuda_mib: Mapping[int, tuple[float, float]]
) -> list[ProcessMemory]:
    """Processes with their reports of GPUs: `known_as` → MiB allocated, MiB reserved."""
    found = []
    for process in processes:
        allocated, reserved = cuda_mib.get(process.known_as, (None, None))
        found.append(replace(process, cuda_allocated_mib=allocated, cuda_reserved_mib=reserved))
    return found
