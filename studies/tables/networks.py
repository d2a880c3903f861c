"""The networks of papers whose tables are repeated, for images and for series."""

from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn


class NiidCnn(nn.Module):
    """Conv(6, 5×5)–ReLU–MaxPool(2), Conv(16, 5×5)–ReLU–MaxPool(2), Linear 120–84–10.

    44,426 weights for MNIST.

    Source: Li, Diao, Chen, He 2022 (NIID-Bench), the simple CNN, as Flower's baseline has it.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        """Fit images (C, H, W), at least 16 × 16."""
        super().__init__()
        self.conv1 = nn.Conv2d(input_shape[0], 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.hidden1 = nn.Linear(16 * _twice_halved(input_shape), 120)
        self.hidden2 = nn.Linear(120, 84)
        self.head = nn.Linear(84, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, classes)."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.hidden2(F.relu(self.hidden1(x.flatten(1)))))
        return cast(Tensor, self.head(x))


class HierLeNet(nn.Module):
    """Conv(10, 5×5)–MaxPool(2)–ReLU, Conv(20, 5×5)–Dropout–MaxPool(2)–ReLU, Linear 50, dropout, head.

    21,840 weights for MNIST. Source: the public code of Liu, Zhang, Song, Letaief 2020 (HierFAVG).
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, dropout: float = 0.5) -> None:
        """Fit images (C, H, W), at least 16 × 16, with a share of channels and of hidden units dropped."""
        super().__init__()
        self.conv1 = nn.Conv2d(input_shape[0], 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.drop = nn.Dropout2d(dropout)
        self.hidden = nn.Linear(20 * _twice_halved(input_shape), 50)
        self.rest = nn.Dropout(dropout)
        self.head = nn.Linear(50, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, classes)."""
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.drop(self.conv2(x)), 2))
        x = self.rest(F.relu(self.hidden(x.flatten(1))))
        return cast(Tensor, self.head(x))


class ChapterCnn(nn.Module):
    """Conv(64, 5×5)–ReLU–MaxPool(2) twice, Linear 384–192–10: 797,962 weights for CIFAR-10.

    Source: satwatbashir/baselines 103bbb85.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        """Fit images (C, H, W), at least 16 × 16."""
        super().__init__()
        self.conv1 = nn.Conv2d(input_shape[0], 64, 5)
        self.conv2 = nn.Conv2d(64, 64, 5)
        self.hidden1 = nn.Linear(64 * _twice_halved(input_shape), 384)
        self.hidden2 = nn.Linear(384, 192)
        self.head = nn.Linear(192, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, classes)."""
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.hidden2(F.relu(self.hidden1(x.flatten(1)))))
        return cast(Tensor, self.head(x))


class Hidden200(nn.Module):
    """Linear 200–ReLU, head: 159,010 weights for MNIST. Source: Ghosh et al. 2020 (IFCA), section 6."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        """Fit inputs of any shape."""
        super().__init__()
        count = 1
        for side in input_shape:
            count *= side
        self.hidden = nn.Linear(count, 200)
        self.head = nn.Linear(200, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, …) → (N, classes)."""
        return cast(Tensor, self.head(F.relu(self.hidden(x.flatten(1)))))


class SensorGru(nn.Module):
    """GRU(32) over time, head on its last state: for windows of sensors."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        """Fit series (C, T)."""
        super().__init__()
        self.gru = nn.GRU(input_shape[0], 32, batch_first=True)
        self.head = nn.Linear(32, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, T) → (N, classes)."""
        states, _ = self.gru(x.transpose(1, 2))
        return cast(Tensor, self.head(states[:, -1]))


def _twice_halved(input_shape: tuple[int, ...]) -> int:
    """Pixels left by two valid 5 × 5 convolutions, each followed by pooling by 2."""
    count = 1
    for side in input_shape[1:]:
        count *= ((side - 4) // 2 - 4) // 2
    return count
