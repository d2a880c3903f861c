"""``fedge leaf --nodes``: a leaf server with a SuperLink of its own, whose SuperNodes are its clients.

The SuperLink starts and ends with this command. It listens where SuperNodes are to dial, with the leaf
server's certificate, and lets in those whose keys are in the folder of certificates; all else is on the
loopback interface. Where Flower has one port for all, SuperNodes dial a filter before it. The leaf server
itself is an app on it (`fedge.leaf_app`): Flower gives an app, and nobody else, the means to reach nodes.
What the SuperLink must know when it is started again (nodes, keys) is in a database in the leaf server's
folder.
"""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from fedge import leaf_app
from fedge.config.option import ConfigError, shown
from fedge.engine.federation import TOLD, Federation
from fedge.flower import has_one_port, moves_federations
from fedge.launch.flower import toml_of
from fedge.launch.project import CLIENT_APP
from fedge.launch.simulation import own_environment, start_command
from fedge.launch.superlink import KEEP_ENVIRONMENT, last_lines
from fedge.link.certificates import AUTHORITY, leaf_name
from fedge.link.dial import Link
from fedge.link.fleet_filter import FleetFilter
from fedge.link.reach import free_port, host_and_port, is_there
from fedge.process import exits
from fedge.process.parent import be_followed
from fedge.process.reaper import start_reaper

_NAME = "leaf"  # of the app, and of its SuperLink as Flower's configuration has it
_FOR_EVER_S = 1e9
_START_S, _FREE_S, _END_S, _POLL_S = 60.0, 15.0, 10.0, 0.1
_HERE = "127.0.0.1"
_DATABASE = "superlink.db"
_NUMBERS = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*")
_ENDED = re.compile(rf"{re.escape(leaf_app.ENDED)} (\d+)")
_REGISTER = """
import shlex, sys
from importlib.metadata import entry_points
(command,) = entry_points(group="console_scripts", name="flwr")
flower, (at, *keys) = command.load(), sys.argv[1:]
for key in keys:
    sys.argv = ["flwr", "supernode", "register", key, *shlex.split(at)]
    try:
        flower()
    except SystemExit:
        pass
"""
_LET_IN = ("registered successfully", "already")  # in Flower's answer to a key; it says 0 in any case


def serve_leaf_of_nodes(options: argparse.Namespace) -> int:
    """Carry out ``fedge leaf --nodes``; returns the exit code.

    Raises:
        ConfigError: certificates, keys or the address cannot be used.
    """
    host_and_port("--nodes", options.nodes)
    Link(options.cloud, options.certs, options.leaf)  # refuses certificates that are none
    keys = _keys(options.certs, options.keys)
    folder = (options.folder or Path(f"leaf-{options.leaf}")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    start_reaper()  # nothing of a SuperLink ends with who started it
    with exits.signals_as_exceptions(exits.LEAVE_S) if options.owns_process else nullcontext():
        _await_free(_reached(options.nodes))
        _let_in(keys, folder, options)
        with _SuperLink(folder, options, _reached(options.nodes)) as link:
            print(
                f"leaf server {options.leaf} dials {options.cloud}; its SuperNodes dial {options.nodes}; its "
                f"folder is {folder}", flush=True,
            )  # fmt: skip
            return link.follow()


def _keys(certs: Path, numbers: str | None) -> list[Path]:
    """Return the public keys that get in: all that are there, or those of clients, as ``0-4,7``.

    Raises:
        ConfigError: there are none, one that is asked for is not there, or the numbers are none.
    """
    if numbers is None:
        keys = sorted(certs.glob("node-*.pub"))
    else:
        if not _NUMBERS.fullmatch(numbers):
            raise ConfigError(f"--keys must be numbers of clients, as 0-4,7, but is {shown(numbers)}")
        ends = [part.partition("-") for part in numbers.split(",")]
        ranges = [range(int(first), int(last or first) + 1) for first, _, last in ends]
        keys = [certs / f"node-{number}.pub" for number in sorted(set().union(*ranges))]
    missing = [key.name for key in keys if not key.is_file()]
    if missing or not keys:
        what = f"no {missing[0]}" if missing else "none"
        raise ConfigError(
            f"--nodes needs keys of SuperNodes in {certs}, but there is {what}; make them with: fedge certs "
            f"{certs} --nodes N"
        )
    return keys


def _await_free(address: str) -> None:
    """Wait until nobody listens at an address: the SuperLink of one that was killed takes seconds to end.

    Two that listen on one port would get every other SuperNode each.

    Raises:
        ConfigError: somebody stays.
    """
    deadline = time.monotonic() + _FREE_S
    while is_there("--nodes", address):
        if time.monotonic() > deadline:
            raise ConfigError(f"--nodes must be free, but somebody listens at {address}; choose another port")
        time.sleep(_POLL_S)


def _let_in(keys: Sequence[Path], folder: Path, options: argparse.Namespace) -> None:
    """Register keys that the SuperLink does not know yet, where no SuperNode reaches it.

    A SuperNode that dials before its key is registered ends. Where a key got in before and is not to any
    more, the SuperLink forgets all that it knows: which nodes there are is asked anew anyway.

    Raises:
        ConfigError: Flower does not take one.
    """
    record = folder / "keys-let-in"
    known = set(record.read_text().splitlines()) if record.is_file() else set()
    texts = {key: key.read_text().strip() for key in keys}
    if known - set(texts.values()):
        print("a key that got in before does not any more", flush=True)
        for kept in (record, *folder.glob(f"{_DATABASE}*")):
            kept.unlink()
        known = set()
    new = {key: text for key, text in texts.items() if text not in known}
    if not new:
        return
    names = ", ".join(key.name for key in new)
    print(f"letting {len(new)} keys of SuperNodes in, of {keys[0].parent}: {names}", flush=True)
    with _SuperLink(folder, options, f"{_HERE}:{free_port()}") as link:
        link.let_in(list(new))
    record.write_text("".join(f"{text}\n" for text in (*sorted(known), *new.values())))


@dataclass(frozen=True)
class _Ports:
    """Where the SuperLink is for this machine alone: ports of the loopback interface."""

    control: int
    server_io: int


class _SuperLink:
    """The SuperLink of a leaf server, and the app on it. Use as a context manager, which ends both."""

    def __init__(self, folder: Path, options: argparse.Namespace, fleet: str) -> None:
        """Start it, and wait until it listens.

        Args:
            folder: the leaf server's.
            options: of ``fedge leaf``.
            fleet: where SuperNodes dial, as this machine reaches it.

        Raises:
            ConfigError: it does not start.
        """
        self._app, self._log = folder / "app", folder / "flower.log"
        ports = _Ports(free_port(), free_port())
        is_open = fleet == _reached(options.nodes)
        words = _superlink_words(options, folder, ports, options.nodes if is_open else fleet)
        self._environment = _environment(folder / "flower")
        _write_app(self._app, folder, options, f"{_HERE}:{ports.control}")
        self._filter: FleetFilter | None = None
        if has_one_port():
            link, authority = _link(options, f"{_HERE}:{ports.control}"), options.certs / f"{AUTHORITY}.crt"
            (folder / "flower" / "config.toml").write_text(f"[superlink.{_NAME}]\n{toml_of(link)}")
            if is_open:
                pair = _certificate(options)
                self._filter = FleetFilter("--nodes", options.nodes, pair, (ports.control, authority))
        self._output = self._log.open("ab")
        self._superlink = start_command(words, self._environment, self._output)
        self._running: subprocess.Popen[str] | None = None
        self._await((f"{_HERE}:{ports.control}", *(() if has_one_port() else (fleet,))))

    def _await(self, addresses: Sequence[str]) -> None:
        """Wait until the SuperLink listens at addresses."""
        deadline = time.monotonic() + _START_S
        while not all(is_there("--nodes", address) for address in addresses):
            if self._superlink.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise ConfigError(
                    f"--nodes must be an address of this machine that is free, but flower-superlink did not "
                    f"start there: {last_lines(self._log)}; what it said: {self._log}"
                )
            time.sleep(_POLL_S)

    def __enter__(self) -> "_SuperLink":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def let_in(self, keys: Sequence[Path]) -> None:
        """Register SuperNodes' public keys, by Flower's command, whose imports take seconds, in one process.

        Raises:
            ConfigError: Flower does not take one.
        """
        at = [_NAME] if moves_federations() else [str(self._app), _NAME]
        files = [str(key.absolute()) for key in keys]
        words = [sys.executable, "-c", _REGISTER, " ".join(map(shlex.quote, at)), *files]
        done = subprocess.run(
            words, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        said = " ".join((done.stdout + done.stderr).split())
        if sum(said.count(word) for word in _LET_IN) < len(keys):
            raise ConfigError(
                f"keys of SuperNodes in {keys[0].parent} must be such that Flower takes, but it says: {said}"
            )

    def follow(self) -> int:
        """Start the app, print what it says, and return its exit code when it has ended."""
        words = ["flwr", "run", str(self._app), _NAME, "--stream"]
        told = {TOLD: Federation().as_told()}  # nothing of it is an option of Fedge's
        self._running = subprocess.Popen(
            words, env={**self._environment, **told, "PYTHONUNBUFFERED": "1"}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._running.stdout is not None
        for line in self._running.stdout:
            if line.startswith("fedge: "):
                print(line, end="", flush=True)
            self._output.write(line.encode())
            self._output.flush()
            if ended := _ENDED.search(line):
                return int(ended[1])
        print(
            f"fedge: the leaf server, or its SuperLink, was killed or has crashed; start it again; what it "
            f"said: {self._log}", file=sys.stderr, flush=True,
        )  # fmt: skip
        return exits.FAILED

    def end(self) -> None:
        """End all that was started."""
        if self._filter is not None:
            self._filter.close()
        below = []
        with suppress(psutil.Error):
            below = psutil.Process(self._superlink.pid).children(recursive=True)
        for process in (self._running, self._superlink):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._superlink.wait(_END_S)
        for child in below:
            with suppress(psutil.Error):
                child.kill()
        for process in (self._running, self._superlink):
            if process is not None:
                process.kill()
                process.wait()
        self._output.close()


def _reached(nodes: str) -> str:
    """Return the address by which this machine reaches what listens at `nodes`."""
    host, port = host_and_port("--nodes", nodes)
    return f"{_HERE if host in ('0.0.0.0', '::') else host}:{port}"


def _superlink_words(options: argparse.Namespace, folder: Path, ports: _Ports, fleet: str) -> list[str]:
    """Return the command of the SuperLink; one that has one port for all is on the loopback interface."""
    certificate, key = _certificate(options)
    where = ["--host", _HERE, "--port", str(ports.control)]
    if not has_one_port():
        where = [
            "--fleet-api-address", fleet, "--control-api-address", f"{_HERE}:{ports.control}",
            "--serverappio-api-address", f"{_HERE}:{ports.server_io}",
        ]  # fmt: skip
    return [
        "flower-superlink", "--ssl-ca-certfile", str(options.certs.absolute() / f"{AUTHORITY}.crt"),
        "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key), *where, "--enable-supernode-auth",
        "--database", str(folder / _DATABASE),
    ]  # fmt: skip


def _certificate(options: argparse.Namespace) -> tuple[Path, Path]:
    """Return the files of the leaf server's certificate and its key."""
    own = options.certs.absolute() / leaf_name(options.leaf)
    return own.with_name(f"{own.name}.crt"), own.with_name(f"{own.name}.key")


def _link(options: argparse.Namespace, control: str) -> dict[str, str]:
    """Return the SuperLink as Flower's commands are told of it."""
    return {"address": control, "root-certificates": str(options.certs.absolute() / f"{AUTHORITY}.crt")}


def _environment(home: Path) -> dict[str, str]:
    """Return the environment of the SuperLink, of the app on it, and of Flower's commands."""
    home.mkdir(exist_ok=True)
    environment = {
        **own_environment(),
        "FLWR_HOME": str(home),
        KEEP_ENVIRONMENT: "1",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "NO_PROXY": ",".join(filter(None, [_HERE, os.environ.get("NO_PROXY", "")])),
    }
    be_followed(environment)
    return environment


def _write_app(folder: Path, own: Path, options: argparse.Namespace, control: str) -> None:
    """Write the app that is handed to the SuperLink: which leaf server this is, and no code."""
    folder.mkdir(exist_ok=True)
    (folder / "README.md").write_text("A leaf server.\n")  # Flower 1.25 cannot install an app of no file
    certs, link = options.certs.absolute(), _link(options, control)
    told = {
        leaf_app.LEAF: options.leaf,
        leaf_app.CLOUD: options.cloud,
        leaf_app.CERTS: str(certs),
        leaf_app.FOLDER: str(own),
        leaf_app.ONCE: options.once,
        leaf_app.WAIT: options.wait or _FOR_EVER_S,
    }
    head = {
        "project": {"name": f"fedge-{_NAME}", "version": "0.1.0", "license": "Apache-2.0"},
        "tool.flwr.app": {"publisher": "fedge"},
        "tool.flwr.app.components": {"serverapp": "fedge.leaf_app:app", "clientapp": CLIENT_APP},
        "tool.flwr.app.config": told,
        "tool.flwr.federations": {"default": _NAME},
        f"tool.flwr.federations.{_NAME}": link,
    }
    text = "\n".join(f"[{name}]\n{toml_of(table)}" for name, table in head.items())
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
