"""Choice of cores or GPU for a run's clients: by measured speeds, or else by the arithmetic of a step.

On a GPU, a step of a small network takes as long as one of a network a hundred times larger, because its
kernels wait for Python or for one another. On the cores of a machine, clients train side by side. So cores
are faster below some size of the network, and the GPU above it.

Without a measurement, a GPU pays if a step's products have at least a certain number of billion operations
per core that trains at the same time. The threshold is the arithmetic that one core does while a GPU takes a
small network's step; PyTorch does 80 billion operations a second on a core (docs/gpu.md: 24.4 billion of the
table's third network in 246 ms, 22.5 of its fourth in 365 ms). A plain step takes 3 to 6 ms, as does one with
cuDNN's convolutions in time, in a fixed order: `FROM_GFLOP`. One recorded as a graph takes 0.9 ms, with the
recording in a call of 50 steps: `RECORDED_FROM_GFLOP`.

Measurements of `fedge doctor --gpu` are kept in ``$XDG_STATE_HOME/fedge/device-speeds.json`` (otherwise
``~/.local/state``), keyed by everything they depend on.
"""

import hashlib
import json
import math
import platform
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.flop_counter import FlopCounterMode

from fedge.config.registers.failing import own_errors
from fedge.config.registers.option import ConfigError
from fedge.config.registers.own_places import own_place
from fedge.config.sections.train import TrainConfig
from fedge.process.durable import write_bytes
from fedge.process.resources.threads import available_cores
from fedge.process.versions import versions
from fedge.training.settings import LocalTraining
from fedge.training.sgd import pays_recording
from hhar.quantity import quantity

CORES, GPU = "cpu", "cuda"
FROM_GFLOP, RECORDED_FROM_GFLOP = 0.5, 0.08  # per core
_PASSES = 3  # forward, and two products of its size in the backward pass
_WINDOWS = 2  # of the counted pass
_MOST = 200  # measurements kept
_LARGEST = 2**20  # bytes of the file
_OPTIONS = (
    "batch_size", "precision", "kernel", "threads", "cuda_graph", "optimizer", "task", "loss", "augment",
    "clip_norm", "momentum",
)  # fmt: skip


@dataclass(frozen=True)
class StepSpeeds:
    """Steps of training per second on one machine, with one network.

    Attributes:
        cores: speed of all cores together, a client on each.
        plain: speed of one GPU, one client at a time.
        graph: the same, with steps recorded as graphs.
    """

    cores: float
    plain: float
    graph: float

    @property
    def gpu(self) -> float:
        """Of one GPU, the faster way."""
        return max(self.plain, self.graph)


@dataclass(frozen=True)
class TrainingPlaces:
    """Numbers of places where a run's clients can train at the same time.

    Attributes:
        cores: number of places on cores.
        gpus: number of places on GPUs.
    """

    cores: int
    gpus: int


def chosen_device(
    places: TrainingPlaces, gflop: float | None, measured: StepSpeeds | None, is_recorded: bool = False
) -> tuple[str, str]:
    """The device for a run's clients, `CORES` or `GPU`, and the reason in words.

    Args:
        places: numbers of places for clients' training.
        gflop: billions of operations in a step's products; None if they cannot be counted.
        measured: speeds of this network on this machine; None if they have not been measured.
        is_recorded: a GPU records steps as graphs; see `would_record`.

    >>> chosen_device(TrainingPlaces(16, 1), 0.3, None)[0]
    'cpu'
    >>> chosen_device(TrainingPlaces(16, 1), 24.4, StepSpeeds(cores=900.0, plain=200.0, graph=400.0))[0]
    'cpu'
    """
    if measured is not None:
        cores = measured.cores * min(1.0, places.cores / available_cores())
        gpu = measured.gpu * places.gpus
        basis = f"as fedge doctor --gpu measured here: {cores:,.0f} steps per second on cores, {gpu:,.0f} on "
        return (GPU if gpu > cores else CORES), basis + _gpu_count(places.gpus)
    if gflop is None:
        return GPU, "a step's arithmetic cannot be counted"
    threshold = (RECORDED_FROM_GFLOP if is_recorded else FROM_GFLOP) * places.cores / places.gpus
    device, relation = (GPU, "at least") if gflop >= threshold else (CORES, "less than")
    return device, (
        f"a step has {gflop:.2g} billion operations, {relation} the {threshold:.3g} from which "
        f"{_gpu_count(places.gpus)} should outdo {quantity(places.cores, 'core')}; "
        f"fedge doctor --gpu measures it"
    )


def _gpu_count(count: int) -> str:
    return "a GPU" if count == 1 else f"{count} GPUs"


def would_record(model: nn.Module, settings: LocalTraining, windows: int) -> bool:
    """Whether a GPU would record a client's steps on `windows` windows as a graph, and run them fast.

    Steps with random draws are not recorded, because a graph would repeat the draws. cuDNN's convolution over
    time is slow in a fixed order of sums; Fedge's own networks use matrix products instead.
    """
    layers = list(model.modules())
    draws = any(isinstance(layer, _DropoutNd) and layer.p > 0 for layer in layers) or any(
        isinstance(layer, nn.RNNBase | nn.MultiheadAttention) and layer.dropout > 0 for layer in layers
    )
    slow = any(type(layer) is nn.Conv1d for layer in layers)
    return pays_recording(settings, windows) and not draws and not slow


def step_gflop(model: nn.Module, input_shape: tuple[int, ...], batch: int, *, tokens: bool) -> float | None:
    """Billions of floating-point operations in the products of a training step; None if the model fails.

    Convolutions, matrix products, attention and the products of recurrent layers are counted in a forward
    pass, times three. The model's statistics and mode may change.

    Args:
        model: model on the CPU.
        input_shape: shape of one window, (C, T), (C, H, W) or (T,).
        batch: windows per step.
        tokens: inputs are int64.
    """
    kind = torch.int64 if tokens else torch.float32
    counter = FlopCounterMode(display=False)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of oneDNN's switches
            with torch.backends.mkldnn.flags(enabled=False), counter:  # else an LSTM is one operation
                model(torch.zeros(_WINDOWS, *input_shape, dtype=kind))
    except own_errors():  # a user's network may refuse zeros
        return None
    return counter.get_total_flops() * _PASSES * batch / _WINDOWS / 1e9


# --- stored measurements ---------------------------------------------------------------------------


def setting(model: nn.Module, input_shape: tuple[int, ...], config: TrainConfig) -> dict[str, Any]:
    """Everything a measurement depends on: network, options of the step, versions, processor and GPU."""
    installed = versions()
    return {
        "network": hashlib.sha256(_network_text(model).encode()).hexdigest()[:16],
        "input": list(input_shape),
        **{name: getattr(config, name) for name in _OPTIONS},
        "fedge": installed.get("fedge", ""),
        "torch": installed.get("torch", ""),
        "cuda": str(torch.version.cuda),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        "cores": available_cores(),
        "processor": _processor_name(),
    }


def _network_text(model: nn.Module) -> str:
    """Layers, and the shapes of all entries."""
    return f"{model}" + "".join(f"{name}{tuple(entry.shape)}" for name, entry in model.state_dict().items())


def _processor_name() -> str:
    """Name of the processor, if the system gives one."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor()


def speeds_file() -> Path:
    """The file of this user's measurements."""
    return own_place("XDG_STATE_HOME", ".local", "state") / "fedge" / "device-speeds.json"


def keep_speeds(conditions: Mapping[str, Any], speeds: StepSpeeds) -> None:
    """Keep a measurement in the file, if it can be written.

    Args:
        conditions: its `setting`.
        speeds: measured.
    """
    measurements = {
        **_load_measurements(),
        _digest(conditions): {**asdict(speeds), "about": dict(conditions)},
    }
    newest = dict(list(measurements.items())[-_MOST:])
    with suppress(OSError, ConfigError):
        path = speeds_file()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_bytes(path, json.dumps(newest, indent=1).encode(), durably=False)


def recorded_speeds(conditions: Mapping[str, Any]) -> StepSpeeds | None:
    """The measurement of a `setting`; None if there is none, or the file is damaged."""
    entry = _load_measurements().get(_digest(conditions))
    numbers: list[Any] = (
        [entry.get(field.name) for field in fields(StepSpeeds)] if isinstance(entry, dict) else []
    )
    if not numbers or not all(type(n) is float and math.isfinite(n) and n > 0 for n in numbers):
        return None
    return StepSpeeds(*numbers)


def _digest(conditions: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(dict(conditions), sort_keys=True).encode()).hexdigest()[:24]


def _load_measurements() -> dict[str, Any]:
    """All measurements, oldest first; empty if there is no such file, or it is damaged."""
    with suppress(OSError, ValueError, RecursionError):
        with speeds_file().open("rb") as file:
            text = file.read(_LARGEST + 1)
        measurements = json.loads(text) if len(text) <= _LARGEST else None
        return measurements if isinstance(measurements, dict) else {}
    return {}
