"""Local training against the plain eager loop: how much faster, and how near the machine's limit.

    python -m benchmarks.step [--out FILE.json] [--rounds 15]

One thread. Each round times one epoch of each loop, one after the other, on the same windows: `plain` is
the `nn.Conv1d` network with `torch.optim.SGD`, as one would write it (no DataLoader); `fedge` is
`fedge.training.train`. A round's ratio compares neighbours in time, so a machine that slows down for a
while shifts both; reported are the median ratio and its quartiles. GFLOP/s count the multiply-adds of
convolutions and linear layers, forward and backward, and stand beside a large matrix product timed in the
same rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedge.model import build_model
from fedge.training import LocalTraining, train

CHANNELS, SAMPLES, CLASSES, WINDOWS, BATCH = 6, 128, 6, 640, 32
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


def seconds(action: Callable[[], Any]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(name: str, rounds: int) -> dict[str, Any]:
    """Interleaved rounds of both loops and the matrix product for one network."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(WINDOWS, CHANNELS, SAMPLES, generator=generator)
    y = torch.randint(0, CLASSES, (WINDOWS,), generator=generator)
    ours = build_model(name, CHANNELS, SAMPLES, CLASSES, generator)
    plain = plain_network(name)
    plain.load_state_dict(dict(zip(plain.state_dict(), ours.state_dict().values(), strict=True)))
    square = torch.randn(MATMUL, MATMUL, generator=generator)
    actions = {
        "plain": lambda: plain_epoch(plain, x, y, generator),
        "fedge": lambda: train(ours, x, y, SETTINGS, generator),
        "matmul": lambda: square @ square,
    }
    for action in actions.values():
        action()
    times = {what: np.empty(rounds) for what in actions}
    for round_ in range(rounds):
        order = list(actions) if round_ % 2 else list(actions)[::-1]
        for what in order:
            times[what][round_] = seconds(actions[what])
    return summary(name, times)


def summary(name: str, times: dict[str, np.ndarray]) -> dict[str, Any]:
    """Medians and quartiles of the times in seconds."""
    flop = {"plain": WINDOWS * flop_per_window(name), "matmul": 2.0 * MATMUL**3}
    flop["fedge"] = flop["plain"]
    ratio = times["plain"] / times["fedge"]
    result: dict[str, Any] = {
        "network": name,
        "speedup_median": float(np.median(ratio)),
        "speedup_quartiles": [float(q) for q in np.percentile(ratio, [25, 75])],
        "speedup_range": [float(ratio.min()), float(ratio.max())],
    }
    for what, sample in times.items():
        result[f"{what}_gflop_per_s"] = flop[what] / float(np.median(sample)) / 1e9
    for what in ("plain", "fedge"):
        result[f"{what}_ms_per_window"] = float(np.median(times[what])) / WINDOWS * 1e3
        result[f"{what}_ms_per_step"] = float(np.median(times[what])) / WINDOWS * BATCH * 1e3
    return result


def print_table(results: list[dict[str, Any]]) -> None:
    """One line per network."""
    for r in results:
        low, high = r["speedup_quartiles"]
        print(f"{r['network']:9} fedge is {r['speedup_median']:.2f}x plain (quartiles {low:.2f} to {high:.2f})")
        for what in ("plain", "fedge"):
            print(
                f"  {what:7} {r[f'{what}_ms_per_step']:7.2f} ms/step {r[f'{what}_ms_per_window']:8.4f} ms/window "
                f"{r[f'{what}_gflop_per_s']:7.1f} GFLOP/s"
            )
        print(f"  matmul  {r['matmul_gflop_per_s']:43.1f} GFLOP/s ({MATMUL} x {MATMUL})")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Local training against the plain eager loop, one thread.")
    parser.add_argument("--out", type=Path, help="write the results as JSON to this file")
    parser.add_argument("--rounds", type=int, default=30, help="interleaved rounds per network")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results = [measure(name, arguments.rounds) for name in ("cnn-pool", "cnn")]
    print_table(results)
    if arguments.out:
        record = {
            "command": f"python -m benchmarks.step --rounds {arguments.rounds}",
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "machine": {"processor": processor(), "python": platform.python_version(), "torch": torch.__version__},
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
