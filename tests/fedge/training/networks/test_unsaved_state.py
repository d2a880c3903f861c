"""Attributes that a network keeps beside its state dict do not go from one client to the next."""

import threading

import pytest
import torch
from torch import nn

from fedge.training.networks.unsaved_state import Unsaved


class Remembering(nn.Module):
    """Keeps a counter, a list, a hidden state, a buffer that is not saved, what cannot be copied."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 2)
        self.layers = [self.head]  # not a copy of the layer
        self.cell = nn.LSTM(2, 2)
        self.steps, self.seen = 0, []
        self.lock = threading.Lock()
        self.register_buffer("kept", torch.zeros(2))
        self.register_buffer("ring", torch.zeros(2), persistent=False)

    def forward(self, x):
        self.steps += 1
        self.seen.append(len(x))
        self.hidden = x
        self.kept += 1
        self.ring = torch.cat([self.ring, x[0]])
        return self.layers[0](x)


def test_what_a_client_leaves_is_forgotten_and_what_is_saved_is_not():
    model = Remembering().eval()
    weight, lock, flat = model.head.weight, model.lock, model.cell._flat_weights[0]
    unsaved = Unsaved(model)
    for _ in range(2):
        model(torch.ones(3, 2))
        assert (model.steps, model.seen, len(model.ring)) == (1, [3], 4)
        unsaved.restore()
        assert (model.steps, model.seen, model.ring.tolist()) == (0, [], [0, 0])
        assert not hasattr(model, "hidden")
    assert model.kept.tolist() == [2, 2]
    assert model.head.weight is weight
    assert model.layers[0] is model.head
    assert model.lock is lock
    assert model.cell._flat_weights[0] is flat is model.cell.weight_ih_l0
    assert not model.training


def frozen(model):
    model.head.requires_grad_(False)


def hooked(model):
    model.head.register_forward_hook(lambda *_: torch.zeros(1))
    model.register_forward_pre_hook(lambda *_: None, with_kwargs=True)


def another_layer(model):
    model.head = nn.Linear(2, 5)
    model.more = nn.Linear(1, 1)


def another_parameter(model):
    model.head.weight = nn.Parameter(torch.zeros(5, 2))


def parametrized(model):
    nn.utils.parametrizations.weight_norm(model.head)


@pytest.mark.parametrize("change", [frozen, hooked, another_layer, another_parameter, parametrized])
def test_what_a_method_makes_of_the_network_is_undone(change):
    model = Remembering()
    before, wanted = model(torch.ones(3, 2)), list(model.state_dict())
    unsaved = Unsaved(model)
    for _ in range(2):
        change(model)
        unsaved.restore()
        model.zero_grad()
        assert torch.equal(model(torch.ones(3, 2)), before)
        assert list(model.state_dict()) == wanted
        assert all(parameter.requires_grad for parameter in model.parameters())
        unsaved.restore()
