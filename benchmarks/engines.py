"""Runs of Fedge as a user starts them, each in its own processes, observed from outside.

    python -m benchmarks.engines CONFIG.json CLIENTS     a run in one process (used by `start`)

The module also writes the window files for benchmarks.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from benchmarks.common import ROOT, WORKERS
from fedge.timing.laps import PHASES
from hhar.windows.window_file import Windows, save_windows

ENGINES = ("inprocess", "ray")
TRAINING = "train"  # name of the sessions of training windows
_MIB = 2**20
_SAMPLE_S = 0.2
_KINDS = ("rss", "pss", "high")


# --- window files ---------------------------------------------------------------------------------------


def write_windows(
    path: Path,
    training: Sequence[int],
    held_out: Sequence[int],
    channels: int,
    samples: int,
    classes: int,
) -> None:
    """Write a window file of noise in which client k trains on exactly ``training[k]`` windows.

    Each client is a user with three sessions per class: the longest trains, the other two validate and test,
    as dealt by `fedge.data.split`. `held_out` gives the windows of a client's validation split and of its
    test split, fewer than its training windows, and at least one per class.
    """
    rng = np.random.default_rng(0)
    y, user, session = [], [], []
    for client, (train, held) in enumerate(zip(training, held_out, strict=True)):
        for label in range(classes):
            for name, total in ((TRAINING, train), ("held-1", held), ("held-2", held)):
                count = total // classes + (label < total % classes)
                y.append(np.full(count, label))
                user.append(np.full(count, f"client-{client:06d}"))
                session.append(np.full(count, f"{name}-{label}"))
    labels = np.concatenate(y).astype(np.int64)
    x = rng.standard_normal((len(labels), channels, samples), dtype=np.float32)
    x += labels[:, None, None].astype(np.float32) / classes
    names = (
        tuple(f"class-{label}" for label in range(classes)),
        tuple(f"channel-{c}" for c in range(channels)),
    )
    save_windows(path, Windows(x, labels, np.concatenate(user), None, np.concatenate(session), *names))


def leaf_totals_to_clients(totals: Sequence[int], clients_per_leaf: int = 3) -> list[int]:
    """Windows per client when each leaf's total is spread evenly over its clients."""
    return [
        total // clients_per_leaf + (client < total % clients_per_leaf)
        for total in totals
        for client in range(clients_per_leaf)
    ]


# --- clients --------------------------------------------------------------------------------------------


class Configured(ClientApp):
    """A ClientApp with the options `flwr run` would pass to it."""

    def __init__(self, app: ClientApp, config: Mapping[str, Any]) -> None:
        super().__init__()
        self._app = app
        self._config = dict(config)

    def __call__(self, message: Message, context: Context) -> Message:
        """Answer a message."""
        node, state = context.node_config, context.state
        return self._app(message, Context(context.run_id, context.node_id, node, state, self._config))


# --- memory ---------------------------------------------------------------------------------------------


class TreeMemory:
    """Peak memory of a process and its descendants, sampled on a thread of this process.

    RSS counts shared pages in every process that maps them; PSS divides them, so it can be summed. "high" is
    the largest RSS recorded by the system, independent of samples, summed over a role's processes.
    Attributes after use: `peak_mib`, role → {"rss", "pss", "high"}, where "tree" is the largest sum over all
    roles, and "shm" the growth of files in memory (of the whole machine).
    """

    def __init__(self, pid: int) -> None:
        self.peak_mib: dict[str, dict[str, float]] = {}
        self._root = psutil.Process(pid)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._shm_before = _shm_mib()

    def __enter__(self) -> TreeMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE_S):
            current: dict[str, dict[str, float]] = {}
            try:
                processes = [self._root, *self._root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for process in processes:
                self._add(process, current)
            shared = max(0.0, _shm_mib() - self._shm_before)
            current["shm"] = dict.fromkeys(_KINDS, shared)
            for role, sizes in current.items():
                peak = self.peak_mib.setdefault(role, dict.fromkeys(_KINDS, 0.0))
                for kind, size in sizes.items():
                    peak[kind] = max(peak[kind], size)

    def _add(self, process: psutil.Process, current: dict[str, dict[str, float]]) -> None:
        try:
            memory, role = process.memory_full_info(), role_of(process, self._root.pid)
        except psutil.Error:
            return  # it has ended
        pss, high = getattr(memory, "pss", memory.rss), max(memory.rss, _highest_rss(process.pid))
        for name in (role, "tree"):
            sizes = current.setdefault(name, dict.fromkeys(_KINDS, 0.0))
            sizes["rss"] += memory.rss / _MIB
            sizes["pss"] += pss / _MIB
            sizes["high"] += high / _MIB


def _highest_rss(pid: int) -> int:
    """Largest RSS of a process so far in bytes; 0 if the system does not report it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def _shm_mib() -> float:
    """MiB in files in memory."""
    return shutil.disk_usage("/dev/shm").used / _MIB if Path("/dev/shm").is_dir() else 0.0


def role_of(process: psutil.Process, root: int) -> str:
    """Role of a process: server, worker, ray (Ray's own) or launcher (`flwr run`, which waits)."""
    command_line = " ".join(process.cmdline())
    if "ClientAppActor" in command_line:
        return "worker"
    if process.name() in ("raylet", "gcs_server") or "ray::" in command_line or "/ray/" in command_line:
        return "ray"
    if process.pid == root and "run" in process.cmdline():
        return "launcher"
    return "server"


# --- runs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        phases: per global round, its row of timing.csv in seconds, "total" included.
        train_s: per global round, the training seconds reported by each client, in partition order.
        peak_mib: as in `TreeMemory`; empty if not requested.
        wall_s: wall time of the process in seconds.
    """

    phases: list[dict[str, float]]
    train_s: list[list[float]]
    peak_mib: dict[str, dict[str, float]]
    wall_s: float

    def round_s(self, skip: int = 1) -> list[float]:
        """Seconds of each global round, without the first `skip`."""
        return [phases["total"] for phases in self.phases[skip:]]

    def not_training(self, skip: int = 1) -> list[float]:
        """Share of each round in which not even the busiest worker trained.

        The seconds reported by clients are distributed over `WORKERS` workers in the order sent; the rest of
        the round's wall time is overhead. Idle time caused by an uneven last client counts as training.
        """
        rounds = zip(self.train_s[skip:], self.round_s(skip), strict=True)
        return [1 - makespan(seconds) / total_s for seconds, total_s in rounds]


def makespan(seconds: Sequence[float], workers: int = WORKERS) -> float:
    """Time until all jobs are done if each free worker takes the longest remaining job, as in Fedge."""
    busy = [0.0] * workers
    for job in sorted(seconds, reverse=True):
        busy[busy.index(min(busy))] += job
    return max(busy)


def carry_out(
    engine: str,
    config: Mapping[str, Any],
    folder: Path,
    clients: int = 9,
    watch_memory: bool = False,
    command: Sequence[str] | None = None,
) -> Run:
    """Carry out one run, with its files in `folder`, on `WORKERS` workers.

    Args:
        engine: "inprocess", or "ray" for `flwr run .`.
        config: options differing from their defaults.
        folder: folder of the run, created if missing.
        clients: number of SuperNodes.
        watch_memory: whether to sample the process tree's memory.
        command: command to start instead of the engine's own; configuration file and `clients` are appended.

    Raises:
        RuntimeError: the run did not complete; the message has its last words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = {**config, "runs-dir": str(folder / "runs")}
    log_path = folder / "output.txt"
    arguments = [*command, str(_write_json(settings, folder)), str(clients)] if command else None
    arguments = arguments or _command(engine, settings, folder, clients)
    start = time.perf_counter()
    with log_path.open("w", encoding="utf-8") as log:
        process = subprocess.Popen(arguments, cwd=ROOT, env=environment(), stdout=log, stderr=log)
        memory = TreeMemory(process.pid)
        if watch_memory:
            with memory:
                process.wait()
        else:
            process.wait()
    wall_s = time.perf_counter() - start
    run = folder / "runs" / "latest"
    manifest = run / "manifest.json"
    status = json.loads(manifest.read_text())["status"] if manifest.is_file() else "never started"
    if status != "completed":
        raise RuntimeError(f"{engine} run is {status}: {log_path.read_text()[-2000:]}")
    return Run(*read_tables(run), memory.peak_mib, wall_s)


def environment() -> dict[str, str]:
    """Environment of a run: this Python's programs, no seed from outside, no statistics sent."""
    variables = {name: value for name, value in os.environ.items() if name != "SEED"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{variables.get('PATH', '')}"
    return {
        **variables,
        "PATH": path,
        "PYTHONPATH": str(ROOT),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def _command(engine: str, config: Mapping[str, Any], folder: Path, clients: int) -> list[str]:
    """Command as a user would type it."""
    if engine == "inprocess":
        return [sys.executable, "-m", "benchmarks.engines", str(_write_json(config, folder)), str(clients)]
    assert engine == "ray", engine
    overrides = folder / "overrides.toml"
    overrides.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in config.items()))
    share = (os.cpu_count() or WORKERS) / WORKERS  # CPUs per client, so that WORKERS fit at a time
    federation = f"options.num-supernodes={clients} options.backend.client-resources.num-cpus={share}"
    arguments = ["flwr", "run", ".", "local-simulation", "-c", str(overrides)]
    return [*arguments, "--federation-config", federation]


def _write_json(config: Mapping[str, Any], folder: Path) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(dict(config)))
    return path


def read_tables(run: Path) -> tuple[list[dict[str, float]], list[list[float]]]:
    """Rows of timing.csv, and the clients' training seconds per round, from a run folder."""
    with (run / "timing.csv").open(newline="") as table:
        names = (*PHASES, "total")
        phases = [{name: float(row[name]) for name in names} for row in csv.DictReader(table)]
    train_s: list[list[float]] = [[] for _ in phases]
    with (run / "metrics" / "clients.csv").open(newline="") as table:
        for row in csv.DictReader(table):
            train_s[int(row["global_round"]) - 1].append(float(row["train_seconds"]))
    return phases, train_s


def main() -> None:
    """Carry out one run in this process."""
    from fedge import simulate

    config = json.loads(Path(sys.argv[1]).read_text())
    simulate(config, num_supernodes=int(sys.argv[2]), workers=WORKERS)


if __name__ == "__main__":
    main()
