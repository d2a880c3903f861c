"""``fedge node``: Flower's SuperNode, whose ClientApps come from a process that has PyTorch loaded already.

Flower starts the program ``flwr-clientapp`` for every message, and each imports PyTorch anew: seconds of a
core. Here a program of that name stands first in the SuperNode's PATH, which only hands its words to this
process, by a named pipe. This process has imported everything, and forks: what comes is that same program of
Flower's, in a fresh process, without the imports. Nothing of Flower is replaced.
"""

import gc
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from fedge.config.option import ConfigError
from fedge.flower import flower_version
from fedge.link.reach import free_port
from fedge.process import exits
from fedge.process.parent import end_with_parent

_CLIENT_APP = "flwr-clientapp"
_SEPARATOR = "\x1f"  # between words; a line each
_POLL_S = 0.2
_LEAVE_S = 10.0
_POLL_VARIABLE = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"  # of newer Flowers; a second by default


def serve_node(words: Sequence[str], owns_process: bool) -> int:
    """Be a SuperNode until it ends or a signal comes; returns the exit code.

    Args:
        words: for ``flower-supernode``.
        owns_process: signals are this function's.

    Raises:
        ConfigError: Flower's programs are not there.
    """
    folder = Path(tempfile.mkdtemp(prefix="fedge-node-"))
    with exits.signals_as_exceptions(exits.LEAVE_S) if owns_process else nullcontext():
        try:
            orders = _stand_in(folder)
            node = _start(words, folder)
            try:
                exit_code = _serve(node, orders)
            finally:
                _end(node)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if exit_code > 0:
        print(
            f"fedge: the SuperNode ended, with exit code {exit_code}: the lines above have its words; a key "
            f"gets in once it is registered (flwr supernode register KEY.pub . FEDERATION)",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    return exit_code


def _stand_in(folder: Path) -> int:
    """Write the program that hands over its words; returns the reading end of the pipe.

    Forks of a process with threads of libraries are safe on Linux alone; elsewhere nobody calls the program.
    """
    pipe = folder / "orders"
    os.mkfifo(pipe, 0o600)
    script = folder / _CLIENT_APP
    script.write_text(f"#!/bin/sh\nIFS=$(printf '\\037')\nprintf '%s\\n' \"$*\" > '{pipe}'\n")
    script.chmod(0o700)
    return os.open(pipe, os.O_RDWR)  # open for writing, too: the pipe never ends


def _start(words: Sequence[str], folder: Path) -> "subprocess.Popen[bytes]":
    """Start the SuperNode, which goes with this process; its own API is for this machine alone."""
    port = str(free_port())
    here = ["--host", "127.0.0.1", "--port", port]
    if flower_version() < (1, 35):
        here = ["--clientappio-api-address", f"127.0.0.1:{port}"]
    first = [str(folder)] if sys.platform.startswith("linux") else []
    path = os.pathsep.join([*first, str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {_POLL_VARIABLE: "0.1", **os.environ, "PATH": path}
    given = [] if any(word in words for word in (here[0], "--port")) else here
    try:
        return subprocess.Popen(
            ["flower-supernode", *words, *given], env=own, stdin=subprocess.DEVNULL,
            preexec_fn=end_with_parent,
        )  # fmt: skip
    except OSError as error:
        raise ConfigError(
            f"fedge node needs the command flower-supernode, but: {error.strerror}; install Fedge's Flower"
        ) from error


def _serve(node: "subprocess.Popen[bytes]", orders: int) -> int:
    """Fork a ClientApp for each line of words until the SuperNode has ended; returns its exit code."""
    client_app = _load()
    signal.signal(signal.SIGCHLD, _reap)
    gc.collect()
    gc.freeze()  # what is loaded stays shared with all children
    waiting = b""
    while node.poll() is None:
        with suppress(InterruptedError):
            if select.select([orders], [], [], _POLL_S)[0]:
                *lines, waiting = (waiting + os.read(orders, 65536)).split(b"\n")
                for line in lines:
                    _fork(client_app, line.decode().split(_SEPARATOR))
    return node.returncode


def _load() -> Any:
    """Import what ClientApps need; returns Flower's program for them."""
    (found,) = entry_points(group="console_scripts", name=_CLIENT_APP)
    program = found.load()
    import_module("fedge.client_app")
    return program


_children: set[int] = set()


def _reap(*_: Any) -> None:
    """Forget children that have ended; the SuperNode's end is left to who waits for it."""
    for pid in list(_children):
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _children.discard(pid)


def _fork(program: Any, words: Sequence[str]) -> None:
    """Start Flower's program for ClientApps in a process of its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        _children.add(pid)
        return
    exit_code = exits.FAILED
    try:
        exit_code = _be_client_app(program, words)
    finally:  # nothing of the parent's is to be put in order here
        exits.leave_now(exit_code)


def _be_client_app(program: Any, words: Sequence[str]) -> int:
    """Carry out the program as if it had been started; returns its exit code."""
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    end_with_parent()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # a process that is started draws its own
    sys.argv = [_CLIENT_APP, *words]
    try:
        program()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    return 0


def _end(node: "subprocess.Popen[bytes]") -> None:
    """End the SuperNode as Ctrl-C would: it takes its leave of the SuperLink."""
    if node.poll() is not None:
        return
    node.send_signal(signal.SIGTERM)
    try:
        node.wait(_LEAVE_S)
    except subprocess.TimeoutExpired:
        node.kill()
        node.wait()
