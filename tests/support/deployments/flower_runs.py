"""Real runs through `flwr run`, and what of their folders must be equal."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
from processes import MARK

ROOT = Path(__file__).parents[3]
_SLOW_S = 100.0  # of a run of some rounds on Ray


SMALL = {
    "report": False,
    "num-server-rounds": 3,
    "train.local-epochs": 1,
    "data.path": "synthetic",
    "hierarchy.leaf-rounds": 2,
    "hierarchy.num-servers": 4,
    "partition.unseen-clients": 1,
    "scenario": "rotate",
    "cluster.signal": "affinity",
    "cluster.method": "agglomerative",
    "cluster.count": "auto",
    "cluster.level": 0.5,
    "cluster.patience": 2,
    "cluster.probe-every": 1,
}


# every leaf its own cluster, a choice of offers, a tentative one beside the leaf's own line, fine-tuning
SERVING = {
    "cluster.tau": 1.01,
    "cluster.blend": "auto",
    "gate.rule": "after-round",
    "personal.leaf-rounds": 1,
    "personal.layers": "head",
}


def flwr_run(tmp_path, config, *words, **options):
    """Run `flwr run . WORDS -c FILE` in the project, with `config` in FILE; returns the finished process."""
    return start("flwr", "run", ".", *words, "-c", _patiently(tmp_path, config), **options)


def one_worker_run(tmp_path, config, **options):
    """Start what `flwr run` starts, for a federation whose clients take all cores: one Ray worker."""
    backend = {"client-resources": {"num-cpus": os.cpu_count()}, "init-args": {"log-to-driver": False}}
    words = ["--app", ".", "--num-supernodes", "9", "--backend-config", json.dumps(backend)]
    return start("flower-simulation", *words, "--run-config", _patiently(tmp_path, config), **options)


def _patiently(tmp_path, config):
    """Overrides of a run whose workers may start slowly, as those of several Rays do beside each other."""
    return write_overrides(tmp_path, {"guard.start-timeout": 300.0, **config})


def write_overrides(tmp_path, config):
    """Write `config` as a TOML file and return its path."""
    overrides = tmp_path / "overrides.toml"
    lines = [
        f"{'.'.join(json.dumps(p) for p in k.split('.'))} = {json.dumps(v)}\n" for k, v in config.items()
    ]
    overrides.write_text("".join(lines))
    return str(overrides)


def start(program, *words, seed="5", timeout=900, mark=""):
    """Run a program of this environment in the project's folder; `mark` is on all that it starts."""
    bin_folder = str(Path(sys.executable).parent)
    environment = {**os.environ, "SEED": seed, "PATH": bin_folder + os.pathsep + os.environ["PATH"]}
    environment.update(FLWR_TELEMETRY_ENABLED="0", RAY_USAGE_STATS_ENABLED="0", **{MARK: str(mark)})
    command = [str(Path(bin_folder) / program), *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            try:
                out, err = process.communicate(timeout=_SLOW_S)
            except subprocess.TimeoutExpired:
                show_ray_logs(process.pid)
                out, err = process.communicate(timeout=timeout - _SLOW_S)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def show_ray_logs(pid):
    """Print the last lines of logs of Rays below a process: a slow start's reason goes with Ray's folder."""
    for child in psutil.Process(pid).children(recursive=True):
        for log in sorted(Path("/tmp/ray").glob(f"f{child.pid}*/s/session_latest/logs/*")):
            if log.name.startswith(("raylet", "runtime_env", "worker", "gcs")):
                print(log, *log.read_text(errors="replace").splitlines()[-8:], sep="\n")


def without(text, *timed):
    """The rows of a CSV text without its timing columns."""
    return [{k: v for k, v in row.items() if k not in timed} for row in csv.DictReader(text.splitlines())]


def comparable(folder):
    """Results whose bytes must be equal in equal runs, of a run that has ended a round."""
    metrics = folder / "metrics"
    confusion = metrics / "confusion.json"
    assert confusion.is_file(), _why(folder)  # Flower's exit code is 0 for a run that failed, too
    return {
        "global": without((metrics / "global_rounds.csv").read_text(), "seconds"),
        "leaf": (metrics / "leaf_rounds.csv").read_text(),
        "clients": without((metrics / "clients.csv").read_text(), "train_seconds"),
        "confusion": confusion.read_text(),
        "partition": (folder / "partition.csv").read_text(),
        "clusters": (folder / "clusters.jsonl").read_text(),
        "models": (folder / "checkpoints" / "final.safetensors").read_bytes(),
    }


def _why(folder):
    """Reason of a run without a round, and the end of its log."""
    manifest, log = json.loads((folder / "manifest.json").read_text()), folder / "run.log"
    lines = log.read_text().splitlines()[-30:] if log.is_file() else []
    return "\n".join([str(manifest.get("reason")), *lines])
