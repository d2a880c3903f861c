"""The native step against PyTorch's, in one process, taking turns: ratios robust to a busy machine.

    python -m benchmarks.kernels.native_step [ROUNDS]

One client on one thread, then two at once, as many as a run has workers. Each round trains one epoch of
`fedge.training.local.train` with every kernel this processor supports, and with factors rounded to bf16. CPU
time of a thread is measured, because wall time on a busy machine depends on other processes. Per network: the
median and quartiles of the ratios, round by round, GFLOP/s of a thread, and percent of the core's peak in
float32, which is measured first (fused multiplications and additions in registers). Kernels with AMX may
exceed it. Stores nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from benchmarks.step import BATCH, CHANNELS, CLASSES, NETWORKS, SAMPLES, SETTINGS, WINDOWS, flop_per_window
from fedge.native.library import BF16, KERNEL, open_library, peak_gflops
from fedge.training.evaluation import evaluate_parts
from fedge.training.local import train
from fedge.training.networks.models import build_model
from fedge.training.settings import LocalTraining

DEFAULTS = replace(SETTINGS, clip_norm=1.0, label_smoothing=0.1)  # default settings of a run


def cpu_seconds(works: Sequence[Callable[[], object]]) -> float:
    """Mean CPU seconds of threads with one piece of work each, at the same time."""
    seconds: list[float] = []
    barrier = threading.Barrier(len(works))

    def carry_out(work: Callable[[], object]) -> None:
        barrier.wait()
        start = time.thread_time()
        work()
        seconds.append(time.thread_time() - start)

    threads = [threading.Thread(target=carry_out, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(seconds) / len(works)


def works(network: str, settings: LocalTraining) -> dict[str, Callable[[], object]]:
    """Contestants taking turns: training with every kernel, evaluation with PyTorch and the best."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(WINDOWS, CHANNELS, SAMPLES, generator=generator)
    y = torch.randint(0, CLASSES, (WINDOWS,), generator=generator)
    model = build_model(network, (CHANNELS, SAMPLES), CLASSES, generator)

    def with_kernel(name: str, work: Callable[[str], object]) -> Callable[[], object]:
        def carry_out() -> object:
            os.environ[KERNEL] = "" if name == "torch" else name.removesuffix(BF16)
            return work(name)

        return carry_out

    def epoch(name: str) -> object:
        kernel, precision = step_of(name), "bf16" if name.endswith(BF16) else "float32"
        return train(model, x, y, replace(settings, kernel=kernel, precision=precision), generator)

    kernels = open_library().kernels
    names = ("torch", *kernels, kernels[0] + BF16)
    contestants = {name: with_kernel(name, epoch) for name in names}
    for name in names[:2]:
        contestants[f"evaluate {name}"] = with_kernel(
            name, lambda name: evaluate_parts(model, x, y, [WINDOWS], kernel=step_of(name))
        )
    return contestants


def step_of(name: str) -> str:
    """Value of train.kernel for a contestant."""
    return "torch" if name == "torch" else "native"


def measure(network: str, settings: LocalTraining, rounds: int, threads: int) -> dict[str, np.ndarray]:
    """Seconds of each contestant, round by round, after a warm-up round."""
    by_thread = [works(network, settings) for _ in range(threads)]
    times = [
        [cpu_seconds([contestants[name] for contestants in by_thread]) for name in by_thread[0]]
        for _ in range(rounds + 1)
    ][1:]
    return dict(zip(by_thread[0], np.array(times).T, strict=True))


def main() -> None:
    """Command line."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    torch.set_num_threads(1)
    print(f"load {os.getloadavg()[0]:.1f}; {rounds} rounds; batch {BATCH}; ms per step, CPU time")
    peak = peak_gflops(open_library())
    print(f"this core's peak in float32: {peak:.0f} GFLOP/s")
    for network in NETWORKS:
        for label, settings in (("plain", SETTINGS), ("clip, label smoothing", DEFAULTS)):
            for threads in (1, 2):
                print(f"\n{network}: {label}; {threads} at a time")
                print_results(network, measure(network, settings, rounds, threads), peak)


def print_results(network: str, times: dict[str, np.ndarray], peak: float) -> None:
    """Print a line per contestant; `peak` in GFLOP/s."""
    for name, seconds in times.items():
        reference = times["evaluate torch" if name.startswith("evaluate") else "torch"]
        low, middle, high = np.percentile(reference / seconds, [25, 50, 75])
        ms = float(np.median(seconds)) / WINDOWS * BATCH * 1e3
        line = f"  {name:16} {ms:7.3f} ms {middle:5.2f} x faster ({low:.2f} to {high:.2f})"
        if not name.startswith("evaluate"):
            gflops = flop_per_window(network) * BATCH / ms / 1e6
            line += f" {gflops:4.0f} GFLOP/s, {100 * gflops / peak:3.0f} %"
        print(line)


if __name__ == "__main__":
    main()
