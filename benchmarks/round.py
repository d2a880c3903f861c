"""Global rounds of Fedge on both engines against a plain PyTorch loop and a plain pool of two processes.

    python -m benchmarks.round [--full]

Nine clients under three leaves, training on 5,500 / 1,138 / 1,046 windows of 6 × 128 per leaf, model
`cnn-pool`, batch 32, SGD with momentum 0.9, one local epoch and five. (Taken as totals per leaf, the plain
loop needs 4 to 5 s per epoch at 0.5 to 0.7 ms per window on one core; taken per client, three times that.)

    loop        network, optimiser and averaging in plain PyTorch, one client after another
    pool        the same on `multiprocessing.Pool(2)`, one torch thread each, largest client first
    inprocess   `fedge.simulate` with two workers: a whole global round, with cloud step, gate and recording
    scaffold    the same with SCAFFOLD: the cost of its control variates
    ray         `flwr run .` with two workers

The first four take turns round by round, each in its own processes. Ray cannot be paused between rounds, so
whole runs of it are placed between blocks of the others' rounds and compared with the two adjacent blocks;
its seconds are from timing.csv, without the first round. Clipping, label smoothing and, except for
`scaffold`, SCAFFOLD are off, so all contestants take the same steps; everything else is Fedge's default.
Clients hold 12 windows each for validation and test: the gate works, but its evaluation, which the references
lack, is cheap.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    WORKERS,
    Benchmark,
    Figure,
    Turn,
    figure,
    main,
    ratio,
    take_turns,
)
from benchmarks.contest import draw_ratios, gflop_per_s, seconds_and_ratios, words_of
from benchmarks.engines import (
    Run,
    carry_out,
    leaf_totals_to_clients,
    makespan,
    read_tables,
    write_windows,
)
from benchmarks.plain import NETWORK, contend_loop, contend_pool
from benchmarks.step import BATCH, CHANNELS, CLASSES, SAMPLES, SETTINGS, flop_per_window
from fedge import simulate

LEAF_WINDOWS = (5500, 1138, 1046)
HELD_OUT = 12  # windows of each client's validation split, and of its test split
AIMS = {
    ("inprocess", 1): 0.3,
    ("inprocess", 5): 0.3,
    ("ray", 1): 0.45,
    ("ray", 5): 0.75,
}  # largest ratio to the pool, by engine and epochs
SCAFFOLD_AIM = 1.1  # largest ratio of a round with SCAFFOLD to a round without
NOT_TRAINING_AIMS = {
    ("inprocess", 1): 4.0,
    ("inprocess", 5): 1.5,
    ("ray", 1): 12.0,
    ("ray", 5): 4.0,
}  # per cent
RAY_ROUNDS = 5  # per run, including the first

# --- Fedge ----------------------------------------------------------------------------------------------


class Gate:
    """Terminal of a run in this process: after each round's line it waits for the next turn."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._start = time.perf_counter()

    def write(self, text: str) -> None:
        """Accept a line; only those of rounds matter."""
        if text.startswith("round "):
            self._turn.done(time.perf_counter() - self._start)
            self._turn.wait()
            self._start = time.perf_counter()

    def flush(self) -> None:
        """Do nothing."""


def contend_in_process(turn: Turn, config: Mapping[str, Any]) -> None:
    """Fedge in this process. Its first turn includes the start of the run, as warm-up."""
    turn.wait()
    simulate(config, workers=WORKERS, terminal=Gate(turn))  # type: ignore[arg-type]


def configuration(data: Path, runs: Path, epochs: int, rounds: int) -> dict[str, Any]:
    """Configuration of a run with the references' steps."""
    return {
        "num-server-rounds": rounds,
        "runs-dir": str(runs),
        "data.path": str(data),
        "train.model": NETWORK,
        "train.local-epochs": epochs,
        "train.batch-size": BATCH,
        "train.lr": SETTINGS.lr,
        "train.momentum": SETTINGS.momentum,
        "train.weight-decay": SETTINGS.weight_decay,
        "train.clip-norm": 0.0,
        "train.label-smoothing": 0.0,
        "scaffold.enabled": False,
    }


# --- the race -------------------------------------------------------------------------------------------


def measure(full: bool) -> dict[str, Any]:
    """One local epoch, then five."""
    sizes = leaf_totals_to_clients(LEAF_WINDOWS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "windows.npz"
        write_windows(data, sizes, [HELD_OUT] * len(sizes), CHANNELS, SAMPLES, CLASSES)
        one_epoch = race(folder / "1", data, sizes, 1, blocks=4 if full else 2, block_rounds=4 if full else 3)
        five_epochs = race(folder / "5", data, sizes, 5, blocks=2, block_rounds=2 if full else 1)
    return {"windows_per_client": sizes, "workers": WORKERS, "epochs": {"1": one_epoch, "5": five_epochs}}


def race(
    folder: Path, data: Path, sizes: Sequence[int], epochs: int, blocks: int, block_rounds: int
) -> dict[str, Any]:
    """Blocks of interleaved rounds, with a run on Ray between any two."""
    folder.mkdir()
    rounds = blocks * block_rounds
    config = configuration(data, folder / "inprocess", epochs, rounds + 1)
    with_scaffold = {**config, "runs-dir": str(folder / "scaffold"), "scaffold.enabled": True}
    contestants = {
        "loop": (contend_loop, (str(data), sizes, epochs)),
        "pool": (contend_pool, (str(data), sizes, epochs)),
        "inprocess": (contend_in_process, (config,)),
        "scaffold": (contend_in_process, (with_scaffold,)),
    }
    ray: list[Run] = []

    def run_ray(round_: int) -> None:
        if (round_ + 1) % block_rounds == 0 and round_ + 1 < rounds:
            run_folder = folder / f"ray-{len(ray)}"
            ray.append(carry_out("ray", configuration(data, run_folder, epochs, RAY_ROUNDS), run_folder))

    times = take_turns(contestants, rounds, warmup=1, after_round=run_ray)
    return summary(folder, times, ray, block_rounds)


def summary(
    folder: Path, times: Mapping[str, np.ndarray], ray: Sequence[Run], block_rounds: int
) -> dict[str, Any]:
    """Seconds per round, ratios to the pool, shares other than training, and Fedge's phases."""
    pool_medians = [
        float(np.median(times["pool"][i * block_rounds : (i + 2) * block_rounds])) for i in range(len(ray))
    ]
    phases, train_s = read_tables(folder / "inprocess" / "latest")
    # waiting for a turn counts as "record" in timing.csv, so the turns' own time is the round's
    trained_s = np.array([makespan(seconds) for seconds in train_s[1:]])
    return {
        "seconds": {name: sample.tolist() for name, sample in times.items()}
        | {"ray": [second for run in ray for second in run.round_s()]},
        "ratio_to_pool": {
            "loop": ratio(times["loop"], times["pool"]),
            "inprocess": ratio(times["inprocess"], times["pool"]),
            "ray": [s / pool for run, pool in zip(ray, pool_medians, strict=True) for s in run.round_s()],
        },
        "scaffold_to_without": ratio(times["scaffold"], times["inprocess"]),
        "not_training": {
            "inprocess": (1 - trained_s / times["inprocess"]).tolist(),
            "ray": [share for run in ray for share in run.not_training()],
        },
        "ray_start_s": [run.wall_s - sum(run.round_s(0)) for run in ray],
        "phases": {
            "inprocess": _median_phases(phases[1:]),
            "ray": _median_phases([row for run in ray for row in run.phases[1:]]),
        },
    }


def _median_phases(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = [name for name in rows[0] if name != "global_round"]
    return {name: float(np.median([row[name] for row in rows])) for name in names}


# --- tables shown --------------------------------------------------------------------------------------


def figures(results: dict[str, Any]) -> list[Figure]:
    """Seconds, ratios and overhead for one and for five epochs."""
    entries = []
    for epochs, result in results["epochs"].items():
        words = words_of(epochs)
        aims = {name: aim for (name, aim_epochs), aim in AIMS.items() if aim_epochs == int(epochs)}
        entries += seconds_and_ratios(epochs, result, aims)
        ratios = result["scaffold_to_without"]
        entries.append(figure(f"{words}, inprocess, scaffold / without", "x", ratios, SCAFFOLD_AIM))
        for name, shares in result["not_training"].items():
            per_cent = 100 * np.array(shares)
            entries.append(
                figure(f"{words}, {name}, not training", "%", per_cent, NOT_TRAINING_AIMS[name, int(epochs)])
            )
    return entries


def distance(results: dict[str, Any], peak: Mapping[str, float]) -> str:
    """GFLOP/s per worker against one thread's matrix product."""
    peak_speed = peak["matmul_gflop_per_s"]
    return "<br>".join(
        f"{words_of(epochs)}, {name}: {speed:.0f} GFLOP/s per worker, {speed / peak_speed:.0%}"
        for epochs, name, speed in gflop_per_s(results, flop_per_window(NETWORK))
    )


def draw(results: dict[str, Any], axes: Any) -> None:
    """Ratios to the pool."""
    draw_ratios(axes, figures(results))


BENCHMARK = Benchmark(
    "round",
    "Global rounds on both engines against a plain loop and a plain pool.",
    measure,
    figures,
    distance,
    draw,
)

if __name__ == "__main__":
    main(BENCHMARK)
