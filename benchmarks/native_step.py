"""The native step against PyTorch's, in one process, taking turns: ratios that bear a busy machine.

    python -m benchmarks.native_step [ROUNDS]

One thread. Each round trains one epoch of `fedge.training.local.train` with every kernel that this processor
can run. CPU time of the thread counts: on a busy machine, time on the wall says who else was there. Per
network: the median and quartiles of the ratios, round by round, and GFLOP/s. Keeps nothing.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from benchmarks.step import BATCH, CHANNELS, CLASSES, NETWORKS, SAMPLES, SETTINGS, WINDOWS, flop_per_window
from fedge.native.library import KERNEL, open_library
from fedge.training.evaluation import evaluate_parts
from fedge.training.local import train
from fedge.training.models import build_model
from fedge.training.settings import LocalTraining

DEFAULTS = replace(SETTINGS, clip_norm=1.0, label_smoothing=0.1)  # what a run trains with


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this thread."""
    before = time.thread_time()
    work()
    return time.thread_time() - before


def works(network: str, settings: LocalTraining) -> dict[str, Callable[[], object]]:
    """What takes turns: training with every kernel, and evaluation with PyTorch and the best one."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(WINDOWS, CHANNELS, SAMPLES, generator=generator)
    y = torch.randint(0, CLASSES, (WINDOWS,), generator=generator)
    model = build_model(network, (CHANNELS, SAMPLES), CLASSES, generator)

    def with_kernel(name: str, work: Callable[[str], object]) -> Callable[[], object]:
        def carry_out() -> object:
            os.environ[KERNEL] = "" if name == "torch" else name
            return work("torch" if name == "torch" else "native")

        return carry_out

    names = ("torch", *open_library().kernels)
    found = {
        name: with_kernel(
            name, lambda kernel: train(model, x, y, replace(settings, kernel=kernel), generator)
        )
        for name in names
    }
    for name in names[:2]:
        found[f"evaluate {name}"] = with_kernel(
            name, lambda kernel: evaluate_parts(model, x, y, [WINDOWS], kernel=kernel)
        )
    return found


def measure(network: str, settings: LocalTraining, rounds: int) -> dict[str, np.ndarray]:
    """Seconds of each contestant, round by round, after one of warm-up."""
    contestants = works(network, settings)
    times = [[cpu_seconds(work) for work in contestants.values()] for _ in range(rounds + 1)][1:]
    return dict(zip(contestants, np.array(times).T, strict=True))


def main() -> None:
    """Command line."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    torch.set_num_threads(1)
    print(f"load {os.getloadavg()[0]:.1f}; {rounds} rounds; batch {BATCH}; ms per step, CPU time")
    for network in NETWORKS:
        for words, settings in (("plain", SETTINGS), ("clip, label smoothing", DEFAULTS)):
            print(f"\n{network}: {words}")
            tell(network, measure(network, settings, rounds))


def tell(network: str, times: dict[str, np.ndarray]) -> None:
    """Print a line per contestant."""
    for name, seconds in times.items():
        reference = times["evaluate torch" if name.startswith("evaluate") else "torch"]
        low, middle, high = np.percentile(reference / seconds, [25, 50, 75])
        ms = float(np.median(seconds)) / WINDOWS * BATCH * 1e3
        line = f"  {name:16} {ms:7.3f} ms {middle:5.2f} x faster ({low:.2f} to {high:.2f})"
        if not name.startswith("evaluate"):
            line += f" {flop_per_window(network) * BATCH / ms / 1e6:4.0f} GFLOP/s"
        print(line)


if __name__ == "__main__":
    main()
