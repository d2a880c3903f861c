"""The workload of the project's first report: current time for 100 global rounds.

    python -m benchmarks.seed_workload --full   a tenth of the windows without --full, to try the benchmark

Nine clients under three leaves, training on 55,108 / 11,381 / 10,463 windows of 6 × 100 per leaf, five local
epochs, the reference network `cnn`, and all other options at their defaults (SCAFFOLD, clustering and gate
on). The first report gives numbers of windows, but not of which split; here all of them are trained on, and a
third as many each validate and test (the default 60/20/20), so the work is not less than the report's. It
took 3 hours for 100 rounds in Flower's simulation and 22 hours with a process per client.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import WORKERS, Benchmark, Figure, draw_figures, figure, main
from benchmarks.engines import ENGINES, carry_out, leaf_totals_to_clients, write_windows
from benchmarks.step import flop_per_window

LEAF_WINDOWS = (55_108, 11_381, 10_463)
CHANNELS, SAMPLES, CLASSES, EPOCHS, ROUNDS = 6, 100, 6, 5, 3  # the first round is warm-up
FIRST_REPORT_H = {"Flower simulation, first report": 3.0, "real processes, first report": 22.0}


def measure(full: bool) -> dict[str, Any]:
    """A few global rounds on both engines."""
    training = leaf_totals_to_clients([total // (1 if full else 10) for total in LEAF_WINDOWS])
    results: dict[str, Any] = {
        "training_windows": sum(training),
        "scale": 1.0 if full else 0.1,
        "engines": {},
    }
    with tempfile.TemporaryDirectory() as name:
        data = Path(name) / "windows.npz"
        write_windows(data, training, [count // 3 for count in training], CHANNELS, SAMPLES, CLASSES)
        config = {"num-server-rounds": ROUNDS, "data.path": str(data), "train.local-epochs": EPOCHS}
        for engine in ENGINES:
            run = carry_out(engine, config, Path(name) / engine, watch_memory=True)
            results["engines"][engine] = {
                "round_s": run.round_s(),
                "not_training": run.not_training(),
                "peak_mib": run.peak_mib,
                "around_rounds_s": run.wall_s - sum(run.round_s(0)),
            }
    return results


def figures(results: dict[str, Any]) -> list[Figure]:
    """Seconds per round, hours for 100, memory."""
    entries = []
    for engine, result in results["engines"].items():
        seconds = np.array(result["round_s"])
        entries.append(figure(f"{engine}: round", "s", seconds))
        entries.append(figure(f"{engine}: 100 rounds", "h", seconds / 36))
        entries.append(figure(f"{engine}: not training", "%", 100 * np.array(result["not_training"])))
        tree = result["peak_mib"]["tree"]
        entries += [figure(f"{engine}: peak {kind.upper()}", "MiB", tree[kind]) for kind in tree]
    return entries


def distance(results: dict[str, Any], peak: Mapping[str, float]) -> str:
    """GFLOP/s per worker against one thread's matrix product; the first report's hours."""
    flop = results["training_windows"] * EPOCHS * flop_per_window("cnn", SAMPLES)
    lines = [f"first report: {hours:g} h ({name})" for name, hours in FIRST_REPORT_H.items()]
    for engine, result in results["engines"].items():
        speed = flop / float(np.median(result["round_s"])) / WORKERS / 1e9
        share = speed / peak["matmul_gflop_per_s"]
        lines.append(f"{engine}: {speed:.0f} GFLOP/s per worker, {share:.0%}")
    return "<br>".join(lines)


def draw(results: dict[str, Any], axes: Any) -> None:
    """Hours for 100 rounds beside the first report's."""
    measured = [entry for entry in figures(results) if entry.unit == "h"]
    draw_figures(
        axes, [*measured, *(figure(n, "h", h) for n, h in FIRST_REPORT_H.items())], "hours for 100 rounds"
    )


BENCHMARK = Benchmark(
    "seed_workload", "The first report's workload: hours for 100 rounds.", measure, figures, distance, draw
)

if __name__ == "__main__":
    main(BENCHMARK)
