"""Cost of a round whose clients have almost nothing to do: 9, 100, 1,000 and 10,000 clients.

    python -m benchmarks.exchange [--full]      10,000 clients, and 100 on Ray, only with --full

    empty   clients return the received model (`benchmarks.echo`): the cost of the engine and the server
    tiny    each client has two windows of 1 × 4 per split, takes one step with `linear` and evaluates two
            models: some forty calls of PyTorch per client and round, nearly all of the cost at this size

The strategy, the messages and the client app are the real ones; no SCAFFOLD. A global round is two exchanges:
train and evaluate. Seconds per round are from timing.csv and include everything, also the server's writing of
records; seconds per exchange are half of a round's `configure`, `push`, `wait` and `check`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Benchmark, Figure, figure, main
from benchmarks.engines import carry_out, write_windows

CLIENTS_PER_LEAF = 20  # gives at least three leaves
WARMUP = 2
ROUNDS = {9: 40, 100: 20, 1000: 8, 10_000: 4}  # rounds measured in process, by number of clients
RAY_ROUNDS = 10
EXCHANGE_PHASES = ("configure", "push", "wait", "check")
EXCHANGE_AIM_S = {("inprocess", 9): 0.002, ("ray", 9): 0.25}
ROUND_AIM_S = {("inprocess", 1000): 0.5, ("inprocess", 10_000): 3.0}
MARKS = {"inprocess": "o-", "ray": "s-"}


def measure(full: bool) -> dict[str, Any]:
    """Rounds of each engine at each size."""
    cases = [("empty", "inprocess", clients) for clients in ROUNDS if full or clients <= 1000]
    cases += [("empty", "ray", clients) for clients in (9, 100) if full or clients == 9]
    cases += [("tiny", "inprocess", clients) for clients in (9, 1000) if full or clients == 9]
    with tempfile.TemporaryDirectory() as folder:
        return {"cases": [one_case(Path(folder), *case) for case in cases]}


def one_case(folder: Path, kind: str, engine: str, clients: int) -> dict[str, Any]:
    """One run."""
    data = folder / f"{clients}.npz"
    write_windows(data, [2] * clients, [2] * clients, channels=1, samples=4, classes=2)
    rounds = ROUNDS[clients] if engine == "inprocess" else RAY_ROUNDS
    config = {
        "num-server-rounds": rounds + WARMUP,
        "data.path": str(data),
        "hierarchy.num-servers": max(3, clients // CLIENTS_PER_LEAF),
        "train.model": "linear",
        "train.local-epochs": 1,
        "scaffold.enabled": False,
    }
    echo = [sys.executable, "-c", "from benchmarks.echo import main; main()", engine, "echo", "0"]
    command = echo if kind == "empty" else None
    run = carry_out(engine, config, folder / f"{kind}-{engine}-{clients}", clients, command=command)
    phases = run.phases[WARMUP:]
    return {
        "kind": kind,
        "engine": engine,
        "clients": clients,
        "round_s": run.round_s(WARMUP),
        "exchange_s": [sum(row[name] for name in EXCHANGE_PHASES) / 2 for row in phases],
        "phases_s": {name: float(np.median([row[name] for row in phases])) for name in phases[0]},
        "around_rounds_s": run.wall_s - sum(run.round_s(0)),
    }


def figures(results: dict[str, Any]) -> list[Figure]:
    """Rounds and exchanges of every case, and the growth of rounds."""
    entries = []
    for case in results["cases"]:
        key = case["engine"], case["clients"]
        empty = case["kind"] == "empty"
        round_aim, exchange_aim = (ROUND_AIM_S.get(key), EXCHANGE_AIM_S.get(key)) if empty else (None, None)
        words = f"{case['kind']}, {case['engine']}, {case['clients']:,} clients"
        entries.append(figure(f"{words}: round", "s", case["round_s"], round_aim))
        entries.append(figure(f"{words}: exchange", "s", case["exchange_s"], exchange_aim))
    sizes, seconds = medians(results, "inprocess")
    for i in range(1, len(sizes)):
        growth = float(np.log(seconds[i] / seconds[i - 1]) / np.log(sizes[i] / sizes[i - 1]))
        words = f"empty, in process, growth from {sizes[i - 1]:,} to {sizes[i]:,} clients (1 = linear)"
        entries.append(figure(words, "exponent", growth))
    return entries


def medians(results: dict[str, Any], engine: str, kind: str = "empty") -> tuple[list[int], list[float]]:
    """Numbers of clients and median seconds per round of one engine."""
    cases = [case for case in results["cases"] if (case["engine"], case["kind"]) == (engine, kind)]
    return [case["clients"] for case in cases], [float(np.median(case["round_s"])) for case in cases]


def distance(results: dict[str, Any], _: Mapping[str, float]) -> str:
    """Time per client, because there is hardly any arithmetic."""
    words = ["no arithmetic to speak of; microseconds per client and round:"]
    for case in results["cases"]:
        each_us = float(np.median(case["round_s"])) / case["clients"] * 1e6
        words.append(f"{case['kind']}, {case['engine']}, {case['clients']:,} clients: {each_us:,.0f}")
    return "<br>".join(words)


def draw(results: dict[str, Any], axes: Any) -> None:
    """Seconds per round over clients."""
    for engine, mark in MARKS.items():
        axes.loglog(*medians(results, engine), mark, label=f"empty, {engine}")
    axes.loglog(*medians(results, "inprocess", "tiny"), "^:", label="tiny, inprocess")
    for (_, clients), aim in ROUND_AIM_S.items():
        axes.plot(clients, aim, "v", color="C3")
    axes.plot([], [], "v", color="C3", label="aim (at most), in process")
    axes.set_xlabel("clients")
    axes.set_ylabel("seconds per global round")
    axes.legend(frameon=False)


BENCHMARK = Benchmark(
    "exchange",
    "Global rounds in which clients have next to nothing to do, by number of clients.",
    measure,
    figures,
    distance,
    draw,
)

if __name__ == "__main__":
    main(BENCHMARK)
