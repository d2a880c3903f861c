"""A node's ClientApps: a forked process per message, or one for all messages once it holds a GPU.

A child ends with its message unless it reports that it stays (`fedge.process.lasting`); then it gets the next
message's arguments through a pipe. If it has ended or is busy, a new process handles the message.

Flower's program is written to end its process: `flwr_exit` starts a thread that kills it after some seconds,
and every message starts a thread that watches Flower's starter. In a child that may stay, `flwr_exit` only
leaves the program, and the starter is watched only once. If Flower lacks these names, each message has its
own process.
"""

import inspect
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from fedge.launch.nodes.node_output import NodeOutput
from fedge.process import lasting
from fedge.process.endings import exits
from fedge.process.endings.parent import end_with_parent

CLIENT_APP = "flwr-clientapp"
_RUNTIME = "flwr.supernode.runtime.run_clientapp"
_HANDLERS = ("flwr.common.exit.exit_handler", "flwr.supercore.exit.exit_handler")  # 1.25; newer
_PHASE = "run_before_force_exit"  # of a newer Flower's handlers
SEPARATOR = "\x1f"  # between arguments; one line per message
_CHUNK = 65536
_STAYS = b"."

_children: set[int] = set()


def reap(*_: Any) -> None:
    """Reap children that have ended, other than the SuperNode."""
    for pid in list(_children):
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _children.discard(pid)


@dataclass
class _Kept:
    """A child that may stay: this end of its pipes, and whether it is waiting for a message."""

    pid: int
    orders: int
    idle: bool = False


class ClientApps:
    """Processes of a node's ClientApps."""

    def __init__(self, program: Callable[[], object], output: NodeOutput) -> None:
        """Prepare to run Flower's program, with its output to `output`."""
        self._program = program
        self._output = output
        self._kept: dict[int, _Kept] = {}  # by the pipe on which the child reports that it stays

    @property
    def descriptors(self) -> list[int]:
        """Pipes on which children report that they stay, for `select`."""
        return list(self._kept)

    def hear(self, ready: Iterable[int]) -> None:
        """Read the children's reports; at most one child is kept waiting, and ended ones are dropped."""
        for pipe in self._kept.keys() & set(ready):
            waits = any(child.idle for child in self._kept.values())
            if os.read(pipe, len(_STAYS)) and not waits:
                self._kept[pipe].idle = True
            else:
                self._let_go(pipe)

    def start(self, words: Sequence[str]) -> None:
        """Handle a message, given by its arguments for Flower's program."""
        self._hear_now()
        for pipe, child in list(self._kept.items()):
            if not child.idle:
                continue
            child.idle = False
            self._output.renew(child.pid)
            try:
                os.write(child.orders, (SEPARATOR.join(words) + "\n").encode())
                return
            except OSError:  # it has died since
                self._let_go(pipe)
        self._fork(words)

    def close(self) -> None:
        """Let all waiting children end."""
        for pipe in list(self._kept):
            self._let_go(pipe)

    def _hear_now(self) -> None:
        self.hear(select.select(self.descriptors, [], [], 0)[0])

    def _let_go(self, pipe: int) -> None:
        """Close a child's pipes, so that it ends once it waits for a message."""
        os.close(self._kept.pop(pipe).orders)
        os.close(pipe)

    def _fork(self, words: Sequence[str]) -> None:
        """Start a process for a message."""
        sys.stdout.flush()
        sys.stderr.flush()
        (theirs, orders), (said, saying) = os.pipe(), os.pipe()
        pid = self._output.fork()
        if pid:
            os.close(theirs)
            os.close(saying)
            self._kept[said] = _Kept(pid, orders)
            _children.add(pid)
            return
        exit_code = exits.FAILED
        try:
            for other, child in self._kept.items():
                os.close(child.orders)
                os.close(other)
            os.close(orders)
            os.close(said)
            exit_code = be_client_app(self._program, words, theirs, saying)
        finally:  # skip the parent's clean-up
            exits.leave_now(exit_code)


def be_client_app(program: Callable[[], object], words: Sequence[str], orders: int, saying: int) -> int:
    """Run the program for a message, and for further ones while this process stays; returns an exit code.

    Args:
        program: Flower's program.
        words: its arguments.
        orders: pipe with the arguments of further messages.
        saying: pipe on which to report that this process stays.
    """
    if _leaves_only():
        lasting.allow_to_stay()
    waiting = b""
    while True:
        exit_code = _run(program, words)
        if exit_code or not lasting.stays():
            return exit_code
        with suppress(OSError):  # the node has ended
            os.write(saying, _STAYS)
        while b"\n" not in waiting:
            more = os.read(orders, _CHUNK)
            if not more:
                return exit_code
            waiting += more
        line, _, waiting = waiting.partition(b"\n")
        words = line.decode().split(SEPARATOR)


def _run(program: Callable[[], object], words: Sequence[str]) -> int:
    """Run the program as if started from the shell; returns its exit code."""
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    end_with_parent()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # a fresh process would have its own seed
    sys.argv = [CLIENT_APP, *words]
    try:
        program()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 0


def _leaves_only() -> bool:
    """Keep Flower's program from ending this process; False if this Flower has other names."""
    runtime, handlers = _module(_RUNTIME), _module(*_HANDLERS)
    ends, watch = getattr(runtime, "flwr_exit", None), getattr(runtime, "start_parent_process_monitor", None)
    close = getattr(handlers, "trigger_exit_handlers", None)
    if runtime is None or ends is None or watch is None or close is None:
        return False
    phased = _PHASE in inspect.signature(close).parameters
    phases = [{_PHASE: True}, {_PHASE: False}] if phased else [{}]
    watched: set[int] = set()

    def leave(code: int, *arguments: Any, **named: Any) -> None:
        if code or not lasting.stays():
            ends(code, *arguments, **named)
        for phase in phases:
            close(**phase)  # closes the message's connection
        sys.exit(0)

    def watch_once(parent_pid: int) -> None:
        if parent_pid not in watched:
            watched.add(parent_pid)
            watch(parent_pid)

    runtime.flwr_exit = leave  # type: ignore[attr-defined]
    runtime.start_parent_process_monitor = watch_once  # type: ignore[attr-defined]
    return True


def _module(*names: str) -> ModuleType | None:
    """The first of these modules of Flower that exists; None if this version has none of them."""
    for name in names:
        with suppress(ImportError):
            return import_module(name)
    return None
