"""Does `configs/fedge.toml` find planted groups, and none if there are none? For several seeds.

    python -m benchmarks.grouping.clustering --data FILE.npz [--clients 24] [--leaves 6] [--groups 2]
            [--rounds 5]
        [--seeds 1,2,3,4,5] [--scenarios rotate,flip,label-permutation,none,iid] [--config FILE.toml]
        [--set 'train.local-epochs=2 …'] [--thin 1] [--out FILE.json]

One line per scenario: the number of seeds in which the clusters are the planted groups after the last round
(with `none` and `iid`: one cluster after every round), the round from which on they are, the lowest p-value
of a test for groups, the gain of the last trial, and the cost of a cloud step: its share of the wall time,
and its bytes relative to those of all other exchanges with clients. `--thin n` keeps every n-th window of
each user, because windows overlap.
"""

import argparse
import csv
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.commands import exit_with
from fedge import simulate
from fedge.launch.projects.project import flatten, parse_override, read_toml
from fedge.metrics.agreement import agreement
from hhar.windows.thin import thin
from hhar.windows.window_file import load_windows, save_windows

CONFIGS = Path(__file__).parents[2] / "configs"


def run_once(scenario: str, seed: int, options: argparse.Namespace, data: str) -> dict[str, Any]:
    """Carry out one run; returns its figures."""
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as devnull:
        config = {
            **flatten(read_toml(options.config, "config")),
            "hierarchy.num-servers": options.leaves,
            "num-server-rounds": options.rounds,
            "seed": seed,
            "runs-dir": folder,
            "report": False,
            "checkpoint.every": 0,
            "data.path": data,
            "partition.kind": "iid" if scenario == "iid" else "user",
            "scenario": "none" if scenario == "iid" else scenario,
            "scenario-groups": options.groups,
            **options.set,
        }
        outcome = simulate(config, num_supernodes=options.clients, terminal=devnull, workers=options.workers)
        assert outcome.folder is not None, outcome.reason
        rounds, timing = (
            _read_rows(outcome.folder / name) for name in ("metrics/global_rounds.csv", "timing.csv")
        )
        steps = [json.loads(line) for line in (outcome.folder / "clusters.jsonl").read_text().splitlines()]
    single_group = [0] * options.leaves  # without a scenario
    aris = [
        float(row["ari"] or agreement(single_group, list(map(int, row["cluster_labels"].split()))).ari)
        for row in rounds
    ]
    p_values = [test["p"] for step in steps for test in step.get("tests", [])[:1]]
    downlink = sum(int(row["downlink_bytes"]) for row in rounds)
    cluster_bytes = sum(step.get("exchange_bytes", 0) for step in steps)
    return {
        "aris": aris,
        "clusters": [int(row["num_clusters"]) for row in rounds],
        "accuracy": float(rounds[-1]["test_accuracy_mean"]),
        "p": p_values,
        "gains": [step["trial"]["gain"] for step in steps if "trial" in step],
        "cluster_share": sum(float(row["cluster"]) for row in timing)
        / sum(float(r["total"]) for r in timing),
        "bytes_ratio": cluster_bytes / (downlink - cluster_bytes),
    }


def _read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as table:
        return list(csv.DictReader(table))


def table_row(scenario: str, runs: list[dict[str, Any]]) -> str:
    """One line of the table."""
    if scenario in ("none", "iid"):
        right = [max(run["clusters"]) == 1 for run in runs]
        since = "-"
    else:
        right = [run["aris"][-1] == 1 for run in runs]
        first_rounds = [
            _first_right_round(run["aris"]) for run, is_right in zip(runs, right, strict=True) if is_right
        ]
        since = _range_text(first_rounds)
    p = [value for run in runs for value in run["p"]]
    p_range = f"{min(p):.3f}-{max(p):.3f}" if p else "-"
    gains = [run["gains"][-1] for run in runs if run["gains"]]
    share = np.mean([run["cluster_share"] for run in runs])
    ratio = np.mean([run["bytes_ratio"] for run in runs])
    return (
        f"| {scenario} | {sum(right)} of {len(runs)} | {since} | {p_range} | "
        f"{_range_text([round(g, 2) for g in gains])} | {share:.1%} | {ratio:.2f} |"
    )


def _first_right_round(aris: list[float]) -> int:
    """The round from which on all values are 1."""
    wrong = [round_ for round_, ari in enumerate(aris, start=1) if ari < 1]
    return max(wrong, default=0) + 1


def _range_text(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{min(values):g}" if min(values) == max(values) else f"{min(values):g} to {max(values):g}"


def thinned(path: str, every: int, folder: str) -> str:
    """Write every n-th window of each user to a file; returns its path."""
    if every == 1:
        return path
    target = Path(folder) / "thin.npz"
    save_windows(target, thin(load_windows(path), keep_every=every))
    return str(target)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="synthetic")
    parser.add_argument("--config", type=Path, default=CONFIGS / "fedge.toml")
    numbers = {"clients": 24, "leaves": 6, "groups": 2, "rounds": 5, "thin": 1, "workers": 1}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--scenarios", default="rotate,flip,label-permutation,none,iid")
    parser.add_argument("--set", default="", type=parse_override)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    results: dict[str, list[dict[str, Any]]] = {}
    heading = f"scenario ({options.rounds} rounds, seeds {options.seeds})"
    print(f"| {heading} | right | from round | p | gain | time | bytes |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        data = thinned(options.data, options.thin, folder)
        for scenario in options.scenarios.split(","):
            results[scenario] = [run_once(scenario, seed, options, data) for seed in seeds]
            print(table_row(scenario, results[scenario]), flush=True)
            if options.out:
                options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    exit_with(main)
