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
    """Number of the process that lasts across messages: the starter of a ClientApp, or this process."""
    return process_number(os.getppid() if is_client_app() else None)


def measure_node() -> list[ProcessMemory]:
    """Measure this ClientApp ("worker"), its trainers ("trainer") and its node's programs ("node").

    Empty if this process is not a ClientApp of a SuperNode.
    """
    if not is_client_app():
        return []
    me = psutil.Process()
    try:
        trainers = [one for one in measure_these(me.children(recursive=True)) if one.role == "trainer"]
        return [*measure_these([me], "worker"), *trainers, *measure_these(_programs(me), "node")]
    except psutil.Error:  # a program has just ended; the reply must be sent all the same
        return []


def _programs(client_app: psutil.Process) -> list[psutil.Process]:
    """Programs of a ClientApp's node on its machine: its outermost starter, and those it started."""
    top = None
    for parent in client_app.parents():
        if not (is_program(_words(parent)) or _is_node(_words(parent))):
            break
        top = parent
    if top is None:
        return []
    # a forked ClientApp of another run has the command line of `fedge node`
    return [top, *(one for one in top.children(recursive=True) if is_program(_words(one)))]


def is_program(words: Sequence[str]) -> bool:
    """Whether a command line runs Flower's SuperNode or SuperExec.

    >>> is_program(["/usr/bin/python3", "/opt/bin/flower-supernode", "--insecure"])
    True
    """
    return bool(_called(words)) and _called(words)[0] in _PROGRAMS


def _is_node(words: Sequence[str]) -> bool:
    """Whether a command line runs `fedge node`."""
    return _called(words)[:2] in (["fedge", "node"], ["fedge.cli", "node"])


def _called(words: Sequence[str]) -> list[str]:
    """Program and arguments of a command line, without the Python interpreter."""
    names = [Path(word).name for word in words[:6]]
    if names and names[0].startswith("python"):
        names = [name for name in names[1:] if name not in _STARTED_WITH]
    return names


def _words(process: psutil.Process) -> list[str]:
    """Command line of a process; empty if it has ended or belongs to another account."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


# --- on the wire -----------------------------------------------------------------------------------------


def as_numbers(processes: Sequence[ProcessMemory]) -> list[float]:
    """Processes as `_WIDTH` numbers each, for a reply; −1 for counts that the system does not report."""
    found: list[float] = []
    for one in processes[:_MOST]:
        fds, threads = (-1.0 if count is None else float(count) for count in (one.fds, one.threads))
        found += [float(_ROLES.index(one.role)), float(one.pid), one.rss_mib, fds, threads]
    return found


def of_numbers(numbers: Sequence[float], worker: float) -> list[ProcessMemory]:
    """Processes of a node from a reply's numbers; empty if malformed.

    Args:
        numbers: result of `as_numbers`, from any sender.
        worker: number of the client's lasting process, which also identifies the ClientApp, because each
            message has a new process.
    """
    rows = [tuple(numbers[at : at + _WIDTH]) for at in range(0, len(numbers), _WIDTH)]
    if not 0 < len(rows) <= _MOST or not all(map(_is_row, rows)) or not _is_whole_number(worker, _LARGEST):
        return []
    machine = machine_number(int(worker))
    return [
        ProcessMemory(
            role := _ROLES[int(place)], int(pid), rss_mib, _count(fds), None, _count(threads),
            number=int(worker) if role == "worker" else process_number(int(pid), machine),
        )
        for place, pid, rss_mib, fds, threads in rows
    ]  # fmt: skip


def _is_row(row: tuple[float, ...]) -> bool:
    """Whether numbers are valid for a process."""
    if len(row) != _WIDTH or set(map(type, row)) != {float} or not all(map(math.isfinite, row)):
        return False
    place, pid, rss_mib, *counts = row
    return (
        _is_whole_number(place, len(_ROLES))
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
