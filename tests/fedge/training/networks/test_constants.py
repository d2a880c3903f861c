"""Entries that training does not change: frozen parameters and constant buffers, and no others."""

from contextlib import ExitStack

import pytest
import torch
from torch import nn

from fedge.training.networks import constants
from fedge.training.networks.constants import constant_entries


class Positions(nn.Module):
    """A table and a mask that stay, a mean of the batches, a count, and a buffer outside the state."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.linspace(0, 1, 4))
        self.register_buffer("mask", torch.ones(4, dtype=torch.bool))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("passes", torch.tensor(0))
        self.register_buffer("scratch", torch.zeros(4), persistent=False)
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.mean(0))
            self.passes += 1
        return self.layer(self.frozen * (x + self.table) * self.mask)


class Failing(Positions):
    def forward(self, x):
        raise RuntimeError("no such input")


def test_a_table_and_frozen_parameters_are_constant():
    network = Positions()
    before = {name: entry.clone() for name, entry in network.state_dict().items()}
    assert constant_entries(network, torch.rand(5, 4)) == ["frozen", "table"]
    assert all(torch.equal(entry, before[name]) for name, entry in network.state_dict().items())
    assert network.training


def test_the_global_streams_are_held_meanwhile(monkeypatch):
    """Leaf servers may be threads, whose parts are watched for draws from these streams."""
    held = []
    monkeypatch.setattr(constants, "GLOBAL_STREAMS", ExitStack())
    constants.GLOBAL_STREAMS.callback(held.append, True)
    constant_entries(Positions(), torch.rand(5, 4))
    assert held == [True]


def test_a_network_that_fails_has_its_frozen_parameters():
    assert constant_entries(Failing(), torch.rand(2, 4)) == ["frozen"]


@pytest.mark.parametrize("norm", [nn.LayerNorm(4), nn.BatchNorm1d(4), nn.Dropout()])
def test_usual_layers_have_none(norm):
    network, x = nn.Sequential(norm, nn.Linear(4, 3)), torch.linspace(-1, 2, 24).reshape(6, 4)
    state = torch.random.get_rng_state()
    assert constant_entries(network, x) == []
    assert torch.equal(torch.random.get_rng_state(), state)
