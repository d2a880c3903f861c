"""Number of clients that fit at a time, and each client's share of CPUs and GPUs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_LEAVE_FREE = 0.8  # of available memory; the rest is for the server and other processes
_LEAVE_FREE_GPU = 0.9
_PARTS = 10_000  # Ray's resolution of shares


@dataclass(frozen=True)
class Shares:
    """CPU and GPU shares of each client.

    Attributes:
        at_a_time: clients in training at a time on this machine.
        num_cpus: CPUs per client, for ``client-resources``.
        num_gpus: share of one GPU per client; 0 without GPUs.
        per_gpu: clients at a time on one GPU; 0 without GPUs.
        limit: limiting resource: "cores", "memory" or "GPU memory".
    """

    at_a_time: int
    num_cpus: float
    num_gpus: float
    per_gpu: int
    limit: str


def shares_of(
    cores: float,
    available_mib: float,
    client_mib: float,
    gpus_mib: Sequence[float] = (),
    gpu_client_mib: float = 0.0,
    threads: int = 1,
) -> Shares:
    """Number of clients that fit at a time, and their shares.

    Args:
        cores: usable cores.
        available_mib: available memory, MiB.
        client_mib: memory of a client's process, MiB.
        gpus_mib: MiB of each GPU; the smallest counts, because a share is the same on all.
        gpu_client_mib: GPU memory of a client, MiB.
        threads: threads of a client.

    >>> shares_of(8, 16000, 500)
    Shares(at_a_time=8, num_cpus=1.0, num_gpus=0.0, per_gpu=0, limit='cores')
    >>> shares_of(8, 2000, 500)  # 80 % of the memory
    Shares(at_a_time=3, num_cpus=2.6666, num_gpus=0.0, per_gpu=0, limit='memory')
    >>> shares_of(16, 64000, 500, [8000, 8000], 1800)
    Shares(at_a_time=8, num_cpus=2.0, num_gpus=0.25, per_gpu=4, limit='GPU memory')
    """
    places = {
        "cores": math.floor(cores / threads),
        "memory": math.floor(_LEAVE_FREE * available_mib / client_mib),
    }
    if gpus_mib:
        fit = max(1, math.floor(_LEAVE_FREE_GPU * min(gpus_mib) / max(gpu_client_mib, 1.0)))
        places["GPU memory"] = fit * len(gpus_mib)
    limit = min(places, key=lambda name: places[name])
    at_a_time = max(1, places[limit])
    per_gpu = math.ceil(at_a_time / len(gpus_mib)) if gpus_mib else 0
    return Shares(
        at_a_time,
        min(_rounded_down(cores / at_a_time), cores),
        _rounded_down(1 / per_gpu) if per_gpu else 0.0,
        per_gpu,
        limit,
    )


def _rounded_down(value: float) -> float:
    """A share rounded down to four digits, so shares never add up to more than the whole."""
    return math.floor(value * _PARTS + 1e-9) / _PARTS
