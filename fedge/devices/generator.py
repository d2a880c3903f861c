"""A network that makes windows out of noise, for distillation without data (`fedge.devices.distillation`).

Shape letters: N windows, C channels, T samples, Z latent numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedge.training.models import initialised

LATENT = 64  # Z
_WIDTH = 32  # channels of its last hidden layer; twice as many before
_LARGEST = 4.0  # of the made numbers: windows are normalised


class Generator(nn.Module):
    """Linear; twice stretched by 2, convolved, BatchNorm, LeakyReLU; then a convolution and 4 tanh(x / 4).

    The shape is that of the generator for images in FedRevive's code (Askin et al. 2025; NVFlare,
    research/fedrevive/dfkd.py), with convolutions along time for windows. It is used in training mode alone.
    """

    def __init__(self, input_shape: Sequence[int]) -> None:
        """Make windows (C, T), or images (C, H, W), of this shape."""
        super().__init__()
        channels, *sizes = input_shape
        is_image = len(sizes) == 2
        conv, norm = (nn.Conv2d, nn.BatchNorm2d) if is_image else (nn.Conv1d, nn.BatchNorm1d)
        self._sizes = [[-(-size // part) for size in sizes] for part in (4, 2, 1)]
        self.first = nn.Linear(LATENT, 2 * _WIDTH * math.prod(self._sizes[0]))
        self.norm1 = norm(2 * _WIDTH)
        self.conv1 = conv(2 * _WIDTH, 2 * _WIDTH, 3, padding=1, bias=False)
        self.norm2 = norm(2 * _WIDTH)
        self.conv2 = conv(2 * _WIDTH, _WIDTH, 3, padding=1, bias=False)
        self.norm3 = norm(_WIDTH)
        self.conv3 = conv(_WIDTH, channels, 3, padding=1)

    def forward(self, noise: Tensor) -> Tensor:
        """(N, Z) → (N, C, T)."""
        small, half, whole = self._sizes
        x = self.norm1(self.first(noise).view(len(noise), 2 * _WIDTH, *small))
        x = F.leaky_relu(self.norm2(self.conv1(F.interpolate(x, size=half))), 0.2)
        x = F.leaky_relu(self.norm3(self.conv2(F.interpolate(x, size=whole))), 0.2)
        return _LARGEST * torch.tanh(self.conv3(x) / _LARGEST)


def new_generator(input_shape: Sequence[int], draws: torch.Generator) -> Generator:
    """Return a generator with weights from `draws`."""
    with torch.device("meta"):
        made = Generator(input_shape)
    return initialised(made, draws)
