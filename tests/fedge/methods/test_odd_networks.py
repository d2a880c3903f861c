"""Every method with a network that has dropout, frozen parts, a layer with two names and single numbers."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedge.algorithm import Algorithm, Fit
from fedge.config.registers.parts import ALGORITHMS
from fedge.methods.apfl import Apfl
from fedge.methods.fedbabu import FedBabu
from fedge.methods.feddyn import FedDyn
from fedge.training.settings import LocalTraining
from tests.support.methods.one_leaf import OneLeaf


class Odd(nn.Module):
    """Three numbers to two classes."""

    def __init__(self):
        super().__init__()
        self.hidden, self.drop, self.head = nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2)
        self.body = nn.Sequential(self.hidden, nn.Tanh(), self.drop)
        self.scale, self.none = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(0, 2))
        self.unused = nn.Parameter(torch.ones(2, 2))
        self.hidden.bias.requires_grad_(False)

    def forward(self, x):
        return self.head(self.body(x) * self.scale)


class OwnLoss(Algorithm):
    """A loss and a penalty that call the network."""

    def train(self, client):
        return client.fit(loss=lambda net, x, y: F.cross_entropy(net.head(net.body(x)), y), penalty=spread)


def spread(network, x, _):
    return (network(x) - network(x)).square().mean()


class OwnSteps(Algorithm):
    """Steps by hand."""

    def train(self, client):
        trainer = client.trainer(client.received)
        for x, y in client.batches():
            loss = F.cross_entropy(trainer.answers(x), y)
            trainer.move(torch.autograd.grad(loss, trainer.parameters, materialize_grads=True))
        return Fit(trainer.state(), float(loss.detach()), trainer.steps)


METHODS = {
    **{name: lambda name=name: ALGORITHMS.load(name)() for name in ALGORITHMS.names},
    "feddyn, not squared": lambda: FedDyn(squared=False),
    "apfl, pfllib": lambda: Apfl(variant="pfllib"),
    "fedbabu, own": lambda: FedBabu(from_own=True),
    "a loss": OwnLoss,
    "steps": OwnSteps,
}


def after_two_rounds(name, seed):
    """All numbers of a leaf and its clients; PyTorch's global stream begins at `seed`, and stays there."""
    torch.manual_seed(0)
    network, algorithm = Odd(), METHODS[name]()
    rng = np.random.default_rng(0)
    windows = [(rng.normal(size=(n, 3)).astype(np.float32), np.arange(n) % 2) for n in (5, 1, 8)]
    part = None if algorithm.leaf is None else algorithm.leaf()
    leaf = OneLeaf(algorithm, network, windows, LocalTraining(lr=0.1, batch_size=3), part)
    before = torch.manual_seed(seed).get_state()
    leaf.round()
    leaf.round()
    assert torch.equal(torch.random.get_rng_state(), before)
    return [leaf.model, leaf.memory, *leaf.memories, *(leaf.models(client) for client in range(3))]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_draws_from_its_clients_streams_alone(name):
    one, other = after_two_rounds(name, 1), after_two_rounds(name, 2)
    assert one[0].keys() == Odd().state_dict().keys() - {"body.0.weight", "body.0.bias"}
    assert np.array_equal(one[0]["hidden.bias"], other[0]["hidden.bias"])
    assert one[0]["scale"].shape == ()
    np.testing.assert_equal(one, other)
