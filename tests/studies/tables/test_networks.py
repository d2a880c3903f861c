"""Networks of papers: weights counted by hand."""

import pytest
import torch

from studies.tables.networks import ChapterCnn, Hidden200, HierLeNet, NiidCnn, SensorGru


@pytest.mark.parametrize(
    ("network", "shape", "by_hand"),
    [
        # 25·6+6, 25·6·16+16, then 16 channels of 4 × 4
        (NiidCnn, (1, 28, 28), 156 + 2416 + (256 * 120 + 120) + (120 * 84 + 84) + (84 * 10 + 10)),
        # the papers say 21,840 and 797,962
        (HierLeNet, (1, 28, 28), 21_840),
        (ChapterCnn, (3, 32, 32), 797_962),
        (Hidden200, (1, 28, 28), 784 * 200 + 200 + 2000 + 10),
        # three gates of 3 + 32 inputs and two biases each
        (SensorGru, (3, 32), 3 * 32 * (3 + 32 + 2) + 320 + 10),
    ],
)
def test_weights_and_output(network, shape, by_hand):
    made = network(shape, 10)
    assert sum(p.numel() for p in made.parameters()) == by_hand
    assert made(torch.zeros(2, *shape)).shape == (2, 10)
