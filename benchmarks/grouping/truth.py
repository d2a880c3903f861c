"""Does `configs/fedge.toml` find the existing groups, and no others? Cases by name, seeds are draws of users.

    python -m benchmarks.grouping.truth CASE … --data motionsense=FILE.npz hhar=FILE.npz synthetic=FILE.npz
        [--seeds 1,2,3] [--out FILE.jsonl] [--look] [--set 'train.local-epochs=2 …']
    python -m benchmarks.grouping.truth --list

A line per run: the adjusted Rand index of every round against the groups of that round, the p of each look,
the changes adopted, the bytes sent to a client. A run already in FILE.jsonl is not repeated; at the end there
is a line per case: the number of runs with exact groups from the fifth round on and within five rounds of
every change (four sources: in the last round). With --look, a case without groups (none, none-home) is first
run for one round, and to its end only if the first test rejects: later looks at unchanged data repeat the
first bit by bit, so a run whose first test does not reject never splits.

With skewed labels (skew-tenth, skew-half), leaves differ but groups need not help: compare a run's `unseen`
with that of one model (`--set 'cluster.enabled=false'`) for the same seed.

Thin the data first (`hhar thin`): cases are meant for windows of 32 samples. A name stands for any file given
by `--data`, so `motionsense=synthetic.npz` carries out a case on other people.
"""

import argparse
import csv
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.commands import exit_with
from fedge import simulate
from fedge.launch.projects.project import flatten, parse_override, read_toml

CONFIG = Path(__file__).parents[2] / "configs/fedge.toml"
_MAX_ROUNDS = 5  # rounds within which groups must be right


@dataclass(frozen=True)
class Case:
    """A setting.

    Attributes:
        clients, leaves: numbers in the federation.
        data: names of the files, in order.
        rounds: number of global rounds.
        options: options of the run.
        within: rounds within which groups must be exact, after the start and after every change.
    """

    clients: int
    leaves: int
    data: tuple[str, ...] = ("motionsense",)
    rounds: int = 6
    options: Mapping[str, Any] = field(default_factory=dict)
    within: int = _MAX_ROUNDS


LABELS, ROTATE = {"scenario": "label-permutation"}, {"scenario": "rotate"}
LONE = {"scenario-sizes": "5,1"}
SOURCES = {"scenario": "datasets"}
SKEW = {"partition.kind": "dirichlet", "partition.unseen-clients": 1}
THREE = ("motionsense", "hhar", "synthetic")
CASES = {
    "lone-labels": Case(24, 6, options=LABELS | LONE),
    "lone-rotate": Case(24, 6, options=ROTATE | LONE),
    "three-labels": Case(12, 3, options=LABELS | {"scenario-sizes": "2,1"}),
    "three-rotate": Case(12, 3, options=ROTATE | {"scenario-sizes": "2,1"}),
    "half-labels": Case(24, 6, options=LABELS),
    "half-rotate": Case(24, 6, options=ROTATE),
    "home-labels": Case(9, 3, ("hhar",), options=LABELS),
    "home-rotate": Case(9, 3, ("hhar",), options=ROTATE),
    "pairs-labels": Case(20, 10, options=LABELS),
    "pairs-rotate": Case(20, 10, options=ROTATE),
    "drift-begins": Case(24, 6, rounds=10, options={**LABELS, "scenario-from": 4}),
    "drift-moves": Case(24, 6, rounds=12, options={**LABELS, "scenario-moves": "7:1"}),
    "drift-ends": Case(24, 6, rounds=12, options={**LABELS, "scenario-until": 6}),
    "two-sources": Case(24, 6, ("motionsense", "hhar"), options={**SOURCES, "scenario-sizes": "4,2"}),
    "four-sources": Case(36, 12, ("motionsense", "hhar", "synthetic", "watches"), 15, SOURCES, within=15),
    "four-sensors": Case(
        36, 12, ("accelerometers", "gyroscopes", "hhar", "synthetic"), 15, SOURCES, within=15
    ),
    "apart-three-labels": Case(12, 3, options=LABELS | {"scenario-sizes": "1,1,1"}, rounds=8, within=8),
    "apart-three-rotate": Case(12, 3, options=ROTATE | {"scenario-sizes": "1,1,1"}, rounds=8, within=8),
    "apart-four-labels": Case(16, 4, options=LABELS | {"scenario-sizes": "1,1,1,1"}, rounds=8, within=8),
    "apart-four-rotate": Case(16, 4, options=ROTATE | {"scenario-sizes": "1,1,1,1"}, rounds=8, within=8),
    "two-one-one-labels": Case(16, 4, options=LABELS | {"scenario-sizes": "2,1,1"}, rounds=8, within=8),
    "two-one-one-rotate": Case(16, 4, options=ROTATE | {"scenario-sizes": "2,1,1"}, rounds=8, within=8),
    "four-one-one-labels": Case(24, 6, options=LABELS | {"scenario-sizes": "4,1,1"}, rounds=8, within=8),
    "four-one-one-rotate": Case(24, 6, options=ROTATE | {"scenario-sizes": "4,1,1"}, rounds=8, within=8),
    "sources-three": Case(12, 3, THREE, 8, SOURCES | {"scenario-sizes": "1,1,1"}, within=8),
    "sources-six": Case(24, 6, THREE, 8, SOURCES | {"scenario-sizes": "2,2,2"}, within=8),
    "lone-unseen-labels": Case(24, 6, options={**LABELS, **LONE, "partition.unseen-clients": 1}),
    "lone-unseen-rotate": Case(24, 6, options={**ROTATE, **LONE, "partition.unseen-clients": 1}),
    "none": Case(24, 6, rounds=15, within=0),
    "none-surplus": Case(24, 6, ("surplus",), rounds=15, within=0),
    "none-some": Case(24, 6, rounds=15, options={"hierarchy.fraction-train": 0.5}, within=0),
    "lone-some-labels": Case(
        24, 6, options={**LABELS, **LONE, "hierarchy.fraction-train": 0.5}, rounds=10, within=8
    ),
    "none-home": Case(9, 3, ("hhar",), rounds=15, within=0),
    "skew-tenth": Case(24, 6, rounds=10, options={**SKEW, "partition.kind-args.alpha-leaves": 0.1}, within=0),
    "skew-half": Case(24, 6, rounds=10, options={**SKEW, "partition.kind-args.alpha-leaves": 0.5}, within=0),
}


def run_or_look(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Carry out a run; with `--look` and a case without groups, only its first round if that is decisive."""
    if options.look and not CASES[name].within:
        run = run_once(name, seed, options, rounds=1)
        if all(p > run["level"] for p in run["p"]):
            return run
    return run_once(name, seed, options)


def run_once(name: str, seed: int, options: argparse.Namespace, rounds: int | None = None) -> dict[str, Any]:
    """Carry out one run; returns its figures.

    Args:
        name: name of the case.
        seed: seed of the run.
        options: options of the command line.
        rounds: global rounds; None for the case's own number.
    """
    case = CASES[name]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as devnull:
        config = {
            **flatten(read_toml(CONFIG, "config")),
            "hierarchy.num-servers": case.leaves,
            "num-server-rounds": rounds or case.rounds,
            "train.local-epochs": 2,
            "seed": seed,
            "runs-dir": folder,
            "report": False,
            "checkpoint.every": 0,
            "data.path": ", ".join(options.data[source] for source in case.data),
            **case.options,
            **options.set,
        }
        outcome = simulate(config, num_supernodes=case.clients, terminal=devnull, workers=1)
        assert outcome.folder is not None, outcome.reason
        assert outcome.status == "completed", outcome.reason
        manifest = json.loads((outcome.folder / "manifest.json").read_text())
        with (outcome.folder / "metrics/global_rounds.csv").open(newline="") as table:
            rows = list(csv.DictReader(table))
        steps = [json.loads(line) for line in (outcome.folder / "clusters.jsonl").read_text().splitlines()]
    planted = manifest["scenario"] or {}
    results = [step["tests"] for step in steps if step.get("tests")]
    tests, first = [result[0] for result in results], results[0] if results else []
    return {
        "case": name,
        "seed": seed,
        "changes": [1, *(first for first, _ in planted.get("later", []))] if planted else [],
        "ari": [float(row["ari"]) if row["ari"] else None for row in rows],
        "clusters": [int(row["num_clusters"]) for row in rows],
        "p": [test["p"] for test in tests],
        "level": tests[0]["level"] if tests else None,
        "cuts": [[test["parts"], test["p"], test["level"]] for test in first],
        "groups": planted.get("groups"),
        "misplaced": [
            [round_, step["misplaced"]] for round_, step in enumerate(steps, 1) if "misplaced" in step
        ],
        "events": [
            [round_, event["kind"]]
            for round_, step in enumerate(steps, 1)
            for event in step.get("events", [])
        ],
        "trials": [
            [
                round_,
                trial["after"],
                trial["gain"],
                trial["parts"],
                trial["useful"],
                trial.get("standardised"),
            ]
            for round_, step in enumerate(steps, 1)
            for trial in step.get("trials", [])
        ],
        "probes": sum(bool(step.get("probe")) for step in steps),
        "asked_mb": sum(step.get("exchange_bytes", 0) for step in steps) / 1e6 / case.clients,
        "accuracy": float(rows[-1]["test_accuracy_mean"]),
        "unseen": float(rows[-1].get("unseen_accuracy_mean") or "nan"),
        "seconds": round(time.perf_counter() - start, 1),
    }


def is_right(run: Mapping[str, Any]) -> bool:
    """Whether a run was right: exact `within` rounds after every change, or never split.

    Args:
        run: result of `run_once`.
    """
    case = CASES[run["case"]]
    if not case.within:
        return max(run["clusters"]) == 1
    rounds = len(run["ari"])
    ends = [*(first - 1 for first in run["changes"][1:]), rounds]
    return all(
        all(ari == 1 for ari in run["ari"][min(first - 1 + case.within, end) - 1 : end])
        for first, end in zip(run["changes"], ends, strict=True)
    )


def main() -> None:
    """Carry out cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--list", action="store_true", help="show the cases")
    parser.add_argument("--data", nargs="+", default=["motionsense=synthetic"], metavar="NAME=FILE")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--set", default="", type=parse_override)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--look", action="store_true")
    options = parser.parse_args()
    options.data = dict(pair.split("=", 1) for pair in options.data)
    if options.list or not options.cases:
        for name, case in CASES.items():
            shape = f"{case.clients} clients, {case.leaves} leaves, {case.rounds} rounds"
            print(f"{name:14} {shape}, {case.data}: {dict(case.options)}")
        return
    finished: dict[tuple[str, int], dict[str, Any]] = {}
    if options.out and options.out.exists():
        recorded = [json.loads(line) for line in options.out.read_text().splitlines()]
        finished = {(run["case"], run["seed"]): run for run in recorded}
    for seed in map(int, options.seeds.split(",")):
        for name in options.cases:
            if (name, seed) in finished:
                continue
            run = finished[name, seed] = run_or_look(name, seed, options)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(run) + "\n")
            aris = " ".join("-" if ari is None else f"{ari:.2g}" for ari in run["ari"])
            result = "right" if is_right(run) else "WRONG"
            details = f"p {run['p']}; unseen {run['unseen']:.3f}; {run['seconds']} s"
            print(f"{name} seed {seed}: {result}; ARI {aris}; {details}", flush=True)
    print("\n| case | right | p of the first test |\n|---|---|---|")
    for name in options.cases:
        runs = [run for (case, _), run in finished.items() if case == name]
        p = [run["p"][0] for run in runs if run["p"]]
        spread = f"{min(p):.4f} to {max(p):.4f}" if p else "-"
        print(f"| {name} | {sum(map(is_right, runs))} of {len(runs)} | {spread} |")


if __name__ == "__main__":
    exit_with(main)
