"""A SuperLink reachable from other machines only by SuperNodes.

It is Flower's own command, with addresses that keep the other interfaces closed. SuperNodes connect over TLS
to a public address and authenticate with registered keys. Everything else listens on the loopback interface
and serves only the account that started it (`fedge.link.own_account`). If Flower has a single port for all
(1.41 and 1.42), SuperNodes connect to a filter in front of it (`fedge.link.fleet_filter`). State needed
after a restart (nodes, keys) is in a database in its folder.
"""

import errno
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from fedge.config.registers.option import ConfigError, shown
from fedge.flower import has_one_port, moves_federations
from fedge.launch.flower_runs.flower import toml_of
from fedge.launch.flower_runs.simulation import own_environment, start_command
from fedge.launch.flower_runs.superlink import KEEP_ENVIRONMENT, last_lines
from fedge.launch.own_folder import exclusive_folder
from fedge.launch.projects.project import CLIENT_APP
from fedge.link.bound_nodes import (
    bind_nodes,
    export_bindings,
    forget_bindings,
    nodes_registered,
    partition_of_key,
)
from fedge.link.certificate_checks import refuse_unusable
from fedge.link.certificates import AUTHORITY
from fedge.link.fleet_filter import FleetFilter
from fedge.link.own_account import guarded_command
from fedge.link.reach import fault_of_listening, free_port, host_and_port, is_listening
from fedge.process.endings.parent import tie_children_to_parent
from fedge.process.python import python_words

HERE = "127.0.0.1"
DATABASE, KEYS = "superlink.db", "keys-let-in"
_START_S, _FREE_S, _END_S, _POLL_S = 60.0, 15.0, 10.0, 0.1
_NUMBERS = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*")
_REGISTER_SCRIPT = """
import shlex, sys
from importlib.metadata import entry_points
from fedge.process.endings.channels import exit_despite_channels
exit_despite_channels()
(command,) = entry_points(group="console_scripts", name="flwr")
flower, (at, *keys) = command.load(), sys.argv[1:]
for key in keys:
    print("\\x1f", flush=True)
    sys.argv = ["flwr", "supernode", "register", key, *shlex.split(at)]
    try:
        flower()
    except SystemExit:
        pass
    sys.stdout.flush()  # its answer is whole before that to the next key
"""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # in Flower's output, even without a terminal
_KEY_SEPARATOR = "\x1f"  # precedes a key's entry in the output of Flower's command
_ACCEPTED = ("registered successfully", "already")  # in Flower's reply to a key; its exit code is always 0


class KeysRefusedError(ConfigError):
    """Error for SuperNodes' keys refused by Flower; the others of the same call are registered.

    Attributes:
        keys: the refused ones.
    """

    def __init__(self, keys: Sequence[Path], reason: str) -> None:
        """Refused keys, and Flower's explanation."""
        self.keys = tuple(keys)
        names = ", ".join(key.name for key in keys)
        super().__init__(
            f"keys of SuperNodes in {keys[0].parent} must be accepted by Flower, but {names}: {reason}; "
            f"copy them again"
        )


@dataclass(frozen=True)
class SuperLinkPlace:
    """Addresses and files of a SuperLink.

    Attributes:
        option: name of the option for `nodes`, for error messages.
        nodes: HOST:PORT for SuperNodes.
        control: port of the loopback interface for commands of the account.
        certs: folder of certificates and of nodes' public keys.
        certificate: name of the server's certificate in this folder.
        folder: folder for the database, the log and Flower's files.
        connection: name of the SuperLink in Flower's commands.
    """

    option: str
    nodes: str
    control: int
    certs: Path
    certificate: str
    folder: Path
    connection: str

    @property
    def reachable_address(self) -> str:
        """Address by which this machine reaches the listener at `nodes`."""
        host, port = host_and_port(self.option, self.nodes)
        if host in ("0.0.0.0", "::"):
            return f"{HERE}:{port}"
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def authority(self) -> Path:
        """Certificate file of the authority."""
        return self.certs.absolute() / f"{AUTHORITY}.crt"

    @property
    def pair(self) -> tuple[Path, Path]:
        """Files of the server's certificate and key."""
        base = self.certs.absolute() / self.certificate
        return base.with_name(f"{base.name}.crt"), base.with_name(f"{base.name}.key")

    @property
    def link(self) -> dict[str, str]:
        """The SuperLink's entry in Flower's configuration."""
        return {"address": f"{HERE}:{self.control}", "root-certificates": str(self.authority)}

    def prepare(self) -> None:
        """Create the folder, accessible to this account only.

        Raises:
            ConfigError: an address is invalid, a certificate is unusable, or the folder cannot be written.
        """
        host_and_port(self.option, self.nodes)
        refuse_unusable(*self.pair, self.authority)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.folder / "flower").mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"--folder must be writable, but {error.filename}: {error.strerror or error}; choose another"
            ) from error
        with suppress(OSError):  # may belong to another account, e.g. a container's volume
            self.folder.chmod(0o700)

    @contextmanager
    def exclusive_use(self) -> Iterator[None]:
        """Context in which no other process of this kind uses the folder: two SuperLinks would share nodes.

        Raises:
            ConfigError: one uses it.
        """
        with exclusive_folder(self.folder, "SuperLink"):
            yield


def keys_of(certs: Path, numbers: str | None, option: str = "--nodes") -> list[Path]:
    """Public keys to admit: all in the folder, or those of clients, e.g. ``0-4,7``.

    Raises:
        ConfigError: there are no keys, a requested one is missing, or `numbers` is malformed.
    """
    if numbers is None:
        keys = sorted(certs.glob("node-*.pub"))
    else:
        if not _NUMBERS.fullmatch(numbers):
            raise ConfigError(f"--keys must be numbers of clients, e.g. 0-4,7, but is {shown(numbers)}")
        ends = [part.partition("-") for part in numbers.split(",")]
        ranges = [range(int(first), int(last or first) + 1) for first, _, last in ends]
        keys = [certs / f"node-{number}.pub" for number in sorted(set().union(*ranges))]
    missing = [key.name for key in keys if not key.is_file()]
    if missing or not keys:
        fault = f"no {missing[0]}" if missing else "none"
        raise ConfigError(
            f"{option} needs keys of SuperNodes in {certs}, but there is {fault}; create keys: fedge certs "
            f"{shlex.quote(str(certs))} --nodes N"
        )
    return keys


def await_free(option: str, address: str) -> None:
    """Wait until an address is free: a killed process's SuperLink takes seconds to end.

    Two listeners on one port would each get every other SuperNode.

    Raises:
        ConfigError: the address stays in use, or does not belong to this machine.
    """
    deadline = time.monotonic() + _FREE_S
    while fault := fault_of_listening(address):
        if fault != os.strerror(errno.EADDRINUSE) or time.monotonic() > deadline:
            raise ConfigError(
                f"{option} must be a free address of this machine, but {address}: {fault}; choose another"
            )
        time.sleep(_POLL_S)


def _read_key(key: Path) -> str:
    """Text of a public key's file; ConfigError for any other file."""
    try:
        return key.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(
            f"{key} must be a public key, but: {reason}; copy it again, or remove it"
        ) from error


def _key_fault(key: Path) -> str:
    """Reason why a file is not a public key; empty for a public key."""
    try:
        _read_key(key)
    except ConfigError as error:
        return str(error)
    return ""


def register_keys(keys: Sequence[Path], place: SuperLinkPlace) -> None:
    """Register keys new to the SuperLink, while no SuperNode can reach it.

    A SuperNode connecting before its key is registered ends. If a key was withdrawn, the SuperLink's database
    is deleted; nodes identify themselves again anyway.

    Raises:
        ConfigError: Flower refuses a key, or one is no text.
    """
    record = place.folder / KEYS
    admitted = set(record.read_text(errors="replace").splitlines()) if record.is_file() else set()
    texts = {key: _read_key(key) for key in keys}
    if admitted - set(texts.values()):
        print("a key admitted before is no longer admitted", flush=True)
        for path in (record, *place.folder.glob(f"{DATABASE}*")):
            path.unlink()
        forget_bindings(place.folder)
        admitted = set()
    new = [key for key, text in texts.items() if text not in admitted]
    if new:
        with SuperLink(place, f"{HERE}:{free_port()}") as link:
            link.register_keys(new)


class SuperLink:
    """A running SuperLink; as a context manager, ended with all its processes on exit."""

    def __init__(self, place: SuperLinkPlace, fleet: str = "") -> None:
        """Start a SuperLink, and wait until it listens.

        Args:
            place: its addresses and files.
            fleet: address for SuperNodes, as this machine reaches it; empty for the one of `place`.

        Raises:
            ConfigError: the SuperLink does not start.
        """
        is_open = not fleet
        fleet = fleet or place.reachable_address
        self.place, self.log = place, place.folder / "flower.log"
        self.environment = _environment(place.folder / "flower")
        self._write_flower_config()
        self._filter: FleetFilter | None = None
        if has_one_port() and is_open:
            upstream = place.control, place.authority
            self._filter = FleetFilter(place.option, place.nodes, place.pair, upstream)
        self.output = self.log.open("ab")
        command = _superlink_command(place, place.nodes if is_open else fleet)
        self.process = start_command(command, self.environment, self.output)
        self._await_listening((f"{HERE}:{place.control}", *(() if has_one_port() else (fleet,))))

    def _write_flower_config(self) -> None:
        """Write the configuration by which Flower's commands know this SuperLink."""
        place = self.place
        folder = place.folder / "names"
        folder.mkdir(exist_ok=True)
        link = toml_of(place.link)
        app = {
            "project": {"name": place.connection, "version": "0.1.0", "license": "Apache-2.0"},
            "tool.flwr.app": {"publisher": "fedge"},
            "tool.flwr.app.components": {"serverapp": CLIENT_APP, "clientapp": CLIENT_APP},
            "tool.flwr.federations": {"default": place.connection},
        }
        text = "\n".join(f"[{name}]\n{toml_of(table)}" for name, table in app.items())
        federation = f"\n[tool.flwr.federations.{place.connection}]\n{link}"
        (folder / "pyproject.toml").write_text(text + federation, encoding="utf-8")
        if moves_federations():
            (place.folder / "flower" / "config.toml").write_text(f"[superlink.{place.connection}]\n{link}")

    def _await_listening(self, addresses: Sequence[str]) -> None:
        """Wait until the SuperLink listens at all addresses."""
        option, deadline = self.place.option, time.monotonic() + _START_S
        while not all(is_listening(option, address) for address in addresses):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.end()
                raise ConfigError(
                    f"{option} must be a free address of this machine, but flower-superlink did not "
                    f"start there: {last_lines(self.log)}; see its log {self.log}"
                )
            time.sleep(_POLL_S)

    def __enter__(self) -> "SuperLink":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def is_alive(self) -> bool:
        """Whether the SuperLink is running."""
        return self.process.poll() is None

    def register_keys(self, keys: Sequence[Path]) -> None:
        """Register SuperNodes' public keys, and bind each to its partition.

        Raises:
            KeysRefusedError: Flower refuses some of them, or they are no text; the others are in.
        """
        names = ", ".join(key.name for key in keys)
        print(f"admitting {len(keys)} keys of SuperNodes from {keys[0].parent}: {names}", flush=True)
        faults = {key: fault for key in keys if (fault := _key_fault(key))}
        texts = {key: _read_key(key) for key in keys if key not in faults}
        answers = faults | self._register_keys(list(texts))
        accepted = {
            key: answer for key, answer in answers.items() if any(word in answer for word in _ACCEPTED)
        }
        with (self.place.folder / KEYS).open("a", encoding="utf-8") as record:
            record.writelines(f"{texts[key]}\n" for key in accepted)
        self._bind(accepted)
        if refused := [key for key in keys if key not in accepted]:
            raise KeysRefusedError(refused, " ".join(filter(None, map(answers.get, refused))))

    def _register_keys(self, keys: Sequence[Path]) -> dict[Path, str]:
        """Answers of Flower's command to keys, in one process, as its imports take seconds."""
        if not keys:
            return {}
        place = self.place
        link = [place.connection] if moves_federations() else [str(place.folder / "names"), place.connection]
        files = [str(key.absolute()) for key in keys]
        command = python_words("-c", _REGISTER_SCRIPT, " ".join(map(shlex.quote, link)), *files)
        result = subprocess.run(
            command, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
        )  # fmt: skip
        preamble, *replies = (
            " ".join(_COLOUR.sub("", answer).split()) for answer in result.stdout.split(_KEY_SEPARATOR)
        )
        return dict(zip(keys, replies, strict=False)) or {keys[0]: preamble}

    def _bind(self, answers: Mapping[Path, str]) -> None:
        """Bind nodes to the partitions of their keys: key → Flower's answer."""
        bound, free = {}, []
        for key, answer in answers.items():
            nodes, partition = nodes_registered(answer), partition_of_key(key)
            if len(nodes) == 1 and partition is not None:
                bound[nodes[0]] = partition
            else:
                free.append(key.name)
        bind_nodes(self.place.folder, bound)
        if free:
            print(
                f"not bound to a partition: {', '.join(free)}; such a node keeps the partition it claims "
                f"first", flush=True,
            )  # fmt: skip

    def end(self) -> None:
        """End the SuperLink and all its processes."""
        if self._filter is not None:
            self._filter.close()
        children = []
        with suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children(recursive=True)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_S)
        for child in children:
            with suppress(psutil.Error):
                child.kill()
        self.process.kill()
        self.process.wait()
        self.output.close()


def _superlink_command(place: SuperLinkPlace, fleet: str) -> list[str]:
    """Command of the SuperLink; with one port for all, it is on the loopback interface."""
    certificate, key = place.pair
    address_options = ["--host", HERE, "--port", str(place.control)]
    if not has_one_port():
        address_options = [
            "--fleet-api-address", fleet, "--control-api-address", f"{HERE}:{place.control}",
            "--serverappio-api-address", f"{HERE}:{free_port()}",
        ]  # fmt: skip
    return [
        *guarded_command("flower-superlink"), "--ssl-ca-certfile", str(place.authority), "--ssl-certfile",
        str(certificate), "--ssl-keyfile", str(key), *address_options, "--enable-supernode-auth",
        "--database", str(place.folder / DATABASE),
    ]  # fmt: skip


def _environment(home: Path) -> dict[str, str]:
    """Environment of the SuperLink, of the apps on it, and of Flower's commands."""
    environment = {
        **own_environment(),
        "FLWR_HOME": str(home),
        KEEP_ENVIRONMENT: "1",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "NO_PROXY": ",".join(filter(None, [HERE, os.environ.get("NO_PROXY", "")])),
    }
    tie_children_to_parent(environment)
    export_bindings(environment, home.parent)
    return environment
