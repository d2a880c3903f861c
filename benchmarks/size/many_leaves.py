"""64 leaves of two clients on generated windows: bytes sent to a client, the deal test's time, groups found.

    python -m benchmarks.size.many_leaves [--leaves 64] [--clients 128] [--groups 4] [--rounds 6]
            [--seeds 1,2,3]

Four classes as shifts of the mean, differing users, labels renamed group by group, softmax regression: the
model is small, so clustering is measured. A line per seed: the adjusted Rand index of
every round, the number of models clients evaluated for the cloud in each, the bytes of the cloud's questions
and of all other messages to clients, and this process's peak memory.
"""

import argparse
import csv
import io
import json
import resource
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.commands import exit_with
from fedge import simulate
from fedge.clustering.memberships.strangers import MOST_MODELS
from fedge.launch.projects.project import flatten, read_toml
from hhar.windows.window_file import Windows, save_windows

CONFIG = Path(__file__).parents[2] / "configs/fedge.toml"
_MODEL_BYTES = 4 * (2 * 8 * 4 + 4)  # of softmax regression on these windows


def people(users: int, seed: int = 0, per_class: int = 15) -> Windows:
    """Windows of users with separable classes, slightly shifted for each user."""
    rng = np.random.default_rng(seed)
    classes, channels, samples = 4, 2, 8
    centre = rng.normal(size=(classes, channels, samples))
    y = np.tile(np.repeat(np.arange(classes), per_class), users)
    owner = np.repeat(np.arange(users), classes * per_class)
    shifts = rng.normal(0, 0.4, (users, channels, samples))
    x = centre[y] + shifts[owner] + rng.normal(0, 0.7, (len(y), channels, samples))
    names = np.array([f"u{k:04d}" for k in range(users)])
    session = np.array([f"{k % per_class // 3}-{label}" for k, label in enumerate(y)])
    return Windows(
        x.astype(np.float32), y.astype(np.int64), names[owner], None, session, tuple("abcd"), ("u", "v")
    )


def run_once(folder: str, path: Path, seed: int, options: argparse.Namespace) -> str:
    """Carry out one run; returns its line."""
    config = {
        **flatten(read_toml(CONFIG, "config")),
        "hierarchy.num-servers": options.leaves,
        "num-server-rounds": options.rounds,
        "scenario": "label-permutation",
        "scenario-groups": options.groups,
        "data.path": str(path),
        "train.model": "linear",
        "train.local-epochs": 3,
        "scaffold.enabled": False,
        "seed": seed,
        "runs-dir": folder,
        "report": False,
        "checkpoint.every": 0,
    }
    run = simulate(config, num_supernodes=options.clients, terminal=io.StringIO(), workers=1)
    assert run.folder is not None, run.reason
    with (run.folder / "metrics/global_rounds.csv").open(newline="") as table:
        rows = list(csv.DictReader(table))
    steps = [json.loads(line) for line in (run.folder / "clusters.jsonl").read_text().splitlines()]
    cluster_bytes = [step.get("exchange_bytes", 0) for step in steps]
    total_bytes = sum(int(row["downlink_bytes"]) for row in rows)
    aris = " ".join(f"{float(row['ari']):.2f}" for row in rows)
    models = [round(size / _MODEL_BYTES / options.clients, 1) for size in cluster_bytes]
    line = f"seed {seed}: ARI {aris}; models asked about {models}, at most {MOST_MODELS}; "
    line += f"{sum(cluster_bytes) / (total_bytes - sum(cluster_bytes)):.2f} of other downlink; "
    return line + f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"


def main() -> None:
    """Print a line per seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in {"leaves": 64, "clients": 128, "groups": 4, "rounds": 6}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seeds", default="1,2,3")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = save_windows(Path(folder) / "many.npz", people(options.clients))
        for seed in map(int, options.seeds.split(",")):
            print(run_once(folder, path, seed, options), flush=True)


if __name__ == "__main__":
    exit_with(main)
