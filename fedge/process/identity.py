"""Identity of a run's process, written so that any later reader can tell whether it still lives.

A process id alone comes back after a while, so its start time stands with it, and the boot and the host (or
container) outside of which neither means anything.
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


def process_name() -> str:
    """Name of this process that no other has, on any machine: host, boot, namespace, pid."""
    return f"{_machine()}/{os.getpid()}"


PID_BITS = 22  # of a process id: Linux's largest


def process_number(pid: int | None = None, machine: int | None = None) -> int:
    """A number (below 2^53) that no other process has: its id, above it a checksum of its machine.

    Of this process, another one of this machine, or one of the machine whose number is given.
    """
    machine = zlib.crc32(_machine().encode()) >> 1 if machine is None else machine
    return machine << PID_BITS | (os.getpid() if pid is None else pid)


def machine_number(process: int) -> int:
    """The part of a process number that is its machine's."""
    return process >> PID_BITS


def pid_of(process: int) -> int:
    """The process id of a process number."""
    return process & (1 << PID_BITS) - 1


@cache
def _machine() -> str:
    """Name of this machine or container, as long as it is up."""
    try:
        pids = os.readlink("/proc/self/ns/pid")  # Linux: containers count their processes by themselves
    except OSError:
        pids = ""
    return f"{platform.node()}/{_boot()}/{pids}"


def has_ended(process: Mapping[str, Any]) -> bool | None:
    """Whether a process of `this_process` has ended; None where that cannot be known from here."""
    pid = process.get("pid")
    if process.get("host") != platform.node() or type(pid) is not int or pid <= 0:
        return None
    if process.get("boot") != _boot():
        return True
    return _start(pid) != process.get("start")


def _boot() -> str:
    """Name of this boot of this machine."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return str(int(psutil.boot_time()))


def _start(pid: int) -> int | None:
    """When a process started (Linux: clock ticks after boot; else seconds), None if it has ended."""
    try:
        # the name, in brackets, may hold anything; after it come state (field 3), …, start (field 22)
        values = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        state, *others = values.split()
        return None if state in "ZXx" else int(others[18])
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _start_by_psutil(pid)
    except (OSError, ValueError, IndexError):
        return None


def _start_by_psutil(pid: int) -> int | None:
    """Do the same where there is no /proc."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else int(process.create_time())
    except psutil.Error:
        return None
