"""Number of threads training clients in this process: one per core, or one per GPU."""

from collections.abc import Mapping
from typing import Any

import torch

from fedge.client_app import choose_device
from fedge.process.resources.threads import available_cores


def client_threads(
    run_config: Mapping[str, Any], workers: int | None, clients: int, grids: int = 1
) -> tuple[int, Mapping[str, Any]]:
    """Number of clients trained at a time by threads, and the run config for them.

    Threads on one GPU wait for each other. While one of them records a step as a CUDA graph, no other may use
    the GPU; so if threads share a GPU, all take plain steps, which give the same bits. Threads are assigned
    to GPUs in turn, so none is shared unless threads outnumber GPUs.

    Args:
        run_config: the run's options, flat.
        workers: requested number of threads; None for one per core or GPU.
        clients: number of clients of one engine in this process.
        grids: engines side by side in this process, which share its threads; each gets at least one.

    Raises:
        ConfigError: train.device is "cuda", but there is no GPU.
    """
    device = choose_device(str(run_config.get("train.device", "auto")))
    on_gpu = device.type == "cuda"
    num_processors = torch.cuda.device_count() if on_gpu else available_cores()
    default_count = max(1, num_processors // int(run_config.get("train.processes", 1)))
    count = min(max(1, (workers or default_count) // grids), clients)
    shares_gpu = on_gpu and count * grids > num_processors
    return count, {**run_config, "train.cuda-graph": "off"} if shares_gpu else run_config
