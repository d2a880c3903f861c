"""A node's ClientApps: a forked process per message, or one for all messages once it holds a GPU.

A child ends with its message unless it reports that it stays (`fedge.process.persistent_process`); then it
gets the next message's arguments through a pipe. If it has ended or is busy, a new process handles the
message.

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
from fedge.process import persistent_process
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
    """Reap ended children, other than the SuperNode."""
    for pid in list(_children):
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _children.discard(pid)


@dataclass
class _ReusableChild:
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
        self._reusable: dict[int, _ReusableChild] = {}  # by the pipe on which the child reports that it stays

    @property
    def descriptors(self) -> list[int]:
        """Pipes on which children report that they stay, for `select`."""
        return list(self._reusable)

    def read_reports(self, ready: Iterable[int]) -> None:
        """Read the children's reports; at most one child is kept waiting, and ended ones are dropped."""
        for pipe in self._reusable.keys() & set(ready):
            has_idle = any(child.idle for child in self._reusable.values())
            if os.read(pipe, len(_STAYS)) and not has_idle:
                self._reusable[pipe].idle = True
            else:
                self._release(pipe)

    def start(self, arguments: Sequence[str]) -> None:
        """Handle a message, given by its arguments for Flower's program."""
        self._poll_reports()
        for pipe, child in list(self._reusable.items()):
            if not child.idle:
                continue
            child.idle = False
            self._output.reset_limit(child.pid)
            try:
                os.write(child.orders, (SEPARATOR.join(arguments) + "\n").encode())
                return
            except OSError:  # it has died since
                self._release(pipe)
        self._fork(arguments)

    def close(self) -> None:
        """Let all waiting children end."""
        for pipe in list(self._reusable):
            self._release(pipe)

    def _poll_reports(self) -> None:
        self.read_reports(select.select(self.descriptors, [], [], 0)[0])

    def _release(self, pipe: int) -> None:
        """Close a child's pipes, to end it at its next wait for a message."""
        os.close(self._reusable.pop(pipe).orders)
        os.close(pipe)

    def _fork(self, arguments: Sequence[str]) -> None:
        """Start a process for a message."""
        sys.stdout.flush()
        sys.stderr.flush()
        (child_orders, orders), (reports, child_reports) = os.pipe(), os.pipe()
        pid = self._output.fork()
        if pid:
            os.close(child_orders)
            os.close(child_reports)
            self._reusable[reports] = _ReusableChild(pid, orders)
            _children.add(pid)
            return
        exit_code = exits.FAILED
        try:
            for pipe, child in self._reusable.items():
                os.close(child.orders)
                os.close(pipe)
            os.close(orders)
            os.close(reports)
            exit_code = be_client_app(self._program, arguments, child_orders, child_reports)
        finally:  # skip the parent's clean-up
            exits.leave_now(exit_code)


def be_client_app(program: Callable[[], object], arguments: Sequence[str], orders: int, reports: int) -> int:
    """Run the program for a message, and for further ones while this process stays; returns an exit code.

    Args:
        program: Flower's program.
        arguments: its arguments.
        orders: pipe with the arguments of further messages.
        reports: pipe on which to report that this process stays.
    """
    if _prevent_exit():
        persistent_process.allow_further_messages()
    pending = b""
    while True:
        exit_code = _run_program(program, arguments)
        if exit_code or not persistent_process.handles_further_messages():
            return exit_code
        with suppress(OSError):  # the node has ended
            os.write(reports, _STAYS)
        while b"\n" not in pending:
            chunk = os.read(orders, _CHUNK)
            if not chunk:
                return exit_code
            pending += chunk
        line, _, pending = pending.partition(b"\n")
        arguments = line.decode().split(SEPARATOR)


def _run_program(program: Callable[[], object], arguments: Sequence[str]) -> int:
    """Run the program as if started from the shell; returns its exit code."""
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    end_with_parent()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # a fresh process would have its own seed
    sys.argv = [CLIENT_APP, *arguments]
    try:
        program()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 0


def _prevent_exit() -> bool:
    """Keep Flower's program from ending this process; False if this Flower has other names."""
    runtime, handlers = _import_first(_RUNTIME), _import_first(*_HANDLERS)
    exit_process = getattr(runtime, "flwr_exit", None)
    start_monitor = getattr(runtime, "start_parent_process_monitor", None)
    run_handlers = getattr(handlers, "trigger_exit_handlers", None)
    if runtime is None or exit_process is None or start_monitor is None or run_handlers is None:
        return False
    has_phases = _PHASE in inspect.signature(run_handlers).parameters
    phases = [{_PHASE: True}, {_PHASE: False}] if has_phases else [{}]
    monitored: set[int] = set()

    def leave(code: int, *arguments: Any, **keywords: Any) -> None:
        if code or not persistent_process.handles_further_messages():
            exit_process(code, *arguments, **keywords)
        for phase in phases:
            run_handlers(**phase)  # closes the message's connection
        sys.exit(0)

    def watch_once(parent_pid: int) -> None:
        if parent_pid not in monitored:
            monitored.add(parent_pid)
            start_monitor(parent_pid)

    runtime.flwr_exit = leave  # type: ignore[attr-defined]
    runtime.start_parent_process_monitor = watch_once  # type: ignore[attr-defined]
    return True


def _import_first(*names: str) -> ModuleType | None:
    """The first existing one of these modules of Flower; None if this version has none of them."""
    for name in names:
        with suppress(ImportError):
            return import_module(name)
    return None
