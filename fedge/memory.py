"""Resident memory and open descriptors of the server, its workers and Ray's own processes."""

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
        fds: open file descriptors; None where the system does not count them (Windows).
    """

    role: str
    pid: int
    rss_mib: float
    fds: int | None = None


def measure() -> list[ProcessMemory]:
    """Measure this process and everything it has started; processes that end meanwhile are left out."""
    server = psutil.Process()
    measured = [_measure_one(server), *map(_measure_one, server.children(recursive=True))]
    there = [process for process in measured if process is not None]
    return sorted(there, key=lambda p: (_ROLES.index(p.role), p.pid))


_ROLES = ("server", "worker", "ray")


def _measure_one(process: psutil.Process) -> ProcessMemory | None:
    """Return what one process holds, or None if it has ended."""
    try:
        role = "worker" if "ClientAppActor" in " ".join(process.cmdline()) else "ray"
        rss_mib = process.memory_info().rss / _MIB
        fds = process.num_fds() if hasattr(process, "num_fds") else None
    except (psutil.NoSuchProcess, psutil.AccessDenied):  # a zombie is a NoSuchProcess
        return None
    return ProcessMemory("server" if process.pid == os.getpid() else role, process.pid, rss_mib, fds)
