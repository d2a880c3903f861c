"""``fedge node``: Flower's SuperNode, whose ClientApps come from a process that has PyTorch loaded already.

Flower starts the program ``flwr-clientapp`` for every message, and each imports PyTorch anew: seconds of a
core. Here a program of that name stands first in the SuperNode's PATH, which only hands its words to this
process, by a named pipe. This process has imported everything, and forks: the child is that same program of
Flower's, in a fresh process, without the imports. Nothing of Flower is replaced.

A SuperNode of Flower 1.25 that asks for a message before its SuperLink has all of it says "Failed to receive
message", and waits for ever for the reply to a message that it has thrown away. It is started again, and the
run asks it once more. If it could not take its leave, its SuperLink takes its old self for present for up to
a minute, and says that the new one "could not be activated": it is started again until it is let in.
"""

import gc
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from fedge.config.option import ConfigError
from fedge.flower import has_one_port
from fedge.launch.node_folder import make_folder
from fedge.launch.node_output import NodeOutput
from fedge.launch.superlink import KEEP_ENVIRONMENT
from fedge.link.own_account import guarded_words
from fedge.link.reach import free_port
from fedge.process import exits
from fedge.process.parent import end_with_parent, ending_with_parent

_CLIENT_APP = "flwr-clientapp"
_LOST = b"Failed to receive message"
_REFUSED = b"could not be activated"
_AGAIN_S = 2.0
_PATIENCE_S = 75.0  # its old self is there for a minute at most: two heartbeats of 30 s
_SEPARATOR = "\x1f"  # between words; a line each
_CHUNK = 65536
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
    folder = make_folder()
    with exits.signals_as_exceptions(exits.LEAVE_S) if owns_process else nullcontext():
        try:
            exit_code = _serve_on(words, folder, _stand_in(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if exit_code > 0:
        print(
            f"fedge: the SuperNode ended, with exit code {exit_code}: the lines above have its words; a key "
            f"gets in once its .pub lies in the folder of certificates of fedge superlink, or fedge leaf",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    return exit_code


def _serve_on(words: Sequence[str], folder: Path, orders: int) -> int:
    """Start the SuperNode, and again where that helps; returns its exit code in the end."""
    refused_at: float | None = None
    while True:
        node = _start(words, folder)
        try:
            end = _serve(node, orders)
        finally:
            _end(node)
        now = time.monotonic()
        if end == _LOST:
            print("fedge: the SuperNode has lost a message; it is started again", flush=True)
            refused_at = None
        elif end != _REFUSED or (refused_at is not None and now - refused_at >= _PATIENCE_S):
            return node.returncode
        else:
            if refused_at is None:
                print(
                    f"fedge: the SuperLink takes this SuperNode's old self for present; it is started again "
                    f"every {_AGAIN_S:g} s, for {_PATIENCE_S:g} s",
                    flush=True,
                )
                refused_at = now
            time.sleep(_AGAIN_S)


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
    if not has_one_port():
        here = ["--clientappio-api-address", f"127.0.0.1:{port}"]
    first = [str(folder)] if sys.platform.startswith("linux") else []
    path = os.pathsep.join([*first, str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {_POLL_VARIABLE: "0.1", KEEP_ENVIRONMENT: "1", **os.environ, "PATH": path}
    given = [] if any(word in words for word in (here[0], "--port")) else here
    try:
        return subprocess.Popen(
            ending_with_parent([*guarded_words("flower-supernode"), *words, *given]), env=own,
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise ConfigError(
            f"fedge node needs the command flower-supernode, but: {error.strerror}; install Fedge's Flower"
        ) from error


def _serve(node: "subprocess.Popen[bytes]", orders: int) -> bytes | int:
    """Fork a ClientApp for each line of words until the SuperNode has ended, or waits for ever.

    Returns:
        Its exit code; or its words by which it is to be started again.
    """
    assert node.stderr is not None
    client_app, said = _load(), node.stderr.fileno()
    signal.signal(signal.SIGCHLD, _reap)
    gc.collect()
    gc.freeze()  # loaded modules stay shared with all children
    waiting, last, heard, refused = b"", b"", [orders, said], False
    output = NodeOutput()
    while node.poll() is None:
        ready = select.select([*heard, *output.descriptors], [], [], _POLL_S)[0]
        output.pass_on(ready)
        if orders in ready:
            *lines, waiting = (waiting + os.read(orders, _CHUNK)).split(b"\n")
            for line in lines:
                _fork(client_app, line.decode().split(_SEPARATOR), output)
        if said in ready:
            last = last[-len(_LOST) :] + _passed_on(said, heard)
            if _LOST in last:
                return _LOST
            refused = refused or _REFUSED in last
    while said in heard and said in select.select(heard, [], [], 0)[0]:
        last = last[-len(_LOST) :] + _passed_on(said, heard)
        refused = refused or _REFUSED in last
    return _REFUSED if refused and node.returncode else int(node.returncode)


def _passed_on(said: int, heard: list[int]) -> bytes:
    """Print the SuperNode's output; returns it. After its end there is no more listening."""
    words = os.read(said, _CHUNK)
    if not words:
        heard.remove(said)
    with suppress(OSError, ValueError):  # nobody looks
        os.write(2, words)
    return words


@cache
def _load() -> Any:
    """Import modules that ClientApps need; returns Flower's program for them."""
    (found,) = entry_points(group="console_scripts", name=_CLIENT_APP)
    program = found.load()
    import_module("fedge.client_app")
    return program


_children: set[int] = set()


def _reap(*_: Any) -> None:
    """Forget children that have ended; the SuperNode's end is left to its waiter."""
    for pid in list(_children):
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG)[0] == 0:
                continue
        _children.discard(pid)


def _fork(program: Any, words: Sequence[str], output: NodeOutput) -> None:
    """Start Flower's program for ClientApps in a process of its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = output.fork()
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
        sys.modules["numpy"].random.seed()  # a started process draws its own
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
