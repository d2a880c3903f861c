"""Local training against the plain eager loop: speed-up, and distance to the machine's limit.

    python -m benchmarks.step [--full]

One thread. Four contestants, each in its own process, so none is affected by another's memory settings:

    plain        the `nn.Conv1d` network and `torch.optim.SGD` in plain PyTorch, without a DataLoader
    plain-keep   the same after `fedge.training.host.keep_freed_memory`: the effect of the allocator alone
    fedge        `fedge.training.local.train`
    matmul       a large matrix product, the machine's limit

They take turns: each round times one epoch of each on the same windows, in alternating order. A round's
ratio compares adjacent measurements, so a machine that slows down for a while affects both; the median ratio
and its quartiles are reported. GFLOP/s count the multiplications and additions of convolutions and linear
layers, forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.common import (
    MATMUL,
    Benchmark,
    Figure,
    Turn,
    draw_figures,
    figure,
    main,
    ratio,
    repeat,
    take_turns,
)
from fedge.training.host import keep_freed_memory
from fedge.training.local import train
from fedge.training.networks.models import build_model
from fedge.training.settings import LocalTraining

CHANNELS, SAMPLES, CLASSES, WINDOWS, BATCH = 6, 128, 6, 640, 32
CONTESTANTS = ("plain", "plain-keep", "fedge", "matmul")
NETWORKS = ("cnn-pool", "cnn")
SETTINGS = LocalTraining(lr=0.01, momentum=0.9, weight_decay=1e-4, batch_size=BATCH, epochs=1, threads=1)


def plain_network(name: str) -> nn.Module:
    """The network in plain PyTorch, with `nn.Conv1d` on (N, C, T)."""
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


def plain_epoch(model: nn.Module, x: Tensor, y: Tensor, generator: torch.Generator) -> list[Tensor]:
    """One epoch of the plain eager loop; returns the loss of each step."""
    model.train()
    losses = []
    sgd = torch.optim.SGD(
        model.parameters(), lr=SETTINGS.lr, momentum=SETTINGS.momentum, weight_decay=SETTINGS.weight_decay
    )
    for batch in torch.randperm(len(y), generator=generator).split(BATCH):
        sgd.zero_grad()
        loss = F.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        sgd.step()
        losses.append(loss.detach())
    return losses


def flop_per_window(name: str, samples: int = SAMPLES) -> float:
    """Multiplications and additions of one window in convolutions and linear layers, forward and backward.

    Backward counts twice forward, less the gradient with respect to the input, which is not needed.
    """
    first = 2 * 64 * CHANNELS * 5 * samples
    if name == "cnn":
        rest = 2 * 64 * 64 * 5 * samples + 2 * 64 * CLASSES
    else:
        rest = 2 * 64 * 64 * 5 * samples // 2 + 2 * 16 * samples * 128 + 2 * 128 * CLASSES
    return 2 * first + 3 * rest


def contestant(name: str, network: str) -> Callable[[], Any]:
    """Timed work of one round: an epoch of the loop `name`, or the matrix product."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(WINDOWS, CHANNELS, SAMPLES, generator=generator)
    y = torch.randint(0, CLASSES, (WINDOWS,), generator=generator)
    if name == "fedge":
        model = build_model(network, (CHANNELS, SAMPLES), CLASSES, generator)
        return lambda: train(model, x, y, SETTINGS, generator)
    if name == "matmul":
        square = torch.randn(MATMUL, MATMUL, generator=generator)
        return lambda: square @ square
    if name == "plain-keep":
        keep_freed_memory()
    plain = plain_network(network)
    return lambda: plain_epoch(plain, x, y, generator)


def contend(turn: Turn, name: str, network: str) -> None:
    """Run a contestant in its own process."""
    repeat(turn, contestant(name, network))


def measure(full: bool) -> dict[str, Any]:
    """Interleaved rounds of all contestants for both networks, after two rounds of warm-up."""
    results = {}
    for network in NETWORKS:
        contestants = {name: (contend, (name, network)) for name in CONTESTANTS}
        times = take_turns(contestants, rounds=30 if full else 10, warmup=2)
        results[network] = summary(network, times)
    return {"windows": WINDOWS, "window": [CHANNELS, SAMPLES], "batch_size": BATCH, "networks": results}


def summary(network: str, times: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Times and GFLOP/s of each loop, its speed-up over `plain`, and fedge's over plain-keep."""
    flop = WINDOWS * flop_per_window(network)
    loops = {}
    for name in CONTESTANTS[:-1]:
        median_s = float(np.median(times[name]))
        loops[name] = {
            "seconds": times[name].tolist(),
            "ms_per_step": median_s / WINDOWS * BATCH * 1e3,
            "ms_per_window": median_s / WINDOWS * 1e3,
            "gflop_per_s": flop / median_s / 1e9,
            "speedup": ratio(times["plain"], times[name]),
        }
    return {
        "loops": loops,
        "speedup_over_plain_keep": ratio(times["plain-keep"], times["fedge"]),
        "matmul_gflop_per_s": 2.0 * MATMUL**3 / float(np.median(times["matmul"])) / 1e9,
    }


def figures(results: dict[str, Any]) -> list[Figure]:
    """Speed-ups of both networks."""
    entries = []
    for network, result in results["networks"].items():
        fedge = result["loops"]["fedge"]
        entries += [
            figure(f"`{network}` against the plain loop", "x faster", fedge["speedup"]),
            figure(f"`{network}`, same allocator", "x faster", result["speedup_over_plain_keep"]),
            figure(f"`{network}` step", "ms", np.array(fedge["seconds"]) / WINDOWS * BATCH * 1e3),
        ]
    return entries


def distance(results: dict[str, Any], _: Mapping[str, float]) -> str:
    """Share of the matrix product's speed, measured in the same rounds."""
    words = []
    for network, result in results["networks"].items():
        for name in ("plain", "fedge"):
            speed, limit = result["loops"][name]["gflop_per_s"], result["matmul_gflop_per_s"]
            words.append(f"{network}, {name}: {speed:.0f} GFLOP/s, {speed / limit:.0%} of the matrix product")
    return "<br>".join(words)


def draw(results: dict[str, Any], axes: Any) -> None:
    """Draw ms per window of each loop."""
    entries = []
    for network, result in results["networks"].items():
        for name, loop in result["loops"].items():
            entries.append(figure(f"{network}, {name}", "ms", np.array(loop["seconds"]) / WINDOWS * 1e3))
    draw_figures(axes, entries, "ms per window")


BENCHMARK = Benchmark(
    "step", "Local training against the plain eager loop, one thread.", measure, figures, distance, draw
)

if __name__ == "__main__":
    main(BENCHMARK)
