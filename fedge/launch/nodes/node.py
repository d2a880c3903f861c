"""``fedge node``: Flower's SuperNode, with ClientApps forked from a process with PyTorch loaded.

Flower starts the program ``flwr-clientapp`` for every message, and each start imports PyTorch again, which
takes seconds of CPU time. Here a program of the same name comes first in the SuperNode's PATH, and only
passes its arguments through a named pipe to this process. This process has imported everything and forks; the
child then runs Flower's own program, and stays for further messages if it holds a GPU (`client_apps`). The
only replaced part of Flower is the time of a reply (`fedge.link.untimed_replies`).

If a SuperNode of Flower 1.25 asks for a message before its SuperLink has the whole message, it logs "Failed
to receive message", drops the message and waits forever for its reply. If it cannot pass on a reply, it logs
"Failed to send message" and drops it (`fedge.link.untimed_replies` prevents the usual cause). In both cases
the SuperNode is restarted, and the run asks again. If it could not sign off, the SuperLink considers it
present for up to a minute, and reports that the new one "could not be activated"; the new one is restarted
until its admission. A SuperLink restarted without its database, e.g. after another node's key was withdrawn,
answers "Node ID … not found", and Flower's SuperNode ends, is restarted, and is activated by its key. From
1.41 on the answer is "401 Unauthorized", and the SuperNode may report only a graceful end.
"""

import gc
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from fedge.config.registers.option import ConfigError
from fedge.flower import has_one_port
from fedge.launch.flower_runs.superlink import KEEP_ENVIRONMENT
from fedge.launch.nodes.client_apps import CLIENT_APP, SEPARATOR, ClientApps, reap
from fedge.launch.nodes.node_folder import make_node_folder
from fedge.launch.nodes.node_gpu import take_gpu
from fedge.launch.nodes.node_output import NodeOutput, SuperNodeOutput
from fedge.link.own_account import guarded_command
from fedge.link.reach import free_port
from fedge.process.endings import exits
from fedge.process.endings.parent import ending_with_parent

_LOST, _FORGOTTEN = b"has lost a message", b"is not known to its SuperLink any more"
_LOSSES = (b"Failed to receive message", b"Failed to send message")
_UNKNOWN = re.compile(rb"Node ID \d+ not found|'401 Unauthorized'")
_TAIL = 40  # bytes of output kept, in case a message is split between two pieces
_ADMITTED, _LEFT = b"SuperNode ID: ", b"SuperNode terminated gracefully"
_REFUSED = b"could not be activated"
_RESTART_S = 2.0
_PATIENCE_S = 75.0  # the predecessor expires after a minute: two heartbeats of 30 s

_CHUNK = 65536
_POLL_S = 0.2
_LEAVE_S = 10.0
_POLL_VARIABLE = "FLWR_SUPEREXEC_TASK_POLL_INTERVAL"  # in newer Flower versions; one second by default


def serve_node(arguments: Sequence[str], owns_process: bool) -> int:
    """Run a SuperNode until its end or a signal; returns the exit code.

    Args:
        arguments: those of ``flower-supernode``.
        owns_process: whether this function handles signals.

    Raises:
        ConfigError: Flower's programs are not installed.
    """
    if gpu_message := take_gpu():
        print(f"fedge: {gpu_message}", flush=True)
    folder = make_node_folder()
    with exits.signals_as_exceptions(exits.LEAVE_S) if owns_process else nullcontext():
        try:
            exit_code = _serve_with_restarts(arguments, folder, _write_forwarder(folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if exit_code > 0:
        print(
            f"fedge: the SuperNode ended with exit code {exit_code}, see the lines above; a key is "
            f"admitted once its .pub file is in the --certs folder of fedge superlink or fedge leaf",
            file=sys.stderr, flush=True,
        )  # fmt: skip
    return exit_code


def _serve_with_restarts(arguments: Sequence[str], folder: Path, orders: int) -> int:
    """Start the SuperNode, with restarts where useful; returns its final exit code."""
    refused_at: float | None = None
    while True:
        node = _start_supernode(arguments, folder)
        try:
            end = _serve(node, orders)
        finally:
            _end_supernode(node)
        now = time.monotonic()
        if isinstance(end, bytes) and end != _REFUSED:
            print(f"fedge: the SuperNode {end.decode()}; restarting it", flush=True)
            refused_at = None
        elif end != _REFUSED or (refused_at is not None and now - refused_at >= _PATIENCE_S):
            return node.returncode
        else:
            if refused_at is None:
                print(
                    f"fedge: the SuperLink considers this SuperNode's predecessor present; restarting it "
                    f"every {_RESTART_S:g} s, for {_PATIENCE_S:g} s",
                    flush=True,
                )
                refused_at = now
            time.sleep(_RESTART_S)


def _write_forwarder(folder: Path) -> int:
    """Write the program passing on its arguments; returns the reading end of the pipe.

    Forking a process with library threads is safe only on Linux; elsewhere the program is not in PATH.
    """
    pipe = folder / "orders"
    os.mkfifo(pipe, 0o600)
    script = folder / CLIENT_APP
    script.write_text(f"#!/bin/sh\nIFS=$(printf '\\037')\nprintf '%s\\n' \"$*\" > '{pipe}'\n")
    script.chmod(0o700)
    return os.open(pipe, os.O_RDWR)  # also open for writing, so the pipe has no end of file


def _start_supernode(arguments: Sequence[str], folder: Path) -> "subprocess.Popen[bytes]":
    """Start the SuperNode, to end with this process; its own API listens on the loopback interface."""
    port = str(free_port())
    default_api = ["--host", "127.0.0.1", "--port", port]
    if not has_one_port():
        default_api = ["--clientappio-api-address", f"127.0.0.1:{port}"]
    forwarder_folder = [str(folder)] if sys.platform.startswith("linux") else []
    path = os.pathsep.join([*forwarder_folder, str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {_POLL_VARIABLE: "0.1", KEEP_ENVIRONMENT: "1", **os.environ, "PATH": path}
    api_options = [] if any(option in arguments for option in (default_api[0], "--port")) else default_api
    try:
        return subprocess.Popen(
            ending_with_parent([*guarded_command("flower-supernode"), *arguments, *api_options]),
            env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise ConfigError(
            f"fedge node needs the command flower-supernode, but: "
            f"{error.strerror or error}; install Fedge's Flower"
        ) from error


def _serve(node: "subprocess.Popen[bytes]", orders: int) -> bytes | int:
    """Fork a ClientApp for each line of arguments until the SuperNode ends or must be restarted.

    Returns:
        Exit code of the SuperNode, or the message which requires a restart.
    """
    assert node.stderr is not None
    client_app, errors = _load_client_app(), node.stderr.fileno()
    signal.signal(signal.SIGCHLD, reap)
    gc.collect()
    gc.freeze()  # keeps loaded modules shared with all children
    pending, sources, log = b"", [orders, errors], _SuperNodeLog()
    output, news = NodeOutput(), SuperNodeOutput()
    apps = ClientApps(client_app, output)
    with closing(apps):
        while node.poll() is None:
            ready = select.select([*sources, *output.descriptors, *apps.descriptors], [], [], _POLL_S)[0]
            output.forward_output(ready)
            apps.read_reports(ready)
            if orders in ready:
                *lines, pending = (pending + os.read(orders, _CHUNK)).split(b"\n")
                for line in lines:
                    apps.start(line.decode().split(SEPARATOR))
            if errors in ready:
                log.add(_pass_on_output(errors, sources, news))
                if log.reason:
                    return log.reason
    while errors in sources and errors in select.select(sources, [], [], 0)[0]:
        log.add(_pass_on_output(errors, sources, news))
    if log.reason:
        return log.reason
    return _REFUSED if log.refused and node.returncode else int(node.returncode)


class _SuperNodeLog:
    """Output of a SuperNode: its admission or refusal, and the reason for a restart."""

    def __init__(self) -> None:
        """Start without output."""
        self.refused, self._is_admitted, self._recent = False, False, b""
        self.reason: bytes | None = None

    def add(self, output: bytes) -> None:
        """Examine further output; a message may be split between two pieces."""
        self._recent = self._recent[-_TAIL:] + output
        self._is_admitted = self._is_admitted or _ADMITTED in self._recent
        self.refused = self.refused or _REFUSED in self._recent
        if any(loss in self._recent for loss in _LOSSES):
            self.reason = _LOST
        elif self._is_admitted and self._is_unknown():  # never admitted, a key cannot be unknown again
            self.reason = _FORGOTTEN

    def _is_unknown(self) -> bool:
        """Whether the SuperLink no longer knows this node; a signal to this process has another effect."""
        return bool(_UNKNOWN.search(self._recent)) or (has_one_port() and _LEFT in self._recent)


def _pass_on_output(errors: int, sources: list[int], news: SuperNodeOutput) -> bytes:
    """Read the SuperNode's output, and print it without repetitions; stop listening at its end."""
    output = os.read(errors, _CHUNK)
    if not output:
        sources.remove(errors)
    with suppress(OSError, ValueError):  # the terminal may be closed
        os.write(2, news.printable_part(output))
    return output


@cache
def _load_client_app() -> Any:
    """Import the modules needed by ClientApps; returns Flower's program for them."""
    (entry_point,) = entry_points(group="console_scripts", name=CLIENT_APP)
    program = entry_point.load()
    import_module("fedge.client_app")
    return program


def _end_supernode(node: "subprocess.Popen[bytes]") -> None:
    """End the SuperNode by SIGTERM, so it signs off from the SuperLink."""
    if node.poll() is not None:
        return
    node.send_signal(signal.SIGTERM)
    try:
        node.wait(_LEAVE_S)
    except subprocess.TimeoutExpired:
        node.kill()
        node.wait()
