"""Networks that end with softmax or a sigmoid, seen from their answers; no others are."""

import pytest
import torch
from torch import nn

from fedge.training.networks.probabilities import last_function


def network(end, outputs=3):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, outputs), end)


@pytest.mark.parametrize(
    ("end", "found"),
    [
        (nn.Softmax(1), "softmax"),
        (nn.Sigmoid(), "sigmoid"),
        (nn.Identity(), ""),
        (nn.LogSoftmax(1), ""),  # cross entropy takes it as logits
        (nn.ReLU(), ""),
        (nn.Tanh(), ""),
        (nn.Hardtanh(0.0, 0.9), ""),
    ],
)
@pytest.mark.parametrize("outputs", [1, 2, 3, 10])
def test_the_last_function_is_seen_from_answers(end, found, outputs):
    if found == "softmax" and outputs == 1:
        found = ""
    assert last_function(network(end, outputs), (3, 4), tokens=False) == found


def test_networks_of_tokens():
    plain = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(12, 6))
    assert last_function(plain, (4,), tokens=True) == ""
    assert last_function(nn.Sequential(plain, nn.Softmax(1)), (4,), tokens=True) == "softmax"
    assert last_function(nn.Sequential(plain, nn.Sigmoid()), (4,), tokens=True) == ""


def test_a_network_of_zeros_ends_with_neither():
    made = network(nn.Identity())
    for parameter in made.parameters():
        nn.init.zeros_(parameter)
    assert last_function(made, (3, 4), tokens=False) == ""
    assert made.training


class Categories(nn.Module):
    """Inputs are numbers of categories, as floats: generated ones are out of range."""

    def __init__(self):
        super().__init__()
        self.of_each = nn.Embedding(5, 3)

    def forward(self, x):
        return self.of_each(x.flatten(1).long()).mean(1)


def test_a_network_that_takes_no_generated_inputs_ends_with_neither():
    made = Categories()
    assert last_function(made, (3, 4), tokens=False) == ""
    assert made.training
