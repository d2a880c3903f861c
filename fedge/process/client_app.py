"""Processes of a deployment's client, and their memory.

A SuperNode starts a ClientApp for every message, so only the starter (its SuperExec, or `fedge node`) lives
from one message to the next. The node measures itself while it handles a message, and sends only numbers:
roles, process ids, MiB, files, threads. Its machine is identified by a number, as for the client's times
(`fedge.process.identity`).
"""

import math
import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import psutil

from fedge.process.identity import machine_number, process_number
from fedge.process.resources.memory import ProcessMemory, measure_these

_CLIENT_APP = "flwr-clientapp"
_PROGRAMS = ("flower-superexec", "flower-supernode")
_ROLES = ("worker", "trainer", "node")
_STARTED_WITH = ("-P", "-m", "fedge.link.own_account")  # words before the name of a program of Flower
_WIDTH = 5  # numbers of a process: role, pid, MiB, files, threads
_MOST = 256  # processes of a node
_LARGEST = 2.0**53


def is_client_app() -> bool:
    """Whether this process is a ClientApp started by a SuperNode."""
    return bool(sys.argv) and _stem(sys.argv[0]) == _CLIENT_APP


@lru_cache(maxsize=4)
def _stem(program: str) -> str:
    """Name of a program without folder and suffix; cached, because every call of a client needs it."""
    return Path(program).stem


def lasting_process() -> int:
    """Number of the process lasting across messages: the starter of a ClientApp, or this process."""
    return process_number(os.getppid() if is_client_app() else None)


def measure_node() -> list[ProcessMemory]:
    """Measure this ClientApp ("worker"), its trainers ("trainer") and its node's programs ("node").

    Empty if this process is not a ClientApp of a SuperNode.
    """
    if not is_client_app():
        return []
    this_process = psutil.Process()
    try:
        trainers = [
            process
            for process in measure_these(this_process.children(recursive=True))
            if process.role == "trainer"
        ]
        return [
            *measure_these([this_process], "worker"),
            *trainers,
            *measure_these(_programs(this_process), "node"),
        ]
    except psutil.Error:  # a program has just ended; the reply must be sent all the same
        return []


def _programs(client_app: psutil.Process) -> list[psutil.Process]:
    """Programs of a ClientApp's node on its machine: its outermost starter, and those it started."""
    top = None
    for parent in client_app.parents():
        if not (is_program(_command_line(parent)) or _is_node(_command_line(parent))):
            break
        top = parent
    if top is None:
        return []
    # a forked ClientApp of another run has the command line of `fedge node`
    return [top, *(child for child in top.children(recursive=True) if is_program(_command_line(child)))]


def is_program(command_line: Sequence[str]) -> bool:
    """Whether a command line runs Flower's SuperNode or SuperExec.

    >>> is_program(["/usr/bin/python3", "/opt/bin/flower-supernode", "--insecure"])
    True
    """
    return bool(_program_and_arguments(command_line)) and _program_and_arguments(command_line)[0] in _PROGRAMS


def _is_node(command_line: Sequence[str]) -> bool:
    """Whether a command line runs `fedge node`."""
    return _program_and_arguments(command_line)[:2] in (["fedge", "node"], ["fedge.cli", "node"])


def _program_and_arguments(command_line: Sequence[str]) -> list[str]:
    """Program and arguments of a command line, without the Python interpreter."""
    names = [Path(word).name for word in command_line[:6]]
    if names and names[0].startswith("python"):
        names = [name for name in names[1:] if name not in _STARTED_WITH]
    return names


def _command_line(process: psutil.Process) -> list[str]:
    """Command line of a process; empty if it has ended or belongs to another account."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


# --- on the wire -----------------------------------------------------------------------------------------


def as_numbers(processes: Sequence[ProcessMemory]) -> list[float]:
    """Processes as `_WIDTH` numbers each, for a reply; −1 for unknown counts."""
    numbers: list[float] = []
    for process in processes[:_MOST]:
        fds, threads = (-1.0 if count is None else float(count) for count in (process.fds, process.threads))
        numbers += [float(_ROLES.index(process.role)), float(process.pid), process.rss_mib, fds, threads]
    return numbers


def processes_from_numbers(numbers: Sequence[float], worker: float) -> list[ProcessMemory]:
    """Processes of a node from a reply's numbers; empty if malformed.

    Args:
        numbers: result of `as_numbers`, from any sender.
        worker: number of the client's lasting process, which also identifies the ClientApp, because each
            message has a new process.
    """
    rows = [tuple(numbers[start : start + _WIDTH]) for start in range(0, len(numbers), _WIDTH)]
    if not 0 < len(rows) <= _MOST or not all(map(_is_row, rows)) or not _is_whole_number(worker, _LARGEST):
        return []
    machine = machine_number(int(worker))
    return [
        ProcessMemory(
            role := _ROLES[int(role_index)], int(pid), rss_mib, _count(fds), None, _count(threads),
            number=int(worker) if role == "worker" else process_number(int(pid), machine),
        )
        for role_index, pid, rss_mib, fds, threads in rows
    ]  # fmt: skip


def _is_row(row: tuple[float, ...]) -> bool:
    """Whether numbers are valid for a process."""
    if len(row) != _WIDTH or set(map(type, row)) != {float} or not all(map(math.isfinite, row)):
        return False
    role_index, pid, rss_mib, *counts = row
    return (
        _is_whole_number(role_index, len(_ROLES))
        and _is_whole_number(pid, 2**31)
        and 0 <= rss_mib < _LARGEST
        and all(count == -1 or _is_whole_number(count, _LARGEST) for count in counts)
    )


def _is_whole_number(number: float, below: float) -> bool:
    """Whether a number is whole, at least 0, and below a limit."""
    return 0 <= number < below and float(number).is_integer()


def _count(number: float) -> int | None:
    """A count; None for −1."""
    return None if number < 0 else int(number)
