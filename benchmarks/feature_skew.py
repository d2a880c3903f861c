"""A published table, as far as available: MNIST in four rotations, by CLoVE, IFCA, averaging and Fedge.

    python -m benchmarks.feature_skew FILE.npz [--rounds 100] [--seeds 1,2,3] [--methods clove,ifca,…]
        [--out FILE.jsonl]

The setting is "feature skew" in Bhatia et al. 2025 (CLoVE, arXiv 2506.22427), experiment 1210 in the list of
the authors' code (Nokia-Bell-Labs/Loss-Vector-based-Clustered-Federated-Learning at b602090f): 40 clients
with 500 training images each, drawn without replacement, ten clients for each of the rotations by 0°, 90°,
180° and 270°; two convolutions of 6 and 16 filters and a linear layer, 5,142 parameters; batches of 100, one
local epoch, 100 rounds, full participation; 4 models, random first choice, losses on training images, means
weighted by images. The results, as quoted by a third party (the paper itself was not read): CLoVE 97.7 %,
IFCA 95.9 %.

Adam with a constant step of 0.01, restarted in every round. Differences: 130 test images per client from the
same draw (there: at least 2,000 per group). In CLoVE, IFCA, averaging, *alone* and *oracle*, each client is
at its own leaf. The deal test needs leaves with several clients, so `fedge` has the same clients at eight
leaves of five, each with one rotation: it knows that five clients belong together, the others know of none.

FILE.npz has x (N, 28, 28) or (N, 1, 28, 28), uint8, and y (N,); at least 26,000 images.
"""

import argparse
import csv
import json
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.commands import exit_with
from fedge import simulate
from fedge.data.scenario import Change
from fedge.launch.projects.project import flatten, read_toml
from fedge.seeding import Purpose, numpy_stream
from hhar.windows.window_file import Windows, save_windows

CONFIGS = Path(__file__).parents[1] / "configs"
CLIENTS, TRAIN, VALIDATION, TEST = 40, 500, 20, 130
IMAGES = TRAIN + VALIDATION + TEST  # images of a client
METHODS: Mapping[str, tuple[str, int, Mapping[str, Any]]] = {  # name → configuration, leaves, further options
    "clove": ("baselines/clove.toml", CLIENTS, {"cluster.count": "4"}),
    "clove-unknown": (
        "baselines/clove.toml",
        CLIENTS,
        {"cluster.count": "15", "cluster.method-args": '{"unknown": true}'},
    ),
    "ifca": (
        "baselines/ifca.toml",
        CLIENTS,
        {"cluster.count": "4", "cluster.method-args.losses-on": "train"},
    ),
    "averaging": ("hierfl.toml", CLIENTS, {}),
    "alone": ("baselines/local.toml", CLIENTS, {}),
    "oracle": ("baselines/oracle.toml", CLIENTS, {}),
    "fedge": ("fedge.toml", 8, {}),
}


class SmallCnn(nn.Module):
    """Conv(6, 5×5)–ReLU–MaxPool(2), Conv(16, 5×5)–ReLU–MaxPool(2), linear: 5,142 parameters for MNIST."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.conv1 = nn.Conv2d(channels, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        sides = [((side - 4) // 2 - 4) // 2 for side in (height, width)]
        self.head = nn.Linear(16 * sides[0] * sides[1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, classes)."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        scores: Tensor = self.head(x.flatten(1))
        return scores


@dataclass(frozen=True)
class Turned(Change):
    """Images rotated by multiples of 90°."""

    quarters: int = 0

    def apply(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rotated images (N, C, H, W), and labels (N,) unchanged."""
        return np.ascontiguousarray(np.rot90(x, self.quarters, axes=(2, 3))), y

    def describe(self) -> dict[str, Any]:
        """The angle."""
        return {"degrees": 90 * self.quarters}


def quarters(count: int, channels: Sequence[str], classes: int, rng: np.random.Generator) -> list[Change]:
    """Rotations of group g by g · 90°."""
    return [Turned(quarters=group) for group in range(count)]


def clients_of(path: Path, seed: int) -> Windows:
    """Images dealt to clients, none to two of them."""
    with np.load(path, allow_pickle=False) as file:
        x, y = file["x"], file["y"].astype(np.int64)
    x = x.reshape(len(x), 1, *x.shape[-2:])
    if len(x) < CLIENTS * IMAGES:
        raise SystemExit(f"{path} must have {CLIENTS * IMAGES} images, but has {len(x)}")
    drawn = numpy_stream(seed, Purpose.DEAL, 1210).permutation(len(x))[: CLIENTS * IMAGES]
    users = np.array([f"client-{number:02d}" for number in range(CLIENTS)])
    return Windows(
        x=x[drawn].astype(np.uint8),
        y=y[drawn],
        user=np.repeat(users, IMAGES),
        device=None,
        session=None,
        classes=tuple(str(digit) for digit in range(10)),
        channels=("brightness",),
    )


def run_once(method: str, seed: int, path: Path, rounds: int) -> dict[str, Any]:
    """Carry out one run and return its figures."""
    file, leaves, options = METHODS[method]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as devnull:
        data = save_windows(Path(folder) / "images.npz", clients_of(path, seed))
        config = {
            **flatten(read_toml(CONFIGS / file, "config")),
            "hierarchy.num-servers": leaves,
            "num-server-rounds": rounds,
            "data.path": str(data),
            "data.guard-windows": 0,
            "data.val-fraction": VALIDATION / IMAGES,
            "data.test-fraction": TEST / IMAGES,
            "train.model": "benchmarks.feature_skew:SmallCnn",
            "train.local-epochs": 1,
            "train.batch-size": 100,
            "train.optimizer": "adam",
            "train.lr": 0.01,
            "train.lr-decay": 1.0,
            "scaffold.enabled": False,
            "train.label-smoothing": 0.0,
            "train.weight-decay": 0.0,
            "train.clip-norm": 0.0,
            "scenario": "benchmarks.feature_skew:quarters",
            "scenario-groups": 4,
            "seed": seed,
            "runs-dir": folder,
            "report": False,
            "checkpoint.every": 0,
            **options,
        }
        outcome = simulate(config, num_supernodes=CLIENTS, terminal=devnull, workers=1)
        assert outcome.folder is not None, outcome.reason
        assert outcome.status == "completed", outcome.reason
        with (outcome.folder / "metrics/global_rounds.csv").open(newline="") as table:
            rows = list(csv.DictReader(table))
    return {
        "method": method,
        "seed": seed,
        "rounds": rounds,
        "accuracy": [round(float(row["test_accuracy_mean"]), 4) for row in rows],
        "ari": [round(float(row["ari"]), 3) for row in rows],
        "clusters": int(rows[-1]["num_clusters"]),
        "seconds": round(time.perf_counter() - start, 1),
    }


def main() -> None:
    """Print a line per run, and a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    runs: list[dict[str, Any]] = []
    for seed in map(int, options.seeds.split(",")):
        for method in options.methods.split(","):
            run = run_once(method, seed, options.data, options.rounds)
            runs.append(run)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(run) + "\n")
            result = f"accuracy {100 * run['accuracy'][-1]:.1f} %, ARI {run['ari'][-1]:.2f}"
            print(
                f"{method} seed {seed}: {result}, {run['clusters']} clusters, {run['seconds']} s", flush=True
            )
    print(f"\n| method | accuracy after round {options.rounds}, % | ARI |\n|---|---|---|")
    for method in options.methods.split(","):
        method_runs = [run for run in runs if run["method"] == method]
        accuracies = ", ".join(f"{100 * run['accuracy'][-1]:.1f}" for run in method_runs)
        aris = ", ".join(f"{run['ari'][-1]:.2f}" for run in method_runs)
        print(f"| {method} | {accuracies} | {aris} |")


if __name__ == "__main__":
    exit_with(main)
