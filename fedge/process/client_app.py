"""A client of a deployment: its process, and the memory of its node's processes.

A SuperNode has a ClientApp started for every message, so only its starter lives on from one to the next:
its SuperExec, or `fedge node`. The node measures itself where it answers, and sends numbers and nothing else:
roles, process ids, MiB, files, threads. Of its machine no more is told than with the client's times: a number
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
from fedge.process.memory import ProcessMemory, measure_these

_CLIENT_APP = "flwr-clientapp"
_PROGRAMS = ("flower-superexec", "flower-supernode")
_ROLES = ("worker", "trainer", "node")
_STARTED_WITH = ("-P", "-m", "fedge.link.own_account")  # running Flower's programs
_WIDTH = 5  # numbers of a process: role, pid, MiB, files, threads
_MOST = 256  # processes of a node
_LARGEST = 2.0**53


def is_client_app() -> bool:
    """Whether this process is a ClientApp that a SuperNode has had started."""
    return bool(sys.argv) and _stem(sys.argv[0]) == _CLIENT_APP


@lru_cache(maxsize=4)
def _stem(program: str) -> str:
    """Name of a program without its folder and ending; asked for at every call of a client."""
    return Path(program).stem


def lasting_process() -> int:
    """Number of the process that takes message after message: the starter of a ClientApp."""
    return process_number(os.getppid() if is_client_app() else None)


def measure_node() -> list[ProcessMemory]:
    """Measure this ClientApp ("worker"), its trainers ("trainer") and its node's programs ("node").

    Nothing where this process is no ClientApp of a SuperNode.
    """
    if not is_client_app():
        return []
    me = psutil.Process()
    try:
        trainers = [one for one in measure_these(me.children(recursive=True)) if one.role == "trainer"]
        return [*measure_these([me], "worker"), *trainers, *measure_these(_programs(me), "node")]
    except psutil.Error:  # a program has just ended; no reply is lost over it
        return []


def _programs(client_app: psutil.Process) -> list[psutil.Process]:
    """Programs of a ClientApp's node on its machine: its starter, and those beside."""
    top = None
    for parent in client_app.parents():
        if not (is_program(_words(parent)) or _is_node(_words(parent))):
            break
        top = parent
    if top is None:
        return []
    # a ClientApp of another run, if it is a fork, is called as `fedge node` is
    return [top, *(one for one in top.children(recursive=True) if is_program(_words(one)))]


def is_program(words: Sequence[str]) -> bool:
    """Whether a command line is that of Flower's SuperNode or its SuperExec.

    >>> is_program(["/usr/bin/python3", "/opt/bin/flower-supernode", "--insecure"])
    True
    """
    return bool(_called(words)) and _called(words)[0] in _PROGRAMS


def _is_node(words: Sequence[str]) -> bool:
    """Whether a command line is that of `fedge node`."""
    return _called(words)[:2] in (["fedge", "node"], ["fedge.cli", "node"])


def _called(words: Sequence[str]) -> list[str]:
    """The program of a command line and its first word, without the Python that carries it out."""
    names = [Path(word).name for word in words[:6]]
    if names and names[0].startswith("python"):
        names = [name for name in names[1:] if name not in _STARTED_WITH]
    return names


def _words(process: psutil.Process) -> list[str]:
    """A process's command line; empty where it has ended, or is somebody else's."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


# --- on the wire -----------------------------------------------------------------------------------------


def as_numbers(processes: Sequence[ProcessMemory]) -> list[float]:
    """Processes as a reply has them, `_WIDTH` numbers each; −1 for numbers that the system does not count."""
    found: list[float] = []
    for one in processes[:_MOST]:
        fds, threads = (-1.0 if count is None else float(count) for count in (one.fds, one.threads))
        found += [float(_ROLES.index(one.role)), float(one.pid), one.rss_mib, fds, threads]
    return found


def of_numbers(numbers: Sequence[float], worker: float) -> list[ProcessMemory]:
    """Numbers of a reply about its node's processes; empty where they are malformed.

    Args:
        numbers: of `as_numbers`, from any sender.
        worker: number of the client's lasting process: the ClientApp is known by it, since there is another
            for each message.
    """
    rows = [tuple(numbers[at : at + _WIDTH]) for at in range(0, len(numbers), _WIDTH)]
    if not 0 < len(rows) <= _MOST or not all(map(_is_row, rows)) or not _is_whole(worker, _LARGEST):
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
    """Whether numbers can be a process's."""
    if len(row) != _WIDTH or set(map(type, row)) != {float} or not all(map(math.isfinite, row)):
        return False
    place, pid, rss_mib, *counts = row
    return (
        _is_whole(place, len(_ROLES))
        and _is_whole(pid, 2**31)
        and 0 <= rss_mib < _LARGEST
        and all(count == -1 or _is_whole(count, _LARGEST) for count in counts)
    )


def _is_whole(number: float, below: float) -> bool:
    """Whether a number is whole, from 0 and below another."""
    return 0 <= number < below and float(number).is_integer()


def _count(number: float) -> int | None:
    """A number of things, None for −1."""
    return None if number < 0 else int(number)
