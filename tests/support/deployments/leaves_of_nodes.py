"""Leaf servers with SuperNodes of their own, as processes of this machine. Loopback only."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from flower_runs import ROOT
from processes import MARK, marked

from fedge.cli import main
from fedge.launch.flower_runs.flower import toml_of
from fedge.link.reach import free_ports


def command(*words):
    """Carry out a command of Fedge."""
    assert main(list(map(str, words))) == 0, words


class Leaves:
    """A cloud, its leaf servers, their SuperNodes; use as a context manager, which ends all of them.

    Attributes:
        folder: holds everything.
        options: of the run; its windows are dealt to nodes, and the cloud has none of them.
        leaves: leaf → process of `fedge leaf`.
        nodes: client → process of `fedge node`.
    """

    def __init__(self, folder, options, clients, leaves=2, of_nodes=True, python=sys.executable, without=()):
        """Deal the windows, make certificates and keys; clients are SuperNodes, or threads of leaves.

        Nodes of the clients `without` are not started.
        """
        self.of_nodes, self.python, self.without = of_nodes, str(python), without
        self.folder, self.clients, self.certs = folder, clients, folder / "certs"
        folder.mkdir(exist_ok=True)
        given = folder / "dealt.toml"
        given.write_text(toml_of({key: value for key, value in options.items() if key != "clients"}))
        command("deal", folder / "dealt", "--clients", clients, "-c", given)
        command("certs", self.certs, "--leaves", leaves, "--nodes", clients)
        self.options = {**options, "runs-dir": str(folder / "runs")}
        self.options |= {"data.path": "nowhere.npz"} if of_nodes else {}
        cloud, *self._fleets = free_ports(1 + leaves)
        self.cloud = f"127.0.0.1:{cloud}"
        self.mark = f"leaves-{os.getpid()}-{folder.name}"
        self.leaves, self.nodes = {}, {}
        per_leaf = [len(part) for part in _split(range(clients), leaves)]
        self.leaf_of = [leaf for leaf, size in enumerate(per_leaf) for _ in range(size)]

    def __enter__(self):
        for leaf in range(len(self._fleets)):
            self.start_leaf(leaf)
        for client in range(self.clients if self.of_nodes else 0):
            if client not in self.without:
                self.start_node(client)
        return self

    def __exit__(self, *_):
        for process in [*self.nodes.values(), *self.leaves.values()]:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 30
        while (left := marked(self.mark)) and time.monotonic() < deadline:
            time.sleep(0.1)
        for process in left:
            process.kill()
        for process in [*self.nodes.values(), *self.leaves.values()]:
            process.wait()

    def start_leaf(self, leaf):
        """Start a leaf server."""
        words = ["leaf", leaf, "--cloud", self.cloud, "--folder", self.folder / f"leaf-{leaf}"]
        mine = ["--nodes", f"127.0.0.1:{self._fleets[leaf]}"] if self.of_nodes else ["--workers", 1]
        self.leaves[leaf] = self._start(f"leaf-{leaf}", *words, *mine)

    def start_node(self, client):
        """Start a client."""
        at = f"127.0.0.1:{self._fleets[self.leaf_of[client]]}"
        words = ["node", client, "--of", self.clients, "--superlink", at]
        self.nodes[client] = self._start(
            f"node-{client}", *words, "--data-folder", self.folder / "dealt" / f"client-{client}"
        )

    def run(self, name, **changes):
        """Start the cloud's run, with some options of its own; gives its process."""
        options = self.folder / f"{name}.toml"
        given = {**self.options, "run-name": name, "clients": self.clients, **changes}
        options.write_text(toml_of(given))
        return self._start(f"run-{name}", "run", "--leaves", self.cloud, *self._owners, "-c", options)

    def resume(self, name, **changes):
        """Let the cloud go on with a run, with some options changed; its output goes to resume-NAME.out."""
        options = self.folder / f"resume-{name}.toml"
        options.write_text(toml_of(changes))
        run = self.folder / "runs" / name
        words = ["resume", run, "--leaves", self.cloud, *self._owners, "-c", options]
        return self._start(f"resume-{name}", *words)

    @property
    def _owners(self):
        return ["--owners"] if self.of_nodes else []

    def said(self, name):
        """Output of a process."""
        return (self.folder / f"{name}.out").read_text(errors="replace")

    def _start(self, name, *words):
        """Start a command of Fedge; its output goes to NAME.out."""
        environment = {key: value for key, value in os.environ.items() if key != "SEED"} | {
            "PATH": f"{Path(self.python).parent}{os.pathsep}{os.environ['PATH']}", MARK: self.mark,
            "PYTHONPATH": str(ROOT), "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_HOME": str(self.folder / "flower" / name),
        }  # fmt: skip
        words = [self.python, "-m", "fedge.cli", *map(str, words), "--certs", str(self.certs)]
        with (self.folder / f"{name}.out").open("ab") as out:
            return subprocess.Popen(
                words, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment,
                start_new_session=True,
            )  # fmt: skip


def _split(clients, leaves):
    """Clients in as many runs as there are leaves, the first ones longer."""
    size, more = divmod(len(clients), leaves)
    ends = [size * (leaf + 1) + min(leaf + 1, more) for leaf in range(leaves)]
    return [clients[first:end] for first, end in zip([0, *ends], ends, strict=False)]
