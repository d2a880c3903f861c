"""Memory of one client of a run, measured with its own model and the largest client's windows.

A separate process does a worker's work once: it loads PyTorch and Flower, builds the network, trains an epoch
and evaluates. Its peak is that of a Ray worker, and its growth that of a thread in process.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from fedge.config.registers.option import ConfigError
from fedge.config.registers.register import add_search_folders, search_folders
from fedge.engine.federation import Federation
from fedge.process.python import python_words

_MIB = 2**20
_CONTEXT_MIB = 500.0  # CUDA's own, in every process with a GPU
_LIMIT_S = 600.0


@dataclass(frozen=True)
class ClientMemory:
    """Memory of one client.

    Attributes:
        process_mib: peak resident MiB of a worker process training it.
        client_mib: MiB of this added by training.
        gpu_mib: peak MiB on its GPU, including CUDA's own; 0 for training on the CPU.
        windows: training windows of the largest client.
        clients: number of clients of the run.
    """

    process_mib: float
    client_mib: float
    gpu_mib: float
    windows: int
    clients: int


def measure_client(run_config: Mapping[str, Any], federation: Federation) -> ClientMemory:
    """Measure a client of a run; takes some seconds.

    Args:
        run_config: all options.
        federation: federation of the run.

    Raises:
        ConfigError: the run cannot work, or the measuring process failed; the message has its error.
    """
    request = {"run_config": dict(run_config), "clients": federation.num_supernodes}
    request |= {"is_default": federation.is_default, "look_in": search_folders()}
    result = subprocess.run(
        python_words("-m", __name__), input=json.dumps(request), capture_output=True, text=True,
        errors="replace", timeout=_LIMIT_S, check=False,
    )  # fmt: skip
    if result.returncode:
        message = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
        raise ConfigError(message.removeprefix("fedge: "))
    return ClientMemory(**json.loads(result.stdout.splitlines()[-1]))


def main() -> None:
    """Measure in this process: options on standard input, the result on standard output."""
    request = json.load(sys.stdin)
    try:
        print(json.dumps(asdict(_measure(request))))
    except ConfigError as error:
        sys.exit(f"fedge: {error}")


def _measure(request: Mapping[str, Any]) -> ClientMemory:
    """Train and evaluate once as a worker would."""
    from dataclasses import replace

    import torch

    from fedge.client_app import choose_device
    from fedge.data.prepared import as_float
    from fedge.launch.preflight import check
    from fedge.tasks.configured import task_of
    from fedge.training.evaluation import evaluate
    from fedge.training.gpu import settle_gpus
    from fedge.training.local import train
    from fedge.training.networks.fitting import fit_of
    from fedge.training.networks.models import build_model
    from fedge.training.schedule import local_training

    add_search_folders(*request["look_in"])
    federation = Federation(request["clients"], is_default=request["is_default"])
    prepared = check({**request["run_config"], "run-name": "", "resume": ""}, federation)
    assert prepared.deal is not None
    deal, config = prepared.deal.take(), prepared.config.train
    train_parts = [part[0] for part in deal.partition.clients]
    largest = max(train_parts, key=len)
    x = torch.from_numpy(as_float(deal.windows.x[largest]))
    y = torch.from_numpy(deal.windows.y[largest])
    shape, classes, clients = deal.windows.x.shape[1:], len(deal.windows.classes), len(train_parts)
    del deal, prepared, train_parts
    baseline = _reset_peak()
    device = choose_device(config.device)
    fit = fit_of(config, classes, tuple(y.shape[1:]), tokens=x.dtype == torch.int64)
    model = build_model(config.model, shape, classes, torch.Generator(), config.arguments("model"), fit)
    if device.type == "cuda":
        settle_gpus(config.precision)
    model = model.to(device)
    settings = local_training(config, 1)
    epochs = epochs_to_measure(len(y), settings.batch_size, settings.epochs) if device.type == "cuda" else 1
    train(model, x, y, replace(settings, epochs=epochs), torch.Generator().manual_seed(0))
    evaluate(model, x, y, threads=config.threads, task=task_of(config))
    gpu = torch.cuda.max_memory_reserved() / _MIB + _CONTEXT_MIB if device.type == "cuda" else 0.0
    peak = _peak()
    return ClientMemory(peak, max(peak - baseline, 1.0), gpu, len(largest), clients)


def epochs_to_measure(windows: int, batch_size: int, epochs: int) -> int:
    """Epochs after which a GPU step is recorded as a CUDA graph if the run records it: a graph keeps memory.

    >>> epochs_to_measure(windows=320, batch_size=32, epochs=5)  # 10 batches in each
    3
    """
    from fedge.training.sgd import GRAPH_FROM

    batches = windows // batch_size
    return 1 if batches * epochs < GRAPH_FROM else -(-GRAPH_FROM // batches)


def _reset_peak() -> float:
    """Reset the peak memory where the system permits it; returns the resident MiB now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return float(psutil.Process().memory_info().rss) / _MIB


def _peak() -> float:
    """Peak resident memory of this process in MiB."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (_MIB if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    main()
