"""The plain loop of HierFAVG: deals, means, and rounds of one weight worked by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from studies.tables.plain import Hierarchy, batches, deal, mean


@pytest.mark.parametrize("per_client", [1, 2])
def test_clients_have_their_classes_in_equal_parts_and_an_edge_every_class(per_client):
    labels = np.repeat(np.arange(10), 30)
    clients = deal(labels, np.random.default_rng(0), per_client)
    own = [{(c + j) % 10 for j in range(per_client)} for c in range(10)]
    assert [[set(labels[images]) for images in edge] for edge in clients] == [own] * 5
    everybody = torch.cat([images for edge in clients for images in edge])
    assert sorted(everybody.tolist()) == list(range(300))


def test_a_pass_has_every_image_once():
    stream = batches(torch.arange(50))
    assert sorted(torch.cat([next(stream) for _ in range(3)]).tolist()) == list(range(50))
    assert len(next(stream)) == 20


def test_a_mean_is_weighted_by_images():
    assert mean([[torch.tensor(1.0)], [torch.tensor(4.0)]], [1, 2]) == [pytest.approx(3.0)]


class Scale(nn.Module):
    """Logits (w x, 0): the slope of class 0's loss at w = 0 is −x / 2."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return torch.stack([self.w * x, torch.zeros_like(x)], dim=1)


def test_rounds_of_one_weight_by_hand():
    """Two edges of 3 images and 1; slopes −1/2, −1 | −2; the first edge's second client has two images."""
    x, y = torch.tensor([1.0, 2.0, 2.0, 4.0]), torch.zeros(4, dtype=torch.int64)
    clients = [[torch.tensor([0]), torch.tensor([1, 2])], [torch.tensor([3])]]
    hierarchy = Hierarchy(Scale(), x, y, clients)
    hierarchy.round(steps=1, edge_rounds=1, lr=0.1)
    first = (0.05 + 2 * 0.1) / 3
    assert hierarchy.cloud == [pytest.approx((3 * first + 0.2) / 4)]
    assert hierarchy.accuracy(x, y) == 1.0
    again = Hierarchy(Scale(), x, y, clients)
    again.round(steps=1, edge_rounds=2, lr=0.1)

    def step(w, of):
        return w + 0.1 * of / (1 + np.exp(w * of))

    edges = (step(first, 1.0) + 2 * step(first, 2.0)) / 3, step(0.2, 4.0)
    assert again.cloud == [pytest.approx((3 * edges[0] + edges[1]) / 4, rel=1e-5)]
