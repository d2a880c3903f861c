"""Identity of a run's process, by which a later reader can check whether it is still alive.

Process ids are reused, so the start time is recorded as well, and the boot and the host (or container)
within which both are valid.
"""

import os
import platform
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import psutil

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # Linux


def this_process() -> dict[str, Any]:
    """This process for a manifest: pid, start, boot, host."""
    pid = os.getpid()
    return {"pid": pid, "start": _start(pid), "boot": _boot(), "host": platform.node()}


@cache
def process_name() -> str:
    """Name of this process, unique across machines: host, boot, namespace, pid."""
    return f"{_machine()}/{os.getpid()}"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=process_name.cache_clear)  # a forked process has another id


PID_BITS = 22  # bits of Linux's largest process id


def process_number(pid: int | None = None, machine: int | None = None) -> int:
    """Unique number of a process (below 2^53): its id, and above it a checksum of its machine.

    Args:
        pid: process id; None for this process.
        machine: number of its machine; None for this one.
    """
    machine = zlib.crc32(_machine().encode()) >> 1 if machine is None else machine
    return machine << PID_BITS | (os.getpid() if pid is None else pid)


def machine_number(process: int) -> int:
    """Machine's part of a process number."""
    return process >> PID_BITS


def pid_of(process: int) -> int:
    """Process id within a process number."""
    return process & (1 << PID_BITS) - 1


@cache
def _machine() -> str:
    """Name of this machine or container, for the current boot."""
    return f"{platform.node()}/{_boot()}/{namespace()}"


def namespace() -> str:
    """Name of the namespace of process ids, which differs between containers; empty outside Linux."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def has_ended(process: Mapping[str, Any]) -> bool | None:
    """Whether a process described by `this_process` has ended; None if unknown on this machine."""
    pid = process.get("pid")
    if process.get("host") != platform.node() or type(pid) is not int or pid <= 0:
        return None
    if process.get("boot") != _boot():
        return True
    return _start(pid) != process.get("start")


def is_of_this_boot(process: Mapping[str, Any]) -> bool:
    """Whether a process described by `this_process` ran on this machine since its last start."""
    return process.get("host") == platform.node() and process.get("boot") == _boot()


def _boot() -> str:
    """Id of this machine's current boot."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return str(int(psutil.boot_time()))


def _start(pid: int) -> int | None:
    """Start time of a process (Linux: clock ticks after boot; else seconds); None if it has ended."""
    try:
        # the name, in parentheses, may contain anything; then come state (field 3), …, start (field 22)
        values = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        state, *fields = values.split()
        return None if state in "ZXx" else int(fields[18])
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _start_by_psutil(pid)
    except (OSError, ValueError, IndexError):
        return None


def _start_by_psutil(pid: int) -> int | None:
    """Start time in seconds, on systems without /proc; None if the process has ended."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else int(process.create_time())
    except psutil.Error:
        return None
