"""The network of FedRevive's study."""

import pytest
import torch

from studies.revive.network import SmallConv


@pytest.mark.parametrize(("shape", "count"), [((1, 14, 14), 7_786), ((3, 16, 16), 10_314)])
def test_parameters_and_output(shape, count):
    """9C·16 + 16 + 2·16 + 9·16·32 + 32 + 2·32 + 32·(H/4)(W/4)·10 + 10, sides rounded down."""
    network = SmallConv(shape, 10)
    channels, height, width = shape
    head = 32 * (height // 4) * (width // 4) * 10 + 10
    by_hand = 9 * channels * 16 + 16 + 32 + 9 * 16 * 32 + 32 + 64 + head
    assert sum(p.numel() for p in network.parameters()) == by_hand == count
    assert network(torch.zeros(3, *shape)).shape == (3, 10)
