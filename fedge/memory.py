"""Resident memory of the server, its workers and Ray's own processes."""

import os
from dataclasses import dataclass

import psutil

_MIB = 2**20


@dataclass(frozen=True)
class ProcessMemory:
    """One process at one moment.

    Attributes:
        role: "server", "worker", or "ray" for Ray's own processes.
        rss_mib: resident set size; pages shared between processes count in each.
    """

    role: str
    pid: int
    rss_mib: float


def measure() -> list[ProcessMemory]:
    """Measure this process and everything it has started; processes that end meanwhile are left out."""
    server = psutil.Process()
    processes = [_measure_one(server, "server")]
    for child in server.children(recursive=True):
        try:
            role = "worker" if "ClientAppActor" in " ".join(child.cmdline()) else "ray"
            processes.append(_measure_one(child, role))
        except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
            continue
    return sorted(processes, key=lambda p: (p.pid != os.getpid(), p.role != "worker", p.pid))


def _measure_one(process: psutil.Process, role: str) -> ProcessMemory:
    """Return one process's resident memory."""
    return ProcessMemory(role, process.pid, process.memory_info().rss / _MIB)
