"""Exchanges of large models between 9 clients on 2 workers, without training: 0.1, 10, 100 and 582 MB.

    python -m benchmarks.large_model [--full]       100 and 582 MB with --full only

Clients send back what they got (`benchmarks.echo`); all else is Fedge's own. A global round is two exchanges:
every client gets its leaf's model and sends one back, the leaves average, and every client gets the average
to evaluate. Seconds per exchange are half of a round's, aggregation and records included; the checkpoint,
which writes every leaf's model to the disk, is a figure of its own. The cloud makes no offers, and SCAFFOLD
is off: each would send a second set of arrays. With one leaf, the server has to hold one model; with three,
three.
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

CLIENTS = 9
QUICK_MB, FULL_MB = (0.1, 10.0), (0.1, 10.0, 100.0, 582.0)
MODES = (("inprocess", "echo"), ("inprocess", "fresh"), ("ray", "echo"))
EXCHANGE_AIM_S = {("inprocess", "echo"): 2.0, ("ray", "echo"): 6.0}  # at 582 MB
RSS_AIM = 4.0  # peak of the server in models, at 582 MB with one leaf
MODELS_PER_ROUND = 3 * CLIENTS  # down, up, down
NO_CLOUD_STEP = 10**6


def measure(full: bool) -> dict[str, Any]:
    """All sizes under one leaf, the largest also under three."""
    sizes = FULL_MB if full else QUICK_MB
    plan = [(size, 1) for size in sizes] + [(sizes[-1], 3)]
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "windows.npz"
        write_windows(data, [2] * CLIENTS, [2] * CLIENTS, channels=1, samples=4, classes=2)
        for size, leaves in plan:
            for engine, mode in MODES:
                with (
                    tempfile.TemporaryDirectory() as place
                ):  # final models are large: keep one run's at a time
                    cases.append(one_case(Path(place), data, size, leaves, engine, mode))
    return {"cases": cases}


def one_case(
    folder: Path, data: Path, megabytes: float, leaves: int, engine: str, mode: str
) -> dict[str, Any]:
    """One run."""
    config = {
        "num-server-rounds": 9 if megabytes <= 10 else 4,
        "data.path": str(data),
        "hierarchy.num-servers": leaves,
        "train.model": "linear",
        "scaffold.enabled": False,
        "cluster.start-round": NO_CLOUD_STEP,
    }
    code = "from benchmarks.echo import main; main()"
    command = [sys.executable, "-c", code, engine, mode, str(round(megabytes * 1e6))]
    run = carry_out(engine, config, folder, CLIENTS, watch_memory=True, command=command)
    phases = run.phases[1:]
    return {
        "engine": engine,
        "mode": mode,
        "megabytes": megabytes,
        "leaves": leaves,
        "round_s": [row["total"] - row["checkpoint"] for row in phases],
        "checkpoint_s": [row["checkpoint"] for row in phases],
        "phases_s": {name: float(np.median([row[name] for row in phases])) for name in phases[0]},
        "peak_mib": run.peak_mib,
        "server_rss_in_models": run.peak_mib["server"]["rss"] * 2**20 / (megabytes * 1e6),
    }


def words_of(case: dict[str, Any]) -> str:
    """A case for people."""
    leaves = "1 leaf" if case["leaves"] == 1 else f"{case['leaves']} leaves"
    mode = "" if case["mode"] == "echo" else ", a copy per client"
    return f"{case['engine']}{mode}, {case['megabytes']:g} MB, {leaves}"


def figures(results: dict[str, Any]) -> list[Figure]:
    """Seconds per exchange; the server's memory where the model is what fills it."""
    entries = []
    for case in results["cases"]:
        words, largest = words_of(case), case["megabytes"] == FULL_MB[-1]
        aim = EXCHANGE_AIM_S.get((case["engine"], case["mode"])) if largest else None
        entries.append(figure(f"{words}: exchange", "s", np.array(case["round_s"]) / 2, aim))
        if largest and case["mode"] == "echo":
            entries.append(figure(f"{words}: checkpoint", "s", np.array(case["checkpoint_s"])))
        if case["megabytes"] >= 100:
            rss_aim = RSS_AIM if largest and case["leaves"] == 1 and case["mode"] == "echo" else None
            rss = case["server_rss_in_models"]
            entries.append(figure(f"{words}: server's peak RSS", "models", rss, rss_aim))
    return entries


def distance(results: dict[str, Any], peak: Mapping[str, float]) -> str:
    """Model bytes sent and received per second against a copy in memory."""
    words = []
    for case in results["cases"]:
        speed = MODELS_PER_ROUND * case["megabytes"] / float(np.median(case["round_s"])) / 1e3
        share = speed / peak["copy_gb_per_s"]
        words.append(f"{words_of(case)}: {speed:.2g} GB/s, {share:.0%} of one thread's memory copy")
    return "<br>".join(words)


def draw(results: dict[str, Any], axes: Any) -> None:
    """Seconds per exchange over size, one leaf."""
    for engine, mode in MODES:
        cases = [c for c in results["cases"] if (c["engine"], c["mode"], c["leaves"]) == (engine, mode, 1)]
        seconds = [float(np.median(case["round_s"])) / 2 for case in cases]
        label = engine if mode == "echo" else f"{engine}, a copy per client"
        axes.loglog([case["megabytes"] for case in cases], seconds, "o-", label=label)
    for place, aim in enumerate(EXCHANGE_AIM_S.values()):
        axes.plot(FULL_MB[-1], aim, "v", color="C3", label=None if place else "aims (at most)")
    axes.set_xlabel("model, MB")
    axes.set_ylabel("seconds per exchange, 9 clients")
    axes.legend(frameon=False)


BENCHMARK = Benchmark(
    "large_model",
    "Exchanges of large models without training.",
    measure,
    figures,
    distance,
    draw,
)

if __name__ == "__main__":
    main(BENCHMARK)
