"""A small network for images with BatchNorm, whose statistics FedRevive's generator is led by."""

import torch.nn.functional as F
from torch import Tensor, nn


class SmallConv(nn.Module):
    """Two Conv(3×3)–BatchNorm–ReLU–MaxPool(2) blocks of 16 and 32 channels, linear head.

    7,786 trainable parameters for (1, 14, 14) and 10 classes.
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        """Fit images (C, H, W), at least 4 × 4."""
        super().__init__()
        channels, height, width = input_shape
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(32)
        self.head = nn.Linear(32 * (height // 4) * (width // 4), classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, H, W) → (N, classes)."""
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        scores: Tensor = self.head(x.flatten(1))
        return scores
