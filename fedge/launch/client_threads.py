"""How many threads train clients in this process: one per core, or one per GPU."""

from collections.abc import Mapping
from typing import Any

import torch

from fedge.client_app import choose_device
from fedge.process.threads import available_cores


def client_threads(
    run_config: Mapping[str, Any], workers: int | None, clients: int, grids: int = 1
) -> tuple[int, Mapping[str, Any]]:
    """How many clients train at a time, and the options as they are told to.

    By default one per core, or one per GPU: several threads on one GPU wait for each other. While one of
    them records a step as a graph, no other may use that GPU; so where threads share one, all take plain
    steps, which give the same bits. Threads take turns at the GPUs: no more of them than GPUs share none.

    Args:
        run_config: of the run.
        workers: as asked for; None for as many as there is room for.
        clients: that one engine of this process has.
        grids: engines that this process has side by side, which share its threads; each has at least one.

    Raises:
        ConfigError: train.device is "cuda", but there is no GPU.
    """
    device = choose_device(str(run_config.get("train.device", "auto")))
    on_gpu = device.type == "cuda"
    places = torch.cuda.device_count() if on_gpu else available_cores()
    room = max(1, places // int(run_config.get("train.processes", 1)))
    count = min(max(1, (workers or room) // grids), clients)
    share_one = on_gpu and count * grids > places
    return count, {**run_config, "train.cuda-graph": "off"} if share_one else run_config
