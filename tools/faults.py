"""Faults of deployments, one at a time: seconds lost to each, and whether the models keep their bits.

python -m tools.faults                        prints the table
python -m tools.faults --into docs/reliability.md  writes the table there, between its marks
python -m tools.faults NAMES                  some of them; --list names all

A run without faults and the same run with a fault are carried out in turn, by real processes listening only
on the loopback interface. A fault happens after the second global round. The seconds lost are the difference
between the times of the two runs, including the restart of the faulty part. Bits are the sha256 of the final
models. Waiting times are set (WAIT_S), so a permanent fault shows the time waited for it.
"""

import argparse
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hhar.synthetic.generate import synthetic_windows
from hhar.windows.window_file import save_windows

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support" / "deployments"))  # and clusters, as in the tests

WAIT_S, AWAY_S, ROUNDS, AFTER, LEAVES, CLIENTS = 60, 5, 12, 2, 3, 9
_MAX_RUN_S = 600
_MARKS = "<!-- by make faults -->\n", "<!-- end -->\n"
_OPTIONS: Mapping[str, Any] = {
    "num-server-rounds": ROUNDS, "train.model": "mlp-tiny", "train.local-epochs": 60, "seed": 5,
    "report": False, "checkpoint.every": 1, "run-name": "run", "gate.enabled": False,
    "guard.start-timeout": WAIT_S, "guard.return-timeout": WAIT_S,
}  # fmt: skip


@dataclass(frozen=True)
class Came:
    """Outcome of one run.

    Attributes:
        seconds: wall time in seconds.
        status: status in its manifest.
        models: sha256 of the final models.
        failed: clients that failed at any time.
    """

    seconds: float
    status: str
    models: str
    failed: int


@dataclass(frozen=True)
class Fault:
    """Fault of a deployment.

    Attributes:
        deployment: "leaf servers", "SuperNodes", "Ray".
        told: the fault in words.
        strike: function to act on the running deployment, in its own thread; for Ray, a word instead.
    """

    deployment: str
    told: str
    strike: Callable[[Any], None] | str


# --- leaf servers -------------------------------------------------------------------------------------------


class Cut:
    """A link forwarding between two sides until it is cut."""

    def __init__(self, port: int) -> None:
        self._target_port, self._server = port, socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.is_cut = False
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._server.accept()
                if self.is_cut:
                    caller.close()
                    continue
                try:
                    other = socket.create_connection(("127.0.0.1", self._target_port))
                except OSError:
                    caller.close()
                    continue
                self._connections += [caller, other]
                for route in ((caller, other), (other, caller)):
                    threading.Thread(target=self._pass_on, args=route, daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while content := source.recv(2**16):
                target.sendall(content)
        for connection in (source, target):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Stop forwarding."""
        self.is_cut = True
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def fix(self) -> None:
        """Forward again."""
        self.is_cut = False

    def close(self) -> None:
        """Close it."""
        self.cut()
        self._server.close()


class LeafServers:
    """A cloud and three leaf servers, the second behind a link that can be cut."""

    def __init__(self, folder: Path, data: str) -> None:
        self.folder, self.data = folder, data
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self.certs = folder / "certs"
        _finish(_start_fedge("certs", self.certs, "--leaves", LEAVES, at=folder))
        self.link = Cut(self.port)
        self.leaves = {leaf: self.start_leaf(leaf) for leaf in range(LEAVES)}
        self.cloud: subprocess.Popen[bytes] | None = None

    def start_leaf(self, leaf: int) -> "subprocess.Popen[bytes]":
        """Start a leaf server."""
        port = self.link.port if leaf == 1 else self.port
        arguments = ["leaf", leaf, "--cloud", f"127.0.0.1:{port}", "--certs", self.certs, "--workers", 1]
        return _start_fedge(*arguments, "--data", self.data, at=self.folder)

    def run(self, config: str) -> "subprocess.Popen[bytes]":
        """Start the cloud."""
        arguments = ["--leaves", f"127.0.0.1:{self.port}", "--certs", self.certs]
        self.cloud = _start_fedge("run", ROOT, *arguments, "-c", config, at=self.folder)
        return self.cloud

    def kill_cloud(self) -> None:
        """Kill the cloud, and let it resume from its checkpoint."""
        assert self.cloud is not None
        self.cloud.kill()
        self.cloud.wait()
        time.sleep(AWAY_S)
        arguments = ["--leaves", f"127.0.0.1:{self.port}", "--certs", self.certs]
        self.cloud = _start_fedge("resume", self.folder / "runs" / "run", *arguments, at=self.folder)

    def kill_leaf(self, returns: bool) -> None:
        """Kill the second leaf server."""
        self.leaves[1].kill()
        self.leaves[1].wait()
        if returns:
            time.sleep(AWAY_S)
            self.leaves[1] = self.start_leaf(1)

    def cut_link(self, returns: bool) -> None:
        """Cut its link."""
        self.link.cut()
        if returns:
            time.sleep(AWAY_S)
            self.link.fix()

    def revoke(self, returns: bool) -> None:
        """Revoke its certificate, and break its link once; a new certificate may be installed."""
        _finish(_start_fedge("certs", self.certs, "--revoke", "leaf-1", at=self.folder))
        self.link.cut()
        self.link.fix()
        if returns:
            time.sleep(AWAY_S)
            _finish(_start_fedge("certs", self.certs, "--leaves", LEAVES, at=self.folder))
            with suppress(subprocess.TimeoutExpired):
                self.leaves[1].wait(10)  # it was refused
            if self.leaves[1].poll() is not None:
                self.leaves[1] = self.start_leaf(1)

    def close(self) -> None:
        """End all processes."""
        _end([*self.leaves.values(), *([self.cloud] if self.cloud else [])])
        self.link.close()


def on_leaf_servers(folder: Path, data: str, strike: Callable[[Any], None] | None) -> Came:
    """Run with leaf servers, with or without a fault."""
    config = _overrides({**_OPTIONS, "data.path": data, "runs-dir": str(folder / "runs")}, folder)
    with closing(LeafServers(folder, data)) as deployment:
        start = time.monotonic()
        deployment.run(config)
        fault_thread = _start_fault(deployment, strike, folder / "runs" / "run", lambda: deployment.cloud)
        _await_end(lambda: deployment.cloud, fault_thread)
        return _read_outcome(folder / "runs" / "run", start)


# --- SuperNodes ---------------------------------------------------------------------------------------------


class SuperNodes:
    """A SuperLink with three nodes owning their windows."""

    def __init__(self, deployment: Any, dealt: Path) -> None:
        self.deployment, self._dealt = deployment, dealt
        for node in range(LEAVES):
            self.start_node(node)

    def start_node(self, node: int) -> None:
        """Start a node."""
        self.deployment.start_node(node, LEAVES, self._dealt / f"client-{node}")

    def kill_node(self, returns: bool) -> None:
        """Kill the last node and its clients' processes."""
        process = self.deployment.nodes[LEAVES - 1]
        os.killpg(process.pid, signal.SIGKILL)  # it has its own session
        process.wait()
        if returns:
            time.sleep(AWAY_S)
            self.start_node(LEAVES - 1)


def on_supernodes(folder: Path, data: str, strike: Callable[[Any], None] | None) -> Came:
    """Run under a SuperLink, with or without a fault."""
    from deployment import BIN, Deployment  # type: ignore[import-not-found]

    from fedge.launch.deal import deal_into

    smaller = {"clients": LEAVES, "hierarchy.num-servers": 2, "num-server-rounds": 5, "train.local-epochs": 5}
    options = {**_OPTIONS, **smaller, "data.path": data}
    deal_into(folder / "dealt", options)
    with Deployment(folder, {**options, "data.path": "nowhere.npz", "runs-dir": "runs"}) as deployment:
        deployment.register(LEAVES)
        nodes = SuperNodes(deployment, folder / "dealt")
        start = time.monotonic()
        run = subprocess.Popen(
            [str(BIN / "fedge"), "run", ".", "deployed"], cwd=deployment.app,
            env=deployment.environment(folder / "user", SEED="5"), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        run_folder = deployment.app / "runs" / "run"
        fault_thread = _start_fault(nodes, strike, run_folder, lambda: run)
        _await_end(lambda: run, fault_thread)
        return _read_outcome(run_folder, start)


# --- Ray ----------------------------------------------------------------------------------------------------


def on_ray(folder: Path, data: str, lose: str | None) -> Came:
    """Run on three raylets without shared files, in namespaces; one raylet may be lost."""
    from ray_cluster import run_on_cluster  # type: ignore[import-not-found]

    options = {"clients": CLIENTS, "data.path": data, "runs-dir": "runs", "run-name": "cluster"}
    config = _overrides({**_OPTIONS, **options, "guard.return-timeout": 60, "num-server-rounds": 8}, folder)
    start = time.monotonic()
    run_on_cluster(folder, "run", ".", "--engine", "flower", "-c", config, lose=lose or "")
    return _read_outcome(folder / "runs" / "cluster", start)


# --- all of them --------------------------------------------------------------------------------------------

DEPLOYMENTS: Mapping[str, Callable[[Path, str, Any], Came]] = {
    "leaf servers": on_leaf_servers,
    "SuperNodes": on_supernodes,
    "Ray": on_ray,
}
LEAF, NODE, RAY = DEPLOYMENTS
FAULTS: Mapping[str, Fault] = {
    "leaf": Fault(LEAF, f"leaf server killed, back after {AWAY_S} s", lambda at: at.kill_leaf(True)),
    "leaf-gone": Fault(LEAF, "leaf server killed for good", lambda at: at.kill_leaf(False)),
    "link": Fault(LEAF, f"link cut for {AWAY_S} s", lambda at: at.cut_link(True)),
    "link-gone": Fault(LEAF, "link cut for good", lambda at: at.cut_link(False)),
    "cloud": Fault(LEAF, f"cloud killed, `fedge resume` after {AWAY_S} s", lambda at: at.kill_cloud()),
    "certificate": Fault(LEAF, f"certificate revoked, new after {AWAY_S} s", lambda at: at.revoke(True)),
    "certificate-gone": Fault(LEAF, "certificate revoked for good", lambda at: at.revoke(False)),
    "node": Fault(NODE, f"node killed, back after {AWAY_S} s", lambda at: at.kill_node(True)),
    "node-gone": Fault(NODE, "node killed for good", lambda at: at.kill_node(False)),
    "raylet": Fault(RAY, "raylet killed, another joins a round later", "and back"),
    "raylet-gone": Fault(RAY, "raylet killed for good", "for good"),
}


def main(words: Sequence[str] | None = None) -> int:
    """Cause the faults, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="of faults; all without any")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put the table between the marks of a page")
    parser.add_argument("--list", action="store_true", help="name the faults and end")
    options = parser.parse_args(words)
    if options.list:
        print("\n".join(FAULTS))
        return 0
    unknown = [name for name in options.names if name not in FAULTS]
    if unknown:
        parser.error(f"names must be of the list (--list), but is {unknown[0]!r}")
    lines, references = [], {}
    with tempfile.TemporaryDirectory(prefix="ff", dir="/tmp") as folder:
        data = str(save_windows(Path(folder) / "nine.npz", synthetic_windows(9, 1, rate_hz=25.0)))
        for name in options.names or FAULTS:
            fault = FAULTS[name]
            carry_out = DEPLOYMENTS[fault.deployment]
            if fault.deployment not in references:
                references[fault.deployment] = carry_out(_make_folder(folder, fault.deployment), data, None)
                print(f"{fault.deployment}: {references[fault.deployment]}", flush=True)
            outcome = carry_out(_make_folder(folder, name), data, fault.strike)
            print(f"{name}: {outcome}", flush=True)
            lines.append(row(fault, outcome, references[fault.deployment]))
    table = "".join(f"{line}\n" for line in (*HEAD, *lines))
    print(table, end="")
    if options.into:
        options.into.write_text(put_into(options.into.read_text(encoding="utf-8"), table), encoding="utf-8")
    return 0


HEAD = (
    "| deployment | fault | seconds lost | run ends | bits |",
    "|---|---|---:|---|---|",
)


def row(fault: Fault, outcome: Came, reference: Came) -> str:
    """Row of the table."""
    failed = f", {outcome.failed} client{'s' * (outcome.failed > 1)} failed" if outcome.failed else ""
    other_bits = "without those" if outcome.failed else "OTHERS"
    bits = "the same" if outcome.models == reference.models else other_bits
    lost_s = max(0, round(outcome.seconds - reference.seconds))
    return f"| {fault.deployment} | {fault.told} | {lost_s} | {outcome.status}{failed} | {bits} |"


def put_into(page: str, table: str) -> str:
    """Page with the table between its marks.

    Raises:
        ValueError: the page has no marks.
    """
    before, begin, rest = page.partition(_MARKS[0])
    _, end, after = rest.partition(_MARKS[1])
    if not (begin and end):
        raise ValueError(f"a page must have the marks {_MARKS[0].strip()} and {_MARKS[1].strip()}")
    return before + _MARKS[0] + table + _MARKS[1] + after


def _make_folder(parent: str, name: str) -> Path:
    folder = Path(parent) / name.replace(" ", "-")
    folder.mkdir()
    return folder


def _start_fault(
    deployment: Any,
    strike: Callable[[Any], None] | None,
    run: Path,
    current_process: Callable[[], "subprocess.Popen[bytes] | None"],
) -> threading.Thread:
    """Thread to cause a fault after some rounds of a run, if the run gets there."""

    def wait_and_strike() -> None:
        table, deadline = run / "metrics" / "global_rounds.csv", time.monotonic() + _MAX_RUN_S
        while not (table.is_file() and table.read_bytes().count(b"\n") > AFTER):
            process = current_process()
            if time.monotonic() > deadline or process is None or process.poll() is not None:
                return
            time.sleep(0.02)
        if strike is not None:
            strike(deployment)

    thread = threading.Thread(target=wait_and_strike)
    thread.start()
    return thread


def _await_end(
    current_process: Callable[[], "subprocess.Popen[bytes] | None"], fault_thread: threading.Thread
) -> None:
    """Wait for the end of the fault, and then for the current process.

    Raises:
        TimeoutError: the run does not end.
    """
    deadline = time.monotonic() + _MAX_RUN_S
    while fault_thread.is_alive() or (process := current_process()) is None or process.poll() is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"a run did not end within {_MAX_RUN_S} s")
        time.sleep(0.05)


def _read_outcome(run: Path, start: float) -> Came:
    """Outcome of a run just ended."""
    from fedge import load_run

    end = time.monotonic()
    loaded = load_run(run)
    final = run / "checkpoints" / "final.safetensors"
    models = hashlib.sha256(final.read_bytes()).hexdigest()[:12] if final.is_file() else ""
    rows = loaded.clients
    seen_clients = rows.filter(rows["unseen_client"] == 0) if "unseen_client" in rows.columns else rows
    failed = seen_clients.filter(seen_clients["train_loss"].is_null())["client"].n_unique()
    return Came(end - start, str(loaded.status), models, failed)


def _start_fedge(*words: object, at: Path) -> "subprocess.Popen[bytes]":
    """Start a command `fedge` of this environment, with its output in a file."""
    variables = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    environment = {name: value for name, value in os.environ.items() if name != "SEED"} | variables
    with (at / "said.txt").open("ab") as output:
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("fedge")), *map(str, words)], cwd=at, env=environment,
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip


def _finish(process: "subprocess.Popen[bytes]") -> None:
    """Wait for a command.

    Raises:
        RuntimeError: it failed.
    """
    if process.wait(_MAX_RUN_S):
        raise RuntimeError(f"{process.args!r} ended with exit code {process.returncode}")


def _end(processes: Sequence["subprocess.Popen[bytes]"]) -> None:
    """End the processes started here."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    deadline = time.monotonic() + 20
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        time.sleep(0.1)
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def _overrides(config: Mapping[str, Any], folder: Path) -> str:
    """Path of a TOML file of options."""
    path = folder / "overrides.toml"
    keys = (".".join(map(json.dumps, key.split("."))) for key in config)
    path.write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in zip(keys, config.values(), strict=True)))
    return str(path)


if __name__ == "__main__":
    sys.exit(main())
