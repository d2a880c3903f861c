"""A network with a frozen first layer and a BatchNorm whose statistics move, and a method that thaws it."""

import torch.nn.functional as F
from torch import nn

from fedge.algorithm import Algorithm


class HalfFrozen(nn.Module):
    """2 × 16 inputs → 8 (frozen: 264 numbers) → BatchNorm → classes."""

    def __init__(self, input_shape, classes):
        super().__init__()
        self.hidden = nn.Linear(input_shape[0] * input_shape[1], 8).requires_grad_(False)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        return self.head(F.relu(self.norm(self.hidden(x.flatten(1)))))


class HalfFrozenPlain(HalfFrozen):
    """The same without BatchNorm."""

    def __init__(self, input_shape, classes):
        super().__init__(input_shape, classes)
        self.norm = nn.Identity()


class Thawing(Algorithm):
    """Changes what is frozen, which then would not be sent."""

    def train(self, client):
        fit = client.fit()
        fit.state["hidden.weight"] = fit.state["hidden.weight"] + 1
        return fit
