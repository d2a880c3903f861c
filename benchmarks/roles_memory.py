"""Memory by role in a deployment with a large model: cloud, leaf servers, SuperNodes, as local processes.

    python -m benchmarks.roles_memory [--megabytes 120] [--leaves 1] [--clients 3] [--rounds 2]
        [--spill 50] [--scaffold]

Clients train a convolutional network, nearly all of whose parameters are in its linear layer, on a few
images, one batch of two at a time. Everything is on the loopback interface, over TLS and with keys. Processes
are measured five times a second from outside: RSS counts pages mapped by several processes once for each, PSS
divides them, and "anonymous" is memory the system cannot reclaim, unlike pages of files. The table has the
largest process of each role, at its peak. `--spill` is `transfer.spill-above-mb` in MB, or auto.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from fedge.launch.flower_runs.flower import toml_of
from fedge.link.reach import free_ports
from hhar.windows.window_file import Windows, save_windows

_FEDGE = str(Path(sys.executable).with_name("fedge"))
_MAX_RUN_S = 3600
_SAMPLE_S = 0.2
_MARK = "FEDGE_BENCHMARK"
_PER_CLIENT = 12  # images, half of them of each class
_BYTES_A_PIXEL = 64 * 128 * 4 / 16  # linear layer: 64 channels of a sixteenth of the pixels, 128 outputs
_KINDS = ("Rss", "Pss", "Pss_Anon")
_ROLES = (  # words of a command line → role of its process
    ("flwr-serverapp", "leaf server"), ("flower-superlink", "leaf server's SuperLink"),
    ("flower-supernode", "node: SuperNode"), ("fedge node", "node: fedge node"),
    ("fedge run", "cloud"), ("fedge leaf", "leaf server: fedge leaf, flwr run"), ("flwr run", ""),
)  # fmt: skip
CLIENT_APP = "node: ClientApp"


def main(words: Sequence[str] | None = None) -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("megabytes", 120), ("leaves", 1), ("clients", 3), ("rounds", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--spill", default="50")
    parser.add_argument("--scaffold", action="store_true")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="fedge-roles-") as folder:
        print(carry_out(Path(folder), options))


def side_of(megabytes: float) -> int:
    """Side of square images, a multiple of four, for which the model has about this size."""
    return 4 * round((megabytes * 1e6 / _BYTES_A_PIXEL) ** 0.5 / 4)


def images(clients: int, side: int) -> Windows:
    """Images of noise, brighter in one class, from as many users as there are clients."""
    y = np.tile(np.arange(2), clients * _PER_CLIENT // 2)
    x = np.random.default_rng(0).random((len(y), 1, side, side), dtype=np.float32)
    x += y[:, None, None, None].astype(np.float32)
    user = np.repeat([f"user-{number}" for number in range(clients)], _PER_CLIENT)
    return Windows(x, y, user, None, None, ("dark", "bright"), ("brightness",))


def carry_out(folder: Path, options: argparse.Namespace) -> str:
    """Table of one run."""
    side, total = side_of(options.megabytes), options.leaves * options.clients
    config: dict[str, Any] = {
        "data.path": str(save_windows(folder / "images.npz", images(total, side))), "data.guard-windows": 0,
        "train.model": "cnn2d", "train.batch-size": 2, "train.local-epochs": 1, "seed": 1,
        "num-server-rounds": options.rounds, "hierarchy.num-servers": options.leaves,
        "scaffold.enabled": options.scaffold, "gate.enabled": False, "cluster.enabled": False,
        "report": False,
        "transfer.spill-above-mb": options.spill if options.spill == "auto" else float(options.spill),
        "guard.client-timeout": 1800.0, "guard.start-timeout": 300.0,
    }  # fmt: skip
    (folder / "deal.toml").write_text(toml_of(config))
    _run_command(folder, "deal", "dealt", "--clients", str(total), "-c", "deal.toml")
    _run_command(folder, "certs", "certs", "--leaves", str(options.leaves), "--nodes", str(total))
    config |= {"clients": total, "runs-dir": "runs", "run-name": "run", "data.path": "nowhere.npz"}
    (folder / "run.toml").write_text(toml_of(config))
    cloud, *fleets = (f"127.0.0.1:{port}" for port in free_ports(1 + options.leaves))
    mark, peaks = f"roles-{os.getpid()}", dict[str, dict[str, float]]()
    start = time.monotonic()
    try:
        for leaf, fleet in enumerate(fleets):
            _start(folder, mark, f"leaf-{leaf}", "leaf", str(leaf), "--cloud", cloud, "--nodes", fleet)
        for client in range(total):
            superlink = fleets[client // options.clients]
            arguments = ["node", str(client), "--of", str(total), "--superlink", superlink]
            _start(folder, mark, f"node-{client}", *arguments, "--data-folder", f"dealt/client-{client}")
        run = _start(folder, mark, "run", "run", "--leaves", cloud, "--owners", "-c", "run.toml")
        while run.poll() is None and time.monotonic() < start + _MAX_RUN_S:
            for role, sizes in _measure_processes(mark):
                peak = peaks.setdefault(role, dict.fromkeys(_KINDS, 0.0))
                peak.update({kind: max(peak[kind], sizes[kind]) for kind in _KINDS})
            time.sleep(_SAMPLE_S)
    finally:
        _end(mark)
    seconds = time.monotonic() - start
    if run.returncode:
        raise RuntimeError(f"exit code {run.returncode}: {(folder / 'run.out').read_text()[-1000:]}")
    model = 4 * (side // 4) ** 2 * 64 * 128 / 1e6
    lines = [
        f"{model:.0f} MB, {options.leaves} leaf servers of {options.clients} nodes, {options.rounds} rounds, "
        f"SCAFFOLD {'on' if options.scaffold else 'off'}, spill above {options.spill} MB, {seconds:.0f} s",
        "", "| role | RSS | PSS | anonymous |", "|---|---:|---:|---:|",
        *(f"| {role} | {h['Rss']:,.0f} | {h['Pss']:,.0f} | {h['Pss_Anon']:,.0f} |"
          for role, h in sorted(peaks.items())),
    ]  # fmt: skip
    return "\n".join(lines)


def _measure_processes(mark: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Role and MiB of each process of the run."""
    for process in _processes_of(mark):
        with suppress(psutil.Error, OSError):
            if role := _role_of(process):
                yield role, _memory_mib(process.pid)


def _role_of(process: psutil.Process) -> str:
    """Role of a process; empty if it is irrelevant. A ClientApp is a fork of its `fedge node`."""
    role = _role_of_command(process.cmdline())
    parent = process.parent()
    if role == "node: fedge node" and parent is not None and _role_of_command(parent.cmdline()) == role:
        return CLIENT_APP
    return role


def _role_of_command(command: Sequence[str]) -> str:
    """Role of the process started by a command line."""
    line = " ".join(Path(word).name for word in command[:6])
    return next((role for pattern, role in _ROLES if pattern in line), "")


def _memory_mib(pid: int) -> dict[str, float]:
    """MiB of a process by kind."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    sizes = {line.split(":")[0]: float(line.split()[1]) / 1024 for line in text.splitlines()[1:]}
    return {kind: sizes.get(kind, 0.0) for kind in _KINDS}


def _processes_of(mark: str) -> list[psutil.Process]:
    """Processes of the run."""
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                processes.append(process)
    return processes


def _run_command(folder: Path, *words: str) -> None:
    """Run a command `fedge` to its end."""
    subprocess.run([_FEDGE, *words], cwd=folder, check=True, capture_output=True)


def _start(folder: Path, mark: str, name: str, *words: str) -> "subprocess.Popen[bytes]":
    """Start a command `fedge`; its output goes to NAME.out."""
    variables = {
        "FLWR_HOME": str(folder / "flower" / name),
        "XDG_STATE_HOME": str(folder / "state"),
        _MARK: mark,
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with (folder / f"{name}.out").open("ab") as log:
        return subprocess.Popen(
            [_FEDGE, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={**os.environ, **variables, "PATH": path, "FLWR_TELEMETRY_ENABLED": "0"},
            start_new_session=True,
        )  # fmt: skip


def _end(mark: str) -> None:
    """End all processes of the run."""
    for signum, patience_s in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 10.0)):
        for process in _processes_of(mark):
            with suppress(psutil.Error):
                process.send_signal(signum)
        deadline = time.monotonic() + patience_s
        while _processes_of(mark) and time.monotonic() < deadline:
            time.sleep(_SAMPLE_S)


if __name__ == "__main__":
    main()
