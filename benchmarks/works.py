"""Works of the contests: plain networks, shapes of generated data, clients and their windows.

    home     `cnn-pool` on 5,500 / 1,138 / 1,046 windows of 6 × 128 per leaf, 23,052 in all
    mnist    two 3 × 3 convolutions 32, 64 and a layer of 128 on 2,000 images of 28 × 28 a client
    gru      a GRU of 64 on 1,000 windows of 6 × 128 a client
    resnet   eight blocks of 32 to 256 channels on 200 images of 3 × 32 × 32 a client

Nine clients under three leaves; batches of 32, SGD with momentum .9. Data are noise in which the class
shifts all numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.engines import write_windows
from benchmarks.step import CHANNELS, CLASSES, SAMPLES, SETTINGS, flop_per_window, plain_network
from hhar.windows.window_file import load_windows, save_windows

CLIENTS = 9
LEAF_WINDOWS = (5500, 1138, 1046)
HELD_OUT = 12  # windows of each client's validation and test splits in contests without evaluation
DEFAULT_SPLIT = 3 / 14  # of the training windows: 15 % validate and 15 % test


class Mnist(nn.Sequential):
    """Two convolutions and two linear layers, as in many tutorials."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        channels, height, width = input_shape
        features = 64 * ((height - 4) // 2) * ((width - 4) // 2)
        super().__init__(
            *(nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(features, 128), nn.ReLU(), nn.Linear(128, classes)),
        )


class Gru(nn.Module):
    """GRU reading a window step by step; its last state determines the class."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.gru = nn.GRU(input_shape[0], 64, batch_first=True)
        self.head = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, T) → (N, classes)."""
        return self.head(self.gru(x.transpose(1, 2))[0][:, -1])


class Block(nn.Module):
    """Two convolutions with BatchNorm, and a shortcut past them (He et al. 2016)."""

    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            *(nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()),
            *(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)),
        )
        self.past = nn.Identity()
        if stride != 1 or channels != out:
            self.past = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, out, H / stride, W / stride)."""
        return torch.relu(self.inner(x) + self.past(x))


class Resnet(nn.Sequential):
    """Eight blocks, two each of 32, 64, 128 and 256 channels."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        stem = (nn.Conv2d(input_shape[0], 32, 3, 1, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        blocks, channels = [], 32
        for out in (32, 64, 128, 256):
            for number in range(2):
                blocks.append(Block(channels, out, 2 if out > 32 and number == 0 else 1))
                channels = out
        head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, classes))
        super().__init__(*stem, *blocks, *head)


@dataclass(frozen=True)
class Work:
    """Work that all contestants of a contest train.

    Attributes:
        name, about: name and description for tables.
        shape: shape of a window, without the axis of windows.
        classes: number of classes.
        sizes: training windows of each client.
        make: plain PyTorch network: (shape, classes) → network.
        model: `train.model` with the same network.
        aims: contestant → largest acceptable ratio to the pool.
    """

    name: str
    about: str
    shape: tuple[int, ...]
    classes: int
    sizes: tuple[int, ...]
    make: Callable[[tuple[int, ...], int], nn.Module]
    model: str
    aims: dict[str, float]

    def network(self) -> nn.Module:
        """A new network."""
        return self.make(self.shape, self.classes)

    def write(self, path: Path, evaluated: bool = False) -> None:
        """Write the window file; if the work is evaluated, with the default shares held out."""
        held_out = [
            max(self.classes, round(DEFAULT_SPLIT * size)) if evaluated else HELD_OUT for size in self.sizes
        ]
        channels = self.shape[0]
        samples = int(np.prod(self.shape[1:]))
        write_windows(path, self.sizes, held_out, channels, samples, self.classes)
        if len(self.shape) == 3:
            _reshape_to_images(path, self.shape)

    def flop_per_window(self) -> float:
        """Multiplications and additions of a window's training step; see `benchmarks.step`."""
        return (
            flop_per_window("cnn-pool") if self.name == "home" else measured_flop(self.network(), self.shape)
        )


def _reshape_to_images(path: Path, shape: tuple[int, ...]) -> None:
    """Write windows (C, H · W) again as images (C, H, W)."""
    windows = load_windows(str(path))
    save_windows(path, type(windows)(**{**vars(windows), "x": windows.x.reshape(len(windows.y), *shape)}))


def measured_flop(network: nn.Module, shape: tuple[int, ...]) -> float:
    """Multiplications and additions of one window in layers with matrices, forward and backward.

    Backward counts twice forward, less the gradient with respect to the network's input, which is not needed.
    """
    flops: list[float] = []
    input_flops: list[float] = []  # for products with the layer's input

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: object) -> None:
        sizes = {name: p.numel() for name, p in layer.named_parameters(recurse=False) if "weight" in name}
        weights = sum(sizes.values())
        times = inputs[0].shape[1] if isinstance(layer, nn.GRU) else 1
        if isinstance(layer, nn.Conv2d):
            assert isinstance(output, Tensor)
            times = output[0, 0].numel()
        flops.append(2.0 * weights * times)
        input_flops.append(2.0 * sizes.get("weight_ih_l0", weights) * times)

    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear, nn.GRU)):
            layer.register_forward_hook(note)
    network.eval()(torch.zeros(1, *shape))
    return 3 * sum(flops) - input_flops[0]


HOME = Work(
    "home", "cnn-pool on windows of 6 × 128", (CHANNELS, SAMPLES), CLASSES,
    tuple(total // 3 + (client < total % 3) for total in LEAF_WINDOWS for client in range(3)),
    lambda shape, classes: plain_network("cnn-pool"), "cnn-pool", {},
)  # fmt: skip
WORKS = {
    work.name: work
    for work in (
        HOME,
        Work(
            "mnist", "two convolutions on images of 28 × 28", (1, 28, 28), 10, (2000,) * CLIENTS, Mnist,
            "benchmarks.works:Mnist",
            {"fedge in process": 1.0, "fedge on ray": 1.05, "fedge in process, native": 0.5},
        ),
        Work(
            "gru", "a GRU of 64 on windows of 6 × 128", (6, 128), 6, (1000,) * CLIENTS, Gru,
            "benchmarks.works:Gru",
            {"fedge in process": 1.0, "fedge on ray": 1.05, "fedge in process, native": 0.4},
        ),
        Work(
            "resnet", "eight residual blocks on images of 3 × 32 × 32", (3, 32, 32), 10, (200,) * CLIENTS,
            Resnet, "benchmarks.works:Resnet",
            {"fedge in process": 1.0, "fedge on ray": 1.05, "fedge in process, native": 0.85},
        ),
    )
}  # fmt: skip
__all__ = ["HELD_OUT", "HOME", "LEAF_WINDOWS", "SETTINGS", "WORKS", "Work"]
