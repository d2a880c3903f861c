"""A network of a user's that keeps statistics of the windows that it has seen, by code of its own."""

import torch
from torch import nn


class OwnStatistics(nn.Module):
    """A linear model whose buffer moves with the mean of its inputs, in training."""

    def __init__(self, input_shape, classes):
        super().__init__()
        self.head = nn.Linear(input_shape[0], classes)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.seen.mul_(0.9).add_(0.1 * x.detach().mean())
        return self.head(x.mean(dim=2))
