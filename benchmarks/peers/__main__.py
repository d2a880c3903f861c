"""Fedge and other simulators: seconds per round of the same work, in one run.

    make bench-peers                       sets up build/peers if it is missing, then
    build/peers/bin/python -m benchmarks.peers [--full] [--works home,mnist,gru,resnet]

Nine clients under three leaves, batch 32 with a short last one, SGD with momentum 0.9, two clients at a time
on one thread each. The home work is `cnn-pool` on 23,052 windows of 6 × 128, one local epoch and five; the
others are those of `benchmarks.works`, one epoch, once as below and once with the default split, evaluated in
every round by Fedge alone. Results of a work are kept in build/peers-measured.json until all works of a call
are measured, so an interrupted call can be resumed.

    loop, pool        PyTorch alone (`benchmarks.plain`); the loop, one client at a time, with one epoch only
    pfl, blazefl      pfl-research and BlazeFL
    flower            Flower's FedAvg on Ray
    fedge …           Fedge in process and on Ray, train.kernel "torch" and "native"

All take turns round by round, each in its own processes, after a warm-up round. Fedge's rounds include
everything on by default: cloud step, gate, evaluation on 12 + 12 windows per client, tables, a checkpoint.
pfl, BlazeFL and Flower have one server, which averages nine clients, while the others' leaves average three
each. A contestant counts if every round took the expected steps and its loss decreased. A contestant that
cannot run is left out, with the reason.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    ROOT,
    WORKERS,
    Benchmark,
    Contestant,
    Figure,
    figure,
    main,
    processor,
    ratio,
    take_turns,
    versions,
)
from benchmarks.contest import draw_ratios, gflop_per_s, seconds_and_ratios, words_of
from benchmarks.engines import makespan, read_tables
from benchmarks.plain import NETWORK, contend_loop, contend_pool
from benchmarks.round import LEAF_WINDOWS, configuration, contend_in_process
from benchmarks.step import BATCH, flop_per_window
from benchmarks.works import HOME, WORKS, Work

SIZES = [windows for windows in LEAF_WINDOWS for _ in range(3)]
MEASURED = ROOT / "build" / "peers-measured.json"
PEERS = {"pfl": "pfl_research", "blazefl": "blazefl_pool", "flower": "flower_ray"}  # contestant → module
PACKAGES = {"pool": "torch", "loop": "torch", "pfl": "pfl", "blazefl": "blazefl", "flower": "flwr"}
FEDGE = {
    "fedge in process": ("inprocess", "torch"),
    "fedge on ray": ("ray", "torch"),
    "fedge in process, native": ("inprocess", "native"),
    "fedge on ray, native": ("ray", "native"),
}
AIMS = {  # largest acceptable ratio to the pool
    ("fedge in process, native", "1"): 0.30,
    ("fedge on ray, native", "1"): 0.45,
    ("fedge in process, native", "5"): 0.30,
}
NOT_TRAINING_AIMS = {"1": 4.0, "5": 1.5}  # percent, of the native step in process
WARMUP = 1
works = list(WORKS)  # works to measure


# --- the race -------------------------------------------------------------------------------------------


def measure(full: bool) -> dict[str, Any]:
    """All requested works, each resumed where an earlier call was interrupted."""
    usable, missing = importable()
    names = works
    stamp = {"full": full, "processor": processor(), "versions": versions()}
    measured = read_measured(MEASURED, stamp)
    with tempfile.TemporaryDirectory() as name:
        for work in names:
            if work not in measured:
                measured[work] = measure_work(WORKS[work], Path(name), usable, rounds=5 if full else 3)
                MEASURED.parent.mkdir(exist_ok=True)
                MEASURED.write_text(json.dumps({"stamp": stamp, "works": measured}), encoding="utf-8")
    results = {"windows_per_client": SIZES, "workers": WORKERS, "missing": missing}
    results |= {"epochs": measured.get("home", {}), "works": {n: measured[n] for n in names if n != "home"}}
    return results


def chosen_works(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Works given by `--works`, all by default, and the other words of the command line."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--works", default=",".join(WORKS))
    options, remaining = parser.parse_known_args(words)
    names = options.works.split(",")
    unknown = sorted(set(names) - set(WORKS))
    if unknown:
        raise SystemExit(f"--works must name some of {', '.join(WORKS)}, but has {unknown[0]!r}")
    return names, remaining


def read_measured(path: Path, stamp: Mapping[str, Any]) -> dict[str, Any]:
    """Works measured by an earlier call with the same code on the same processor."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return dict(content["works"]) if content.get("stamp") == stamp else {}


def measure_work(work: Work, folder: Path, peers: Sequence[str], rounds: int) -> dict[str, Any]:
    """A work: the home network with one local epoch and with five, others with and without evaluation."""
    folder = folder / work.name
    folder.mkdir()
    data = folder / "windows.npz"
    work.write(data)
    if work is HOME:
        return {
            str(number): race(folder / str(number), data, work, number, peers, rounds) for number in (1, 5)
        }
    alone = race(folder / "alone", data, work, 1, peers, rounds)
    data = folder / "evaluated.npz"
    work.write(data, evaluated=True)
    return {"alone": alone, "evaluated": race(folder / "evaluated", data, work, 1, (), rounds)}


def importable() -> tuple[list[str], dict[str, str]]:
    """Installed peers, and reasons for the others' absence."""
    usable, missing = [], {}
    for name in PEERS:
        reason = why_missing(name)
        if reason:
            missing[name] = reason
        else:
            usable.append(name)
    return usable, missing


def why_missing(name: str) -> str:
    """Reason why a peer cannot be imported; empty if it can."""
    try:
        importlib.import_module(f"benchmarks.peers.{PEERS[name]}")
        importlib.import_module(PACKAGES[name])
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def race(
    folder: Path, data: Path, work: Work, epochs: int, peers: Sequence[str], rounds: int
) -> dict[str, Any]:
    """Rounds of all contestants, interleaved: their times, and whether they did the work."""
    folder.mkdir()
    sizes = list(work.sizes)
    arguments = (str(data), sizes, epochs, work.name)
    contestants: dict[str, Contestant] = {"pool": (contend_pool, arguments)}
    if epochs == 1 and work is HOME:
        contestants["loop"] = (contend_loop, arguments)
    for name in peers:
        module = importlib.import_module(f"benchmarks.peers.{PEERS[name]}")
        contestants[name] = (module.contend, arguments)
    for name, (engine, kernel) in FEDGE.items():
        config = {
            **configuration(data, folder / name.replace(" ", "-"), epochs, rounds + WARMUP),
            "train.model": work.model,
            "train.kernel": kernel,
            "train.lr-decay": 1.0,
            "clients": len(sizes),
        }
        ray = importlib.import_module("benchmarks.peers.fedge_ray")
        contestants[name] = (contend_in_process if engine == "inprocess" else ray.contend, (config,))
    reports: dict[str, list[tuple[float, ...]]] = {}
    times = take_turns(contestants, rounds, WARMUP, reports=reports)
    reports |= {
        name: read_fedge_reports(folder / name.replace(" ", "-") / "latest", epochs) for name in FEDGE
    }
    for name, round_reports in reports.items():
        refuse_other_work(name, round_reports, epochs, sizes)
    return {
        "seconds": {name: seconds.tolist() for name, seconds in times.items()},
        "ratio_to_pool": {name: ratio(times[name], times["pool"]) for name in times if name != "pool"},
        "not_training": {name: not_training(folder, name, times[name]) for name in FEDGE},
        "steps_and_loss": reports,
    }


def read_fedge_reports(run: Path, epochs: int) -> list[tuple[float, ...]]:
    """Steps and mean loss per round; Fedge accepts no reply with other steps than its windows need."""
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


def refuse_other_work(
    name: str, reports: Sequence[tuple[float, ...]], epochs: int, sizes: Sequence[int]
) -> None:
    """Raise RuntimeError if a contestant did other work than requested."""
    expected = epochs * sum(math.ceil(size / BATCH) for size in sizes)
    if any(steps != expected for steps, _ in reports):
        raise RuntimeError(
            f"{name} took {[int(steps) for steps, _ in reports]} steps per round, not {expected}"
        )
    first, last = reports[0][1], reports[-1][1]
    if not last < first:
        raise RuntimeError(f"{name} does not learn: its loss went from {first:.4f} to {last:.4f}")


def not_training(folder: Path, name: str, seconds: np.ndarray) -> list[float]:
    """Share of each round in which not even the busiest worker trained."""
    _, train_s = read_tables(folder / name.replace(" ", "-") / "latest")
    return [
        1 - makespan(train_seconds) / round_seconds
        for train_seconds, round_seconds in zip(train_s[WARMUP:], seconds, strict=True)
    ]


# --- tables shown --------------------------------------------------------------------------------------


def figures(results: dict[str, Any]) -> list[Figure]:
    """Seconds, ratios to the pool, and the share of time without training."""
    entries = []
    for epochs, result in results["epochs"].items():
        words = words_of(epochs)
        aims = {name: aim for (name, aim_epochs), aim in AIMS.items() if aim_epochs == epochs}
        entries += seconds_and_ratios(epochs, result, aims)
        for name, shares in result["not_training"].items():
            aim = NOT_TRAINING_AIMS[epochs] if name == "fedge in process, native" else None
            entries.append(figure(f"{words}, {name}, not training", "%", 100 * np.array(shares), aim))
    for work, results_by_variant in results.get("works", {}).items():
        for variant, result in results_by_variant.items():
            entries += figures_of_work(WORKS[work], variant, result)
    return entries


def figures_of_work(work: Work, variant: str, result: Mapping[str, Any]) -> list[Figure]:
    """Seconds per round and ratios to the pool of one work; aims are of rounds without evaluation."""
    words = f"{work.name}{', evaluated' if variant == 'evaluated' else ''}"
    entries = [
        figure(f"{words}, {name}", "s per round", seconds) for name, seconds in result["seconds"].items()
    ]
    aims = work.aims if variant == "alone" else {}
    for name, ratios in result["ratio_to_pool"].items():
        entries.append(figure(f"{words}, {name} / pool", "x", ratios, aims.get(name)))
    return entries


def distance(results: dict[str, Any], peak: Mapping[str, float]) -> str:
    """GFLOP/s per worker against one thread's matrix product; missing peers."""
    speeds = gflop_per_s(results, flop_per_window(NETWORK))
    lines = [f"{words_of(epochs)}, {name}: {speed:.0f} GFLOP/s per worker" for epochs, name, speed in speeds]
    for work, result in results.get("works", {}).items():
        flop = sum(WORKS[work].sizes) * WORKS[work].flop_per_window() / WORKERS / 1e9
        for name, seconds in result["alone"]["seconds"].items():
            lines.append(f"{work}, {name}: {flop / float(np.median(seconds)):.0f} GFLOP/s per worker")
    lines += [f"left out: {name} ({reason})" for name, reason in results["missing"].items()]
    return "<br>".join(lines)


def draw(results: dict[str, Any], axes: Any) -> None:
    """Ratios to the pool."""
    draw_ratios(axes, figures(results))


def table(results: dict[str, Any]) -> str:
    """Table of contestants for docs/benchmarks.md, fastest last."""
    if not results["epochs"]:
        return ""
    one_epoch, five_epochs = (results["epochs"][epochs] for epochs in ("1", "5"))
    lines = ["| contestant | 1 local epoch, s per round | / pool | 5 local epochs | / pool |"]
    lines.append("|---|---:|---:|---:|---:|")
    for name in sorted(one_epoch["seconds"], key=lambda name: -float(np.median(one_epoch["seconds"][name]))):
        cells = [f"{name}{_version(name)}"]
        for result in (one_epoch, five_epochs):
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


def table_of_works(results: dict[str, Any]) -> str:
    """Table of works but the home network for docs/benchmarks.md: seconds per round, ratio to the pool."""
    lines = ["| work | contestant | s per round | / pool | evaluated, s per round | / pool |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    for work, result in results.get("works", {}).items():
        for name in result["alone"]["seconds"]:
            cells = [WORKS[work].about, f"{name}{_version(name)}"]
            for variant in ("alone", "evaluated"):
                seconds, ratios = (result[variant][key].get(name, []) for key in ("seconds", "ratio_to_pool"))
                cells += [_spread(seconds, 2), "1" if name == "pool" else _spread(ratios, 2)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    works, sys.argv[1:] = chosen_works(sys.argv[1:])
    record = main(BENCHMARK)
    MEASURED.unlink(missing_ok=True)
    print(f"\n{table(record['results'])}\n\n{table_of_works(record['results'])}")
    sys.exit(0)
