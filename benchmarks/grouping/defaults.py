"""The default method compared with its parts: final accuracy, similarities, gate, for several seeds.

    python -m benchmarks.grouping.defaults [--data FILE.npz] [--rounds 20] [--seeds 1,2,3] [--out FILE.json]

One line per method: the mean and the worst client's test accuracy of the served models after the last round,
averaged over seeds (± standard deviation); the range of similarities in cloud steps; offers taken.
"""

import argparse
import csv
import json
import os
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.commands import exit_with
from fedge import simulate
from fedge.launch.projects.project import flatten, read_toml

CONFIGS = Path(__file__).parents[2] / "configs"
METHODS = {
    "fedavg": ("fedavg.toml", {}),
    "scaffold": ("scaffold.toml", {}),
    "hierfl": ("hierfl.toml", {}),
    "published": ("published.toml", {}),
    "published, SCAFFOLD off": ("published.toml", {"scaffold.enabled": False}),
    "published, gate off": ("published.toml", {"gate.enabled": False}),
    "leaves alone (tau above 1)": ("published.toml", {"cluster.tau": 1.01}),
}


def run_once(method: str, data: str, rounds: int, seed: int) -> dict[str, float]:
    """Carry out one run; returns its figures."""
    file, changes = METHODS[method]
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as devnull:
        config = {
            **flatten(read_toml(CONFIGS / file, "config")),
            **changes,
            "num-server-rounds": rounds,
            "seed": seed,
            "runs-dir": folder,
            "report": False,
            "data.path": data,
        }
        outcome = simulate(config, terminal=devnull)
        assert outcome.folder is not None, outcome.reason
        with (outcome.folder / "metrics" / "global_rounds.csv").open(newline="") as table:
            rows = list(csv.DictReader(table))
        clusters = [json.loads(line) for line in (outcome.folder / "clusters.jsonl").read_text().splitlines()]
    similarities = [
        value
        for entry in clusters
        if entry["similarity"]
        for i, row in enumerate(entry["similarity"])
        for value in row[:i]
    ]
    return {
        "mean": float(rows[-1]["test_accuracy_mean"]),
        "worst": float(rows[-1]["test_accuracy_worst"]),
        "lowest_similarity": min(similarities, default=float("nan")),
        "highest_similarity": max(similarities, default=float("nan")),
        "taken": sum(int(row["gate_accepted"]) for row in rows),
        "offers": sum(int(row["gate_accepted"]) + int(row["gate_rejected"]) for row in rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="synthetic")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    results: dict[str, list[dict[str, float]]] = {}
    heading = f"method ({options.rounds} rounds, seeds {options.seeds})"
    print(f"| {heading} | mean | worst client | similarities | offers taken |")
    print("|---|---|---|---|---|")
    for method in METHODS:
        results[method] = [run_once(method, options.data, options.rounds, seed) for seed in seeds]
        print(table_row(method, results[method]), flush=True)
    if options.out:
        options.out.write_text(
            json.dumps({"data": options.data, "rounds": options.rounds, "runs": results}, indent=1)
        )


def table_row(method: str, runs: list[dict[str, float]]) -> str:
    """One line of the table."""
    mean, worst = (np.array([run[name] for run in runs]) for name in ("mean", "worst"))
    low, high = min(r["lowest_similarity"] for r in runs), max(r["highest_similarity"] for r in runs)
    similarities = "-" if np.isnan(low) else f"{low:.3f}-{high:.3f}"
    accepted, offers = sum(run["taken"] for run in runs), sum(run["offers"] for run in runs)
    spread = mean.std(ddof=1) if len(runs) > 1 else 0.0
    share = f"{accepted:.0f} of {offers:.0f}" if offers else "-"
    return f"| {method} | {mean.mean():.3f} ± {spread:.3f} | {worst.mean():.3f} | {similarities} | {share} |"


if __name__ == "__main__":
    exit_with(main)
