"""Fingerprints of a fixed list of small runs: does a change alter anything a run computes?

python -m tools.golden --write FILE      before the change
python -m tools.golden --against FILE    after it

The file is not part of the repository, because bits depend on processor and libraries. Models are trained by
PyTorch, whose bits do not depend on Fedge's code; those of the native step may. Compared are models, cluster
steps and every column of every metric file except times of the machine; a column written only by the newer
code is listed, but is not a difference. NAMES limit the list; `--list` shows it.
"""

import argparse
import csv
import hashlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedge import simulate
from fedge.launch.projects.project import flatten, read_toml
from fedge.records.reading.reader import load_run
from hhar.synthetic.generate import synthetic_windows
from hhar.windows.window_file import save_windows

ROOT = Path(__file__).parents[1]
LEAVES, ROUNDS = 3, 3
OF_THE_MACHINE = {"seconds", "train_seconds"}
RENAMED: Mapping[str, str] = {}
"""Column in older files, as "global_rounds.seconds" → its name now."""

Print = dict[str, str]
"""Part of a run, as "leaf_rounds.gate" → sha256 of it."""


@dataclass(frozen=True)
class Case:
    """A run of the list.

    Attributes:
        file: file below configs/ with the first options; empty for none.
        options: further options.
        carry_out: function (options, folder for its runs) → run folder.
    """

    file: str
    options: Mapping[str, Any]
    carry_out: Callable[[dict[str, Any], Path], Path]


def in_this_process(config: dict[str, Any], folder: Path) -> Path:
    """Run folder of a run on threads of this process."""
    run = simulate(config, terminal=io.StringIO())
    return run.folder


def on_ray(config: dict[str, Any], folder: Path) -> Path:
    """Run folder of a run on Flower's simulation."""
    _finish(_start_fedge("run", ".", "--engine", "flower", "-c", _write_overrides(config, folder)))
    return folder / "runs" / "run"


def killed(config: dict[str, Any], folder: Path) -> Path:
    """Run folder of a run killed after its second global round, and resumed."""
    process = _start_fedge("run", ".", "-c", _write_overrides(config, folder))
    run_folder = folder / "runs" / "run"
    while process.poll() is None and _num_rows(run_folder / "metrics" / "global_rounds.csv") < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    _finish(_start_fedge("resume", str(run_folder)))
    return run_folder


def leaf_servers(config: dict[str, Any], folder: Path) -> Path:
    """Run folder of a run whose leaf servers are separate processes."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    certs = str(folder / "certs")
    _finish(_start_fedge("certs", certs, "--leaves", str(LEAVES)))
    arguments = ["--cloud", address, "--certs", certs, "--workers", "1", "--data", config["data.path"]]
    leaves = [_start_fedge("leaf", str(leaf), *arguments, at=folder) for leaf in range(LEAVES)]
    try:
        overrides = _write_overrides(config, folder)
        _finish(_start_fedge("run", ".", "--leaves", address, "--certs", certs, "-c", overrides))
    finally:
        for leaf in leaves:
            leaf.send_signal(signal.SIGINT)
        for leaf in leaves:
            leaf.communicate(timeout=60)
    return folder / "runs" / "run"


_DEVICES = {"clients": 12, "asynchrony.concurrency": 6, "asynchrony.rule-args.buffer": 2}
_FEDGE = {"num-server-rounds": 6, "scenario": "label-permutation", "cluster.regroup-every": 2}
_SERVING = {
    "cluster.tau": 1.01, "cluster.blend": "auto", "gate.rule": "after-round", "personal.leaf-rounds": 1,
    "personal.layers": "head", "partition.unseen-clients": 1, "hierarchy.leaf-rounds": 2,
}  # fmt: skip
_PRIVATE = {"hierarchy.num-servers": LEAVES, "train.model": "cnn-pool"}
_LEVELS = {"hierarchy.leaf-rounds": 2, "hierarchy.fraction-train": 0.67}
CASES: Mapping[str, Case] = {
    "default": Case("", {}, in_this_process),
    "default, Ray": Case("", {}, on_ray),
    "fedge": Case("fedge", _FEDGE, in_this_process),
    "fedge, Ray": Case("fedge", _FEDGE, on_ray),
    "levels 2": Case("baselines/mtgc", _LEVELS, in_this_process),
    "levels 2, clusters": Case("", {"scaffold.levels": 2, "gate.enabled": False, **_LEVELS}, in_this_process),
    "ifca": Case("baselines/ifca", {"cluster.count": "2"}, in_this_process),
    "cfl": Case("baselines/cfl", {}, in_this_process),
    "serving": Case("", _SERVING, in_this_process),
    "fedadam": Case("server/fedadam", {"cluster.every": 2}, in_this_process),
    "private": Case("private/client-fixed", _PRIVATE, in_this_process),
    "private, adaptive": Case("private/client-adaptive", _PRIVATE, in_this_process),
    "fedbuff": Case("devices/fedbuff", _DEVICES, in_this_process),
    "hierarchical devices": Case(
        "devices/hierarchical", {**_DEVICES, "hierarchy.num-servers": 2}, in_this_process
    ),
    "killed": Case("", {"num-server-rounds": 5, **_LEVELS}, killed),
    "killed, fedge": Case("fedge", _FEDGE, killed),
    "killed, hierarchical devices": Case(
        "devices/hierarchical", {**_DEVICES, "hierarchy.num-servers": 2, "num-server-rounds": 6}, killed
    ),
    "leaf servers": Case("", {}, leaf_servers),
    "leaf servers, fedge": Case("fedge", _FEDGE, leaf_servers),
}


def fingerprint(folder: Path) -> Print:
    """Part of a run folder → sha256, without times of the machine."""
    parts = {
        "models": _sha((folder / "checkpoints" / "final.safetensors").read_bytes()),
        "partition": _sha((folder / "partition.csv").read_bytes()),
    }
    for path in sorted((folder / "metrics").iterdir()):
        if path.suffix == ".csv":
            rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
            for name, *values in zip(*rows, strict=True):
                if name not in OF_THE_MACHINE:
                    parts[f"{path.stem}.{name}"] = _sha("\n".join(values).encode())
        else:
            parts[path.stem] = _sha(path.read_bytes())
    steps = folder / "clusters.jsonl"
    if steps.is_file():
        lines = [json.loads(line) for line in steps.read_text(encoding="utf-8").splitlines()]
        for name in sorted({name for line in lines for name in line}):
            parts[f"clusters.{name}"] = _sha(json.dumps([line.get(name) for line in lines]).encode())
    return parts


def differences(before: Print, after: Print) -> tuple[list[str], list[str]]:
    """Parts that differ or are missing, and parts found only in `after`."""
    current_names = {name: RENAMED.get(name, name) for name in before}
    differ = [name for name, sha in before.items() if after.get(current_names[name]) != sha]
    return differ, sorted(after.keys() - current_names.values())


def carry_out(name: str, data: str, folder: Path) -> Print:
    """Fingerprint of a case, run below `folder`.

    Raises:
        RuntimeError: the run failed.
    """
    case = CASES[name]
    base = flatten(read_toml(ROOT / "configs" / f"{case.file}.toml", "config")) if case.file else {}
    overrides = {
        "num-server-rounds": ROUNDS, "train.model": "mlp-tiny", "train.local-epochs": 1, "seed": 5,
        "train.kernel": "torch", "data.path": data, "report": False,
        "run-name": "run", "runs-dir": str(folder / "runs"),
    }  # fmt: skip
    run = case.carry_out({**base, **overrides, **case.options}, folder)
    loaded = load_run(run)
    if loaded.status != "completed":
        raise RuntimeError(f"{name}: {loaded.status}: {loaded.reason}")
    return fingerprint(run)


def main(words: Sequence[str] | None = None) -> int:
    """Run all cases; exit code 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", help="of runs; all without any")
    parser.add_argument("--write", type=Path, metavar="FILE", help="keep the fingerprints")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with those that were kept")
    parser.add_argument("--list", action="store_true", help="name the runs and end")
    options = parser.parse_args(words)
    if options.list:
        print("\n".join(CASES))
        return 0
    unknown = [name for name in options.names if name not in CASES]
    if unknown:
        parser.error(f"names must be of the list (--list), but is {unknown[0]!r}")
    recorded = json.loads(options.against.read_text()) if options.against else {}
    prints, differ = {}, False
    with tempfile.TemporaryDirectory(prefix="fedge-golden-") as parent:
        data = str(save_windows(Path(parent) / "nine.npz", synthetic_windows(9, 1, rate_hz=25.0)))
        for number, name in enumerate(options.names or CASES):
            folder = Path(parent) / str(number)
            folder.mkdir()
            prints[name] = parts = carry_out(name, data, folder)
            result = _sha(json.dumps(parts, sort_keys=True).encode())
            if options.against and name in recorded:
                changed, new = differences(recorded[name], parts)
                differ |= bool(changed)
                result = f"DIFFERS: {', '.join(changed)}" if changed else "same"
                result += f" (new: {', '.join(new)})" if new else ""
            print(f"{name:30} {result}", flush=True)
    if options.write:
        options.write.write_text(json.dumps(prints, indent=1) + "\n", encoding="utf-8")
    return int(differ)


def _start_fedge(*words: str, at: Path = ROOT) -> subprocess.Popen[str]:
    """Start a command `fedge` of this environment."""
    bins = Path(sys.executable).parent
    variables = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    environment = {name: value for name, value in os.environ.items() if name != "SEED"} | variables
    environment["PATH"] = f"{bins}{os.pathsep}{environment['PATH']}"
    return subprocess.Popen(
        [bins / "fedge", *words], cwd=at, env=environment, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def _finish(process: subprocess.Popen[str]) -> None:
    """Wait for a command.

    Raises:
        RuntimeError: it failed.
    """
    output, _ = process.communicate(timeout=600)
    if process.returncode:
        raise RuntimeError(f"{process.args!r} ended with exit code {process.returncode}:\n{output[-2000:]}")


def _write_overrides(config: Mapping[str, Any], folder: Path) -> str:
    """Path of a TOML file of options."""
    path = folder / "overrides.toml"
    keys = (".".join(map(json.dumps, key.split("."))) for key in config)
    path.write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in zip(keys, config.values(), strict=True)))
    return str(path)


def _num_rows(table: Path) -> int:
    """Number of rows of a table, without its header."""
    return max(0, table.read_bytes().count(b"\n") - 1) if table.is_file() else 0


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
