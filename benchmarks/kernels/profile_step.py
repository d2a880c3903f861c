"""Distribution of a training step's time: PyTorch's profiler over one epoch of Fedge's own step.

python -m benchmarks.kernels.profile_step        prints a table per network; not part of `make bench`
"""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.step import BATCH, CHANNELS, CLASSES, SAMPLES, SETTINGS
from fedge.training.local import train
from fedge.training.networks.models import build_model

WINDOWS = 32 * BATCH
ROWS = 12


def main() -> None:
    """Train an epoch to warm up, then one under the profiler."""
    torch.set_num_threads(1)
    for name in ("cnn-pool", "cnn"):
        generator = torch.Generator().manual_seed(0)
        model = build_model(name, (CHANNELS, SAMPLES), CLASSES, generator)
        x = torch.randn(WINDOWS, CHANNELS, SAMPLES, generator=generator)
        y = torch.randint(0, CLASSES, (WINDOWS,), generator=generator)
        train(model, x, y, SETTINGS, generator)
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            train(model, x, y, SETTINGS, generator)
        print(f"\n{name}: {WINDOWS // BATCH} steps of {BATCH} windows of {CHANNELS} x {SAMPLES}")
        table = profiled.key_averages().table("self_cpu_time_total", row_limit=ROWS, max_name_column_width=36)
        print(table)


if __name__ == "__main__":
    main()
