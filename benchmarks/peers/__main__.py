"""Fedge beside other simulators: seconds per round of the same work, in one run.

    make bench-peers                       sets up build/peers where it is not there, then
    build/peers/bin/python -m benchmarks.peers [--full]

Nine clients under three leaves, each of which trains on 5,500 / 1,138 / 1,046 windows of 6 × 128 (23,052 in
all), model `cnn-pool`, batch 32 with a short last one, SGD with momentum 0.9, one local epoch and five, two
clients at a time on one thread each:

    loop, pool        PyTorch alone (`benchmarks.plain`); the loop, one client at a time, with one epoch only
    pfl, blazefl      pfl-research and BlazeFL
    flower            Flower's FedAvg on Ray
    fedge …           Fedge in process and on Ray, train.kernel "torch" and "native"

All take turns round by round, each in processes of its own, after a round of warm-up. Fedge's rounds hold all
that its default does: cloud step, gate, evaluation on 12 + 12 windows per client, tables, a checkpoint. pfl,
BlazeFL and Flower know one server: theirs averages nine clients where the others' leaves average three each.
A contestant counts if every round took the steps of the work and its loss went down. One that cannot run is
left out, and said with the reason.
"""

from __future__ import annotations

import csv
import importlib
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    WORKERS,
    Benchmark,
    Contestant,
    Figure,
    figure,
    main,
    ratio,
    take_turns,
)
from benchmarks.contest import draw_ratios, gflop_per_s, seconds_and_ratios, words_of
from benchmarks.engines import makespan, read_tables, write_windows
from benchmarks.plain import NETWORK, contend_loop, contend_pool
from benchmarks.round import HELD_OUT, LEAF_WINDOWS, configuration, contend_in_process
from benchmarks.step import BATCH, CHANNELS, CLASSES, SAMPLES, flop_per_window

SIZES = [windows for windows in LEAF_WINDOWS for _ in range(3)]
PEERS = {"pfl": "pfl_research", "blazefl": "blazefl_pool", "flower": "flower_ray"}  # contestant → module
PACKAGES = {"pool": "torch", "loop": "torch", "pfl": "pfl", "blazefl": "blazefl", "flower": "flwr"}
FEDGE = {
    "fedge in process": ("inprocess", "torch"),
    "fedge on ray": ("ray", "torch"),
    "fedge in process, native": ("inprocess", "native"),
    "fedge on ray, native": ("ray", "native"),
}
AIMS = {  # largest ratio to the pool
    ("fedge in process, native", "1"): 0.30,
    ("fedge on ray, native", "1"): 0.45,
    ("fedge in process, native", "5"): 0.30,
}
NOT_TRAINING_AIMS = {"1": 4.0, "5": 1.5}  # per cent, of the native step in process
WARMUP = 1


# --- the race -------------------------------------------------------------------------------------------


def measure(full: bool) -> dict[str, Any]:
    """One local epoch, then five."""
    usable, missing = importable()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "windows.npz"
        write_windows(data, SIZES, [HELD_OUT] * len(SIZES), CHANNELS, SAMPLES, CLASSES)
        epochs = {
            str(number): race(folder / str(number), data, number, usable, rounds=5 if full else 3)
            for number in (1, 5)
        }
    return {"windows_per_client": SIZES, "workers": WORKERS, "missing": missing, "epochs": epochs}


def importable() -> tuple[list[str], dict[str, str]]:
    """Peers that are there, and why the others are not."""
    usable, missing = [], {}
    for name in PEERS:
        why = why_missing(name)
        if why:
            missing[name] = why
        else:
            usable.append(name)
    return usable, missing


def why_missing(name: str) -> str:
    """Why a peer cannot be imported; empty where it can."""
    try:
        importlib.import_module(f"benchmarks.peers.{PEERS[name]}")
        importlib.import_module(PACKAGES[name])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def race(folder: Path, data: Path, epochs: int, peers: Sequence[str], rounds: int) -> dict[str, Any]:
    """Rounds of all contestants, interleaved; what they took, and whether they did the work."""
    folder.mkdir()
    work = (str(data), SIZES, epochs)
    contestants: dict[str, Contestant] = {"pool": (contend_pool, work)}
    if epochs == 1:
        contestants["loop"] = (contend_loop, work)
    for name in peers:
        module = importlib.import_module(f"benchmarks.peers.{PEERS[name]}")
        contestants[name] = (module.contend, work)
    for name, (engine, kernel) in FEDGE.items():
        config = {
            **configuration(data, folder / name.replace(" ", "-"), epochs, rounds + WARMUP),
            "train.kernel": kernel,
            "train.lr-decay": 1.0,
            "clients": len(SIZES),
        }
        ray = importlib.import_module("benchmarks.peers.fedge_ray")
        contestants[name] = (contend_in_process if engine == "inprocess" else ray.contend, (config,))
    said: dict[str, list[tuple[float, ...]]] = {}
    times = take_turns(contestants, rounds, WARMUP, said=said)
    said |= {name: said_by_fedge(folder / name.replace(" ", "-") / "latest", epochs) for name in FEDGE}
    for name, rounds_said in said.items():
        refuse_other_work(name, rounds_said, epochs)
    return {
        "seconds": {name: seconds.tolist() for name, seconds in times.items()},
        "ratio_to_pool": {name: ratio(times[name], times["pool"]) for name in times if name != "pool"},
        "not_training": {name: not_training(folder, name, times[name]) for name in FEDGE},
        "steps_and_loss": said,
    }


def said_by_fedge(run: Path, epochs: int) -> list[tuple[float, ...]]:
    """Steps and mean loss per round; Fedge counts no reply with other steps than its windows take."""
    rounds: dict[int, list[tuple[int, float]]] = {}
    with (run / "metrics" / "clients.csv").open(newline="") as table:
        for row in csv.DictReader(table):
            if row["train_loss"]:
                steps = epochs * math.ceil(int(row["train_samples"]) / BATCH)
                rounds.setdefault(int(row["global_round"]), []).append((steps, float(row["train_loss"])))
    return [
        (sum(steps for steps, _ in clients), float(np.mean([loss for _, loss in clients])))
        for clients in rounds.values()
    ]


def refuse_other_work(name: str, said: Sequence[tuple[float, ...]], epochs: int) -> None:
    """Raise RuntimeError when a contestant did other work than it was given."""
    wanted = epochs * sum(math.ceil(size / BATCH) for size in SIZES)
    if any(steps != wanted for steps, _ in said):
        raise RuntimeError(f"{name} took {[int(steps) for steps, _ in said]} steps per round, not {wanted}")
    first, last = said[0][1], said[-1][1]
    if not last < first:
        raise RuntimeError(f"{name} does not learn: its loss went from {first:.4f} to {last:.4f}")


def not_training(folder: Path, name: str, seconds: np.ndarray) -> list[float]:
    """Share of each round in which not even the busiest worker trained."""
    _, train_s = read_tables(folder / name.replace(" ", "-") / "latest")
    return [1 - makespan(one) / took for one, took in zip(train_s[WARMUP:], seconds, strict=True)]


# --- tables shown --------------------------------------------------------------------------------------


def figures(results: dict[str, Any]) -> list[Figure]:
    """Seconds, ratios to the pool, and what is not training."""
    entries = []
    for epochs, result in results["epochs"].items():
        words = words_of(epochs)
        aims = {name: aim for (name, at), aim in AIMS.items() if at == epochs}
        entries += seconds_and_ratios(epochs, result, aims)
        for name, shares in result["not_training"].items():
            aim = NOT_TRAINING_AIMS[epochs] if name == "fedge in process, native" else None
            entries.append(figure(f"{words}, {name}, not training", "%", 100 * np.array(shares), aim))
    return entries


def distance(results: dict[str, Any], peak: Mapping[str, float]) -> str:
    """GFLOP/s per worker against one thread's matrix product; who is missing."""
    speeds = gflop_per_s(results, flop_per_window(NETWORK))
    words = [f"{words_of(epochs)}, {name}: {speed:.0f} GFLOP/s per worker" for epochs, name, speed in speeds]
    words += [f"left out: {name} ({why})" for name, why in results["missing"].items()]
    return "<br>".join(words)


def draw(results: dict[str, Any], axes: Any) -> None:
    """Ratios to the pool."""
    draw_ratios(axes, figures(results))


def table(results: dict[str, Any]) -> str:
    """The contestants for docs/benchmarks.md, fastest last."""
    one, five = (results["epochs"][epochs] for epochs in ("1", "5"))
    lines = ["| contestant | 1 local epoch, s per round | / pool | 5 local epochs | / pool |"]
    lines.append("|---|---:|---:|---:|---:|")
    for name in sorted(one["seconds"], key=lambda name: -float(np.median(one["seconds"][name]))):
        cells = [f"{name}{_version(name)}"]
        for result in (one, five):
            cells.append(_spread(result["seconds"].get(name, []), 2))
            cells.append("1" if name == "pool" else _spread(result["ratio_to_pool"].get(name, []), 2))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _version(name: str) -> str:
    try:
        return f" ({PACKAGES[name]} {version(PACKAGES[name])})" if name in PACKAGES else ""
    except PackageNotFoundError:
        return ""


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return ""
    low, median, high = np.percentile(values, [25, 50, 75])
    return f"**{median:.{digits}f}** ({low:.{digits}f} to {high:.{digits}f})"


BENCHMARK = Benchmark(
    "peers",
    "Rounds of Fedge beside those of other simulators.",
    measure,
    figures,
    distance,
    draw,
)

if __name__ == "__main__":
    record = main(BENCHMARK)
    print(f"\n{table(record['results'])}")
    sys.exit(0)
