"""A federation of real processes on this machine: SuperLink, SuperNodes, certificates, keys. Loopback only.

Every process gets a mark in its environment (`processes`), ports of its own and a Flower folder of its own.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
from flwr.cli.app import app as flower
from processes import MARK, marked
from typer.testing import CliRunner

from fedge.flower import has_one_port, moves_federations
from fedge.launch.flower_runs.flower import toml_of
from fedge.launch.flower_runs.superlink import KEEP_ENVIRONMENT
from fedge.launch.projects.packaged import packaged_folder
from fedge.link.certificates import CertificateRequest, make_certificates
from fedge.link.own_account import guarded_command
from fedge.link.reach import free_ports

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BIN = Path(sys.executable).parent
ONE_PORT = has_one_port()


class Deployment:
    """A SuperLink and its SuperNodes; use as a context manager, which ends all of them.

    Attributes:
        folder: holds everything.
        app: a project whose federation "deployed" is this one.
        nodes: partition id → process of the SuperNode.
    """

    def __init__(
        self, folder, options, hosts=("127.0.0.1", "localhost"), listen="127.0.0.1", control_at="127.0.0.1"
    ):
        """Write project and certificates for `hosts`; the SuperLink listens for nodes and users there."""
        self.folder = folder
        self.app = folder / "app"
        self.nodes = {}
        self.mark = f"deployed-{os.getpid()}-{folder.name}"
        self.certs = folder / "certs"
        make_certificates(self.certs, CertificateRequest({"superlink": hosts}))
        self._listen, self._control_at = listen, control_at
        self.control, self.fleet, self.server_io = free_ports(3)
        if ONE_PORT and control_at != "127.0.0.1":
            self.control = self.fleet
        self._options = options
        self._logs = []
        self.superlink = None
        self.write_app()

    def __enter__(self):
        self.start_superlink()
        return self

    def __exit__(self, *_):
        self.stop()

    # --- the user's project -------------------------------------------------------------------------

    def write_app(self):
        """Write a project with Fedge's options, those of this deployment on top."""
        self.app.mkdir(parents=True, exist_ok=True)
        (self.app / "README.md").write_text("A trial.\n")  # Flower 1.25 cannot install an app of no file
        tool = tomllib.loads((packaged_folder() / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
        config = flat(tool["config"]) | self._options
        self.write_table(
            {
                "project.name": "trial", "project.version": "1.0.0", "project.description": "",
                "project.license": "Apache-2.0", "tool.flwr.app.publisher": "trial",
                "tool.flwr.app.components.serverapp": "fedge.server_app:app",
                "tool.flwr.app.components.clientapp": "fedge.client_app:app",
                "tool.flwr.federations.default": "deployed",
                "tool.flwr.federations.deployed.address": f"127.0.0.1:{self.control}",
                "tool.flwr.federations.deployed.root-certificates": str(self.certs / "ca.crt"),
            }
            | {f"tool.flwr.app.config.{key}": value for key, value in config.items()}
        )  # fmt: skip

    def write_table(self, table):
        """Write the project's pyproject.toml, given by dotted keys."""
        (self.app / "pyproject.toml").write_text(toml_of(table))

    # --- processes ------------------------------------------------------------------------------------

    def environment(self, home, **more):
        """The environment of a process that keeps its Flower folder in `home`."""
        kept = {key: value for key, value in os.environ.items() if key != "SEED"}
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", KEEP_ENVIRONMENT: "1"}
        folders = {"FLWR_HOME": str(home), "XDG_STATE_HOME": str(self.folder / "state")}
        return kept | quiet | folders | {"PATH": path, MARK: self.mark} | more

    def start(self, name, words, **more):
        """Start a program of this environment; its output goes to NAME.log."""
        place = self.folder / name.split(".")[0]
        place.mkdir(exist_ok=True)
        log = (self.folder / f"{name}.log").open("ab")
        self._logs.append(log)
        words = [str(BIN / words[0]), *map(str, words[1:])]
        return subprocess.Popen(
            words, cwd=place, env=self.environment(place / "flwr", **more), stdin=subprocess.DEVNULL,
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def start_superlink(self):
        """Start the SuperLink and wait until it listens: `fedge superlink`, or Flower's own command.

        Flower's where the Control API is to be reached from other machines.
        """
        if self._control_at == "127.0.0.1":
            (self.folder / "superlink.log").write_text("")
            self.superlink = self.start("superlink", [
                "fedge", "superlink", "--nodes", f"{self._listen}:{self.fleet}",
                "--control", f"127.0.0.1:{self.control}", "--certs", self.certs, "--folder", "own",
            ])  # fmt: skip
            wait_until(lambda: self.is_open() or self.superlink.poll() is not None, 120, "it listens")
            assert self.superlink.poll() is None, (self.folder / "superlink.log").read_text()
            return
        ports = ["--host", self._listen, "--port", self.fleet]
        if not ONE_PORT:
            ports = ["--control-api-address", f"{self._control_at}:{self.control}",
                     "--fleet-api-address", f"{self._listen}:{self.fleet}",
                     "--serverappio-api-address", f"127.0.0.1:{self.server_io}"]  # fmt: skip
        self.superlink = self.start("superlink", [
            "flower-superlink", "--ssl-ca-certfile", self.certs / "ca.crt",
            "--ssl-certfile", self.certs / "superlink.crt", "--ssl-keyfile", self.certs / "superlink.key",
            *ports, "--enable-supernode-auth",
        ])  # fmt: skip
        wait_until(lambda: listens(self.control) and listens(self.fleet), 60, "the SuperLink listens")

    def is_open(self):
        """Tell whether `fedge superlink` has said that SuperNodes may dial."""
        return "SuperNodes connect to " in (self.folder / "superlink.log").read_text()

    def start_node(self, partition, partitions, folder, name="", certs=None, **more):
        """Start `fedge node` for a partition whose windows are in a folder; its output goes to NAME.log.

        Args:
            partition, partitions: which one, of how many.
            folder: as `fedge deal` wrote it.
            name: of the process (default: node-N).
            certs: with the authority and the node's key; by default those of `register`.
            more: of its environment.
        """
        node = self.start(name or f"node-{partition}", [
            "fedge", "node", partition, "--of", partitions, "--superlink", f"127.0.0.1:{self.fleet}",
            "--certs", certs or self.certs, "--data-folder", folder,
        ], **more)  # fmt: skip
        self.nodes[partition] = node
        return node

    def start_supernode(self, partition, partitions, folder, name="", certs=None):
        """Start Flower's own SuperNode instead, as the step by step of docs/machines.md has it."""
        (port,), certs = free_ports(1), certs or self.certs
        node = self.start(name or f"node-{partition}", [
            "flower-supernode", "--superlink", f"127.0.0.1:{self.fleet}",
            "--root-certificates", certs / "ca.crt",
            "--auth-supernode-private-key", certs / f"node-{partition}",
            *(["--port", port] if ONE_PORT else ["--clientappio-api-address", f"127.0.0.1:{port}"]),
            "--node-config",
            f'partition-id={partition} num-partitions={partitions} data-folder="{folder}"',
        ])  # fmt: skip
        self.nodes[name or partition] = node
        return node

    def register(self, nodes):
        """Make keys of so many nodes and let them in."""
        make_certificates(self.certs, CertificateRequest(nodes=nodes))
        if self._control_at == "127.0.0.1":  # fedge superlink sees them
            record = self.folder / "superlink" / "own" / "keys-let-in"
            keys = {(self.certs / f"node-{node}.pub").read_text().strip() for node in range(nodes)}
            wait_until(lambda: record.is_file() and keys <= set(record.read_text().splitlines()), 120, "keys")
            return
        at, home = [str(self.app)], self.folder / "registrar"
        if moves_federations():  # Flower's own configuration names the SuperLink, not the project
            at = ["deployed"]
            home.mkdir(exist_ok=True)
            link = {"address": f"127.0.0.1:{self.control}", "root-certificates": str(self.certs / "ca.crt")}
            (home / "config.toml").write_text(f"[superlink.deployed]\n{toml_of(link)}")
        for node in range(nodes):
            words = ["supernode", "register", str(self.certs / f"node-{node}.pub"), *at]
            done = CliRunner().invoke(flower, words, env={"FLWR_HOME": str(home)})
            assert "registered successfully" in done.output, done.output

    def flwr(self, *words, **more):
        """Run a command of Flower, so that it surely ends, in the user's project; returns what it printed."""
        done = subprocess.run(
            [*guarded_command("flwr"), *words], env=self.environment(self.folder / "user", **more),
            cwd=self.app, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def stop(self):
        """End all processes, by their ids, and whatever they have started."""
        for process in [*self.nodes.values(), self.superlink]:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 10
        while (left := marked(self.mark)) and time.monotonic() < deadline:
            time.sleep(0.1)
        with suppress(psutil.Error):
            for process in left:
                process.kill()
        for process in [*self.nodes.values(), self.superlink]:
            if process is not None:
                process.wait()
        for log in self._logs:
            log.close()


def words_of(process):
    """The command line of a process as text; empty for one that has just ended."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def listens(port):
    """Tell whether somebody listens on a port of the loopback interface."""
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0


def wait_until(is_so, seconds, what):
    """Wait until `is_so()`, or fail with `what` after so many seconds."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.1)


def flat(table, prefix=""):
    """Nested tables as one flat mapping with dotted keys."""
    found = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found
