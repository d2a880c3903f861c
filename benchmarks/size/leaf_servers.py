"""Many leaf servers of many clients on this machine's loopback interface: start, round, memory.

    python -m benchmarks.size.leaf_servers [--leaves 30] [--clients 100] [--processes 3] [--rounds 4]

The tree has a server over the leaves of each process (`fedge leaf --at`), or one leaf server each if there
are as many processes as leaves. The model is softmax regression on generated windows, so Fedge itself is
measured. Times are wall times; memory is each process's peak (VmHWM).
"""

import argparse
import csv
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.commands import exit_with
from benchmarks.size.many_leaves import people
from hhar.windows.window_file import save_windows

_FEDGE = str(Path(sys.executable).with_name("fedge"))
_MAX_RUN_S = 3600


def main(words: Sequence[str] | None = None) -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("leaves", 30), ("clients", 100), ("processes", 3), ("rounds", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(words)
    if options.leaves % options.processes:
        parser.error(f"--processes must divide --leaves, but are {options.processes} and {options.leaves}")
    with tempfile.TemporaryDirectory(prefix="fedge-many-") as folder:
        print(carry_out(Path(folder), options))


def carry_out(folder: Path, options: argparse.Namespace) -> str:
    """Line for a run with leaf servers in some processes."""
    total, one_per_process = options.leaves * options.clients, options.processes == options.leaves
    tree = f"{options.processes}x{options.leaves // options.processes}x{options.clients}"
    config = {
        "hierarchy.tree": "" if one_per_process else tree, "num-server-rounds": options.rounds,
        "train.model": "linear",
        "data.path": str(save_windows(folder / "people.npz", people(total, per_class=6))),
        "train.local-epochs": 1, "cluster.enabled": False, "gate.enabled": False, "report": False,
        "scaffold.enabled": False, "runs-dir": str(folder / "runs"), "run-name": "run", "seed": 1,
        "guard.start-timeout": 900.0, "guard.stall-timeout": 3600.0, "clients": total,
    }  # fmt: skip
    if one_per_process:
        config |= {"hierarchy.num-servers": options.leaves}
        config.pop("hierarchy.tree")
    names = [str(number) for number in range(options.processes)]
    certs = ["--leaves", str(options.leaves)] if one_per_process else ["--at", ",".join(names)]
    subprocess.run([_FEDGE, "certs", "certs", *certs], cwd=folder, check=True, capture_output=True)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    start = time.monotonic()
    servers = [
        _start(folder, "leaf", *([name] if one_per_process else ["--at", name]), "--cloud", address,
               "--workers", "1", "--data", str(config["data.path"]))
        for name in names
    ]  # fmt: skip
    cloud = _start(folder, "run", "--leaves", address, "-c", _write_overrides(config, folder))
    peaks: dict[int, float] = {}
    table, first_round_s = folder / "runs" / "run" / "metrics" / "global_rounds.csv", 0.0
    try:
        while cloud.poll() is None and time.monotonic() < start + _MAX_RUN_S:
            for process in (cloud, *servers):
                peaks[process.pid] = _peak_mib(process.pid) or peaks.get(process.pid, 0.0)
            if not first_round_s and table.is_file() and table.read_bytes().count(b"\n") > 1:
                first_round_s = time.monotonic() - start
            time.sleep(0.2)
    finally:
        for process in (cloud, *servers):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
        for process in (cloud, *servers):
            process.wait(60)
    output = (folder / "said.txt").read_text()
    if cloud.returncode:
        raise RuntimeError(f"the run ended with exit code {cloud.returncode}: {output[-1000:]}")
    seconds = [float(row["seconds"]) for row in csv.DictReader(table.open())]
    server_peaks = [peaks[process.pid] for process in servers]
    round_s = statistics.median(seconds[1:]) if len(seconds) > 1 else float("nan")
    return (
        f"{options.leaves} leaf servers of {options.clients} clients in {options.processes} processes: first "
        f"round done {first_round_s:.0f} s after the start, further rounds {round_s:.2f} s (median), "
        f"peak cloud {peaks[cloud.pid]:.0f} MiB, leaf servers {max(server_peaks):.0f} MiB each at most, "
        f"{sum(server_peaks):.0f} MiB together"
    )


def _start(folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    """Start a command `fedge`."""
    with (folder / "said.txt").open("ab") as output:
        return subprocess.Popen([_FEDGE, *words], cwd=folder, stdout=output, stderr=output)


def _peak_mib(pid: int) -> float:
    """Peak memory of a process; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next(
        (int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0.0
    )


def _write_overrides(config: dict[str, object], folder: Path) -> str:
    """Path of a TOML file of options."""
    keys = (".".join(map(json.dumps, key.split("."))) for key in config)
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in zip(keys, config.values(), strict=True))
    (folder / "overrides.toml").write_text("".join(lines))
    return str(folder / "overrides.toml")


if __name__ == "__main__":
    exit_with(main)
