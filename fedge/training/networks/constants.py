"""Entries of a model unchanged by training, such as a table of positions or a mask."""

import torch
from torch import Tensor, nn

from fedge.config.registers.determinism import GLOBAL_STREAMS
from fedge.config.registers.failing import own_errors
from fedge.training.networks.models import state_entries


def constant_entries(network: nn.Module, x: Tensor) -> list[str]:
    """Names of floating-point entries unchanged by training: frozen parameters, constant buffers.

    A buffer is constant if passes over two batches in training mode leave its bits unchanged.

    Args:
        network: network with its initial weights; unchanged, and left in training mode.
        x: a few examples (N, …), at least two.

    >>> network = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).requires_grad_(False)
    >>> network.register_buffer("mask", torch.ones(3))
    >>> constant_entries(network, torch.rand(4, 3))
    ['mask', '0.weight', '0.bias', '1.weight', '1.bias']
    """
    before = {name: entry.clone() for name, entry in state_entries(network).items()}
    trained = {name for name, parameter in network.named_parameters() if parameter.requires_grad}
    try:
        with GLOBAL_STREAMS, torch.no_grad(), torch.random.fork_rng(devices=[]):
            for batch in (x, x.flip(0)[:-1] if len(x) > 2 else x.flip(0)):
                network.train()(batch)
        after = state_entries(network)
        unchanged = {name for name, entry in before.items() if torch.equal(entry, after[name])}
    except own_errors():  # only parameters are known then
        unchanged = {name for name, _ in network.named_parameters()}
    finally:
        network.load_state_dict({**network.state_dict(), **before})
    return [
        name
        for name, entry in before.items()
        if entry.is_floating_point() and name in unchanged and name not in trained
    ]
