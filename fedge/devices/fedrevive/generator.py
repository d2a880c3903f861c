"""Network from noise to windows, for distillation without data.

Shape letters: N windows, C channels, T samples, Z latent numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedge.training.networks.models import initialised

_LARGEST = 4.0  # bound of generated numbers: windows are normalised
OUTPUTS = ("tanh", "sigmoid")


@dataclass(frozen=True)
class Size:
    """Size of a generator; by default as in FedRevive's code, except for the output.

    Attributes:
        latent: number of latent numbers, Z.
        width: channels of its last hidden layer; the one before has twice as many.
        output: "tanh", 4 tanh(x / 4), for windows of mean 0 and variance 1; "sigmoid", 0..1, as in
            FedRevive's code, for unnormalised images.
    """

    latent: int = 256
    width: int = 128
    output: str = "tanh"


class Generator(nn.Module):
    """Linear; twice upsampled by 2, convolved, BatchNorm, LeakyReLU; then a convolution and the output.

    The shape follows the generator for images in FedRevive's code (Askin et al. 2025; NVFlare,
    research/fedrevive/dfkd.py), with convolutions along time for windows. Used in training mode only.
    """

    def __init__(self, input_shape: Sequence[int], size: Size) -> None:
        """Generator of windows (C, T), or images (C, H, W), of this shape."""
        super().__init__()
        self._size, wide = size, 2 * size.width
        channels, *sizes = input_shape
        is_image = len(sizes) == 2
        conv, norm = (nn.Conv2d, nn.BatchNorm2d) if is_image else (nn.Conv1d, nn.BatchNorm1d)
        self._sizes = [[-(-size // part) for size in sizes] for part in (4, 2, 1)]
        self.first = nn.Linear(size.latent, wide * math.prod(self._sizes[0]))
        self.norm1 = norm(wide)
        self.conv1 = conv(wide, wide, 3, padding=1, bias=False)
        self.norm2 = norm(wide)
        self.conv2 = conv(wide, size.width, 3, padding=1, bias=False)
        self.norm3 = norm(size.width)
        self.conv3 = conv(size.width, channels, 3, padding=1)

    def forward(self, noise: Tensor) -> Tensor:
        """(N, Z) → (N, C, T)."""
        small, half, full = self._sizes
        x = self.norm1(self.first(noise).view(len(noise), 2 * self._size.width, *small))
        x = F.leaky_relu(self.norm2(self.conv1(F.interpolate(x, size=half))), 0.2)
        x = F.leaky_relu(self.norm3(self.conv2(F.interpolate(x, size=full))), 0.2)
        output: Tensor = self.conv3(x)
        if self._size.output == "sigmoid":
            return torch.sigmoid(output)
        return _LARGEST * torch.tanh(output / _LARGEST)


def new_generator(input_shape: Sequence[int], draws: torch.Generator, size: Size | None = None) -> Generator:
    """A generator with weights drawn from `draws`."""
    with torch.device("meta"):
        generator = Generator(input_shape, size or Size())
    return initialised(generator, draws)
