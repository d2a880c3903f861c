"""A GPU against one core: ms per training step, with and without recording the step as a graph.

    python -m benchmarks.kernels.gpu [MODEL …]
    python -m benchmarks.kernels.gpu --machine [MODEL …]

For each network (by default Fedge's two for windows, a convolutional one with 256 channels, four encoder
layers of attention, and those of `benchmarks.works`: images and a GRU) and precision: 5 epochs of 16 steps of
32 windows of 6 × 128, or of 32 images, by `fedge.training.local.train`, medians of three; one core runs a
single epoch. It also reports whether two trainings and both ways give the same bits, and the distance of the
weights from a CPU's after an epoch. With --machine, it measures steps per second of the whole machine
instead, like `fedge doctor --gpu`: a client on each core (native step if possible), one on the GPU without
and with graphs, eight clients one after another and batched; and reports the choice of `train.device =
"auto"`. Needs a GPU; stores nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.step import BATCH, CHANNELS, CLASSES, SAMPLES, SETTINGS
from benchmarks.works import WORKS
from fedge.doctor.gpu_speeds import CLIENTS, Subject, batched_speeds, speeds_of
from fedge.process.resources.threads import available_cores
from fedge.training.device_speeds import TrainingPlaces, chosen_device, step_gflop, would_record
from fedge.training.gpu import BF16, FLOAT32, TF32, settle_gpus
from fedge.training.local import train
from fedge.training.networks.models import build_model
from fedge.training.networks.module_state import State, get_state, load_state

STEPS, EPOCHS, REPEATS = 16, 5, 3
TRAINING = replace(SETTINGS, lr=0.05, clip_norm=1.0, label_smoothing=0.1, epochs=EPOCHS)
OWN = ("cnn", "cnn-pool", "wide", "attention")
OTHERS = {name: work for name, work in WORKS.items() if name != "home"}
MODELS = (*OWN, *OTHERS)


class Wide(nn.Sequential):
    """Four convolutions with 256 channels and BatchNorm."""

    def __init__(self) -> None:
        sizes = (CHANNELS, 256, 256, 256, 256)
        blocks = [
            layer
            for inputs, outputs in pairwise(sizes)
            for layer in (nn.Conv1d(inputs, outputs, 5, padding=2), nn.BatchNorm1d(outputs), nn.ReLU())
        ]
        super().__init__(*blocks, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(sizes[-1], CLASSES))


class Attention(nn.Module):
    """Four encoder layers of 128 numbers per time step."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(CHANNELS, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(128, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(x.transpose(1, 2))).mean(dim=1))


def network(name: str) -> nn.Module:
    """A network with the same weights at every call."""
    torch.manual_seed(1)
    if name in OTHERS:
        return OTHERS[name].network()
    if name in ("wide", "attention"):
        return Wide() if name == "wide" else Attention()
    return build_model(name, (CHANNELS, SAMPLES), CLASSES, torch.Generator().manual_seed(1))


def shape_of(name: str) -> tuple[int, ...]:
    """Shape of a network's input, without the axis of windows."""
    return OTHERS[name].shape if name in OTHERS else (CHANNELS, SAMPLES)


def data(name: str) -> tuple[Tensor, Tensor]:
    """Noise and labels for an epoch of a network: x (N, …), y (N,)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(STEPS * BATCH, *shape_of(name), generator=generator)
    return x, torch.randint(0, CLASSES, (STEPS * BATCH,), generator=generator)


class Contest:
    """One network on both devices, from one state."""

    def __init__(self, name: str) -> None:
        self._x, self._y = data(name)
        self._models = {device: network(name).to(device) for device in ("cpu", "cuda")}
        self._start = get_state(self._models["cpu"])

    def trained(self, device: str, **changes: Any) -> State:
        """The state after training."""
        model = self._models[device]
        load_state(model, self._start)
        settings = replace(TRAINING, **changes)
        return train(model, self._x, self._y, settings, torch.Generator().manual_seed(3)).state

    def on_cpu(self) -> tuple[float, State]:
        """ms per step of one core, and the state after an epoch."""
        start = time.perf_counter()
        state = self.trained("cpu", epochs=1)
        return (time.perf_counter() - start) / STEPS * 1e3, state

    def on_gpu(self, cpu: State, precision: str) -> dict[str, float | bool]:
        """ms per step both ways, whether all bits are equal, and the largest distance to `cpu`."""
        settle_gpus(precision)
        run = partial(self.trained, "cuda", precision=precision)
        recorded = [run() for _ in range(2)]
        states = [*recorded, run(cuda_graph=False)]
        one_epoch = run(epochs=1)
        return {
            "graph": self._measure_ms(run),
            "plain": self._measure_ms(lambda: run(cuda_graph=False)),
            "same": all(same(states[0], other) for other in states[1:]),
            "distance": max(float(np.abs(one_epoch[name] - array).max()) for name, array in cpu.items()),
        }

    @staticmethod
    def _measure_ms(work: Callable[[], object]) -> float:
        """Median ms per step; training ends with the weights on the host, so no work is pending."""
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
        return float(np.median(seconds)) / (STEPS * EPOCHS) * 1e3


def same(state: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    """Whether two states are the same, bit by bit."""
    return all(np.array_equal(array, other[name]) for name, array in state.items())


def machine_line(name: str) -> str:
    """Steps per second of the machine in all ways, and the choice of `auto`, in a line."""
    settle_gpus(FLOAT32)
    subject = Subject(lambda: network(name), *data(name), replace(TRAINING, kernel="auto"))
    speeds = speeds_of(subject)
    gflop = step_gflop(network(name), shape_of(name), BATCH, tokens=False)
    is_recorded = would_record(network(name), TRAINING, STEPS * BATCH)
    rule, _ = chosen_device(TrainingPlaces(available_cores(), 1), gflop, None, is_recorded)
    line = (
        f"{name:10} {gflop:6.2f} GFLOP   {available_cores()} cores {speeds.cores:8.0f}   GPU plain "
        f"{speeds.plain:7.0f}   graph {speeds.graph:7.0f}   auto's rule: {rule}"
    )
    try:
        batched = batched_speeds(subject)
    except RuntimeError as error:
        return f"{line}   batched: {str(error).splitlines()[0][:120]}"
    return (
        f"{line}   {CLIENTS} clients in turn {batched.in_turn:7.0f}   batched {batched.batched:7.0f}   "
        f"recorded {batched.recorded:7.0f}   distance {batched.distance:.1e}   same bits: {batched.is_same}"
    )


def main() -> None:
    """Command line."""
    if not torch.cuda.is_available():
        sys.exit("benchmarks.kernels.gpu: this machine has no GPU that PyTorch can use")
    torch.set_num_threads(1)
    arguments = sys.argv[1:]
    if arguments[:1] == ["--machine"]:
        for name in arguments[1:] or (*MODELS, "linear"):
            print(machine_line(name), flush=True)
        return
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; ms per step of {BATCH} windows")
    for name in arguments or MODELS:
        contest = Contest(name)
        contest.on_cpu()
        cpu_ms, cpu = contest.on_cpu()
        for precision in (FLOAT32, TF32, BF16):
            result = contest.on_gpu(cpu, precision)
            print(
                f"{name:10} {precision:8} one core {cpu_ms:7.2f}   plain {result['plain']:7.3f}   "
                f"graph {result['graph']:7.3f}   same bits: {result['same']}   "
                f"distance {result['distance']:.1e}",
                flush=True,
            )


if __name__ == "__main__":
    main()
