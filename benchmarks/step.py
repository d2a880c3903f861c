"""Local training against the plain eager loop: how much faster, and how near the machine's limit.

    python -m benchmarks.step [--out FILE.json] [--rounds 30]

One thread. Four contestants, each in a process of its own, so that none runs on another's memory settings:

    plain        the `nn.Conv1d` network and `torch.optim.SGD` as one would write them, without a DataLoader
    plain-keep   the same after `fedge.training.keep_freed_memory`: what the allocator alone is worth
    fedge        `fedge.training.train`
    matmul       a large matrix product, the machine's limit

They take turns: each round times one epoch of each on the same windows, in alternating order. A round's
ratio compares neighbours in time, so a machine that slows down for a while shifts both; reported are the
median ratio and its quartiles. GFLOP/s count the multiplications and additions of convolutions and linear
layers, forward and backward.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import time
from collections.abc import Callable
from datetime import datetime, timezone
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedge.model import build_model
from fedge.training import LocalTraining, keep_freed_memory, train

CHANNELS, SAMPLES, CLASSES, WINDOWS, BATCH = 6, 128, 6, 640, 32
CONTESTANTS = ("plain", "plain-keep", "fedge", "matmul")
MATMUL = 1024  # side of the square matrices of the reference product
SETTINGS = LocalTraining(lr=0.01, momentum=0.9, weight_decay=1e-4, batch_size=BATCH, epochs=1, threads=1)


def plain_network(name: str) -> nn.Module:
    """The network as one would write it with `nn.Conv1d` on (N, C, T)."""
    if name == "cnn":
        return nn.Sequential(
            *(nn.Conv1d(CHANNELS, 64, 5, padding="same"), nn.BatchNorm1d(64), nn.ReLU()),
            *(nn.Conv1d(64, 64, 5, padding="same"), nn.BatchNorm1d(64), nn.ReLU()),
            *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, CLASSES)),
        )
    assert name == "cnn-pool", name
    return nn.Sequential(
        *(nn.Conv1d(CHANNELS, 64, 5, padding="same"), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Conv1d(64, 64, 5, padding="same"), nn.ReLU(), nn.MaxPool1d(2)),
        *(nn.Flatten(), nn.Linear(16 * SAMPLES, 128), nn.ReLU(), nn.Linear(128, CLASSES)),
    )


def plain_epoch(model: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> None:
    """One epoch of the plain eager loop."""
    model.train()
    sgd = torch.optim.SGD(
        model.parameters(), lr=SETTINGS.lr, momentum=SETTINGS.momentum, weight_decay=SETTINGS.weight_decay
    )
    for batch in torch.randperm(len(y), generator=generator).split(BATCH):
        sgd.zero_grad()
        F.cross_entropy(model(x[batch]), y[batch]).backward()
        sgd.step()


def flop_per_window(name: str) -> float:
    """Multiplications and additions of one window in convolutions and linear layers, forward and backward.

    Backward counts twice forward, less the gradient with respect to the input, which nobody needs.
    """
    first = 2 * 64 * CHANNELS * 5 * SAMPLES
    if name == "cnn":
        rest = 2 * 64 * 64 * 5 * SAMPLES + 2 * 64 * CLASSES
    else:
        rest = 2 * 64 * 64 * 5 * SAMPLES // 2 + 2 * 16 * SAMPLES * 128 + 2 * 128 * CLASSES
    return 2 * first + 3 * rest


def contestant(what: str, network: str) -> Callable[[], Any]:
    """What one round times: an epoch of the loop `what`, or the matrix product."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(WINDOWS, CHANNELS, SAMPLES, generator=generator)
    y = torch.randint(0, CLASSES, (WINDOWS,), generator=generator)
    if what == "fedge":
        ours = build_model(network, CHANNELS, SAMPLES, CLASSES, generator)
        return lambda: train(ours, x, y, SETTINGS, generator)
    if what == "matmul":
        square = torch.randn(MATMUL, MATMUL, generator=generator)
        return lambda: square @ square
    if what == "plain-keep":
        keep_freed_memory()
    plain = plain_network(network)
    return lambda: plain_epoch(plain, x, y, generator)


def serve(connection: Connection, what: str, network: str) -> None:
    """A contestant's process: for each message, time one round."""
    torch.set_num_threads(1)
    action = contestant(what, network)
    while connection.recv():
        start = time.perf_counter()
        action()
        connection.send(time.perf_counter() - start)


def measure(network: str, rounds: int) -> dict[str, Any]:
    """Interleaved rounds of all contestants for one network, after two rounds of warm-up."""
    spawn = multiprocessing.get_context("spawn")
    connections, processes = {}, []
    for what in CONTESTANTS:
        connections[what], theirs = spawn.Pipe()
        processes.append(spawn.Process(target=serve, args=(theirs, what, network), daemon=True))
        processes[-1].start()
    times = {what: np.empty(rounds + 2) for what in CONTESTANTS}
    for round_ in range(rounds + 2):
        for what in CONTESTANTS[:: 1 if round_ % 2 else -1]:
            connections[what].send(True)
            times[what][round_] = connections[what].recv()
    for connection in connections.values():
        connection.send(False)
    for process in processes:
        process.join()
    return summary(network, {what: sample[2:] for what, sample in times.items()})


def summary(network: str, times: dict[str, np.ndarray]) -> dict[str, Any]:
    """Median times and GFLOP/s of each loop, and its ratio to `plain` with quartiles."""
    flop = WINDOWS * flop_per_window(network)
    loops = {}
    for what in CONTESTANTS[:-1]:
        median_s = float(np.median(times[what]))
        low, middle, high = np.percentile(times["plain"] / times[what], [25, 50, 75])
        loops[what] = {
            "ms_per_step": median_s / WINDOWS * BATCH * 1e3,
            "ms_per_window": median_s / WINDOWS * 1e3,
            "gflop_per_s": flop / median_s / 1e9,
            "speedup_median": float(middle),
            "speedup_quartiles": [float(low), float(high)],
        }
    matmul = 2.0 * MATMUL**3 / float(np.median(times["matmul"])) / 1e9
    low, middle, high = np.percentile(times["plain-keep"] / times["fedge"], [25, 50, 75])
    same_allocator = {"speedup_median": float(middle), "speedup_quartiles": [float(low), float(high)]}
    return {
        "network": network,
        "loops": loops,
        "fedge_over_plain_keep": same_allocator,
        "matmul_gflop_per_s": matmul,
    }


def print_table(result: dict[str, Any]) -> None:
    """The result for one network, for people."""
    print(f"{result['network']}, windows of {CHANNELS} x {SAMPLES}, batch {BATCH}")
    for what, r in result["loops"].items():
        low, high = r["speedup_quartiles"]
        print(
            f"  {what:10} {r['ms_per_step']:6.2f} ms/step  {r['ms_per_window']:.4f} ms/window "
            f"{r['gflop_per_s']:6.1f} GFLOP/s  {r['speedup_median']:.2f}x plain ({low:.2f} to {high:.2f})"
        )
    r = result["fedge_over_plain_keep"]
    low, high = r["speedup_quartiles"]
    print(f"  fedge is {r['speedup_median']:.2f}x plain-keep ({low:.2f} to {high:.2f})")
    print(f"  matmul {MATMUL} x {MATMUL}: {result['matmul_gflop_per_s']:.1f} GFLOP/s")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Local training against the plain eager loop, one thread.")
    parser.add_argument("--out", type=Path, help="write the results as JSON to this file")
    parser.add_argument("--rounds", type=int, default=30, help="interleaved rounds per network")
    arguments = parser.parse_args()
    results = []
    for network in ("cnn-pool", "cnn"):
        results.append(measure(network, arguments.rounds))
        print_table(results[-1])
    if arguments.out:
        record = {
            "command": f"python -m benchmarks.step --rounds {arguments.rounds}",
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "processor": processor(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "threads": 1,
            "batch_size": BATCH,
            "window": [CHANNELS, SAMPLES],
            "results": results,
        }
        arguments.out.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def processor() -> str:
    """The processor's name and the vector instructions PyTorch uses on it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.processor()} ({torch.backends.cpu.get_cpu_capability()})"


if __name__ == "__main__":
    main()
