"""Windows out of noise: their shape and range, and weights that follow from a stream alone."""

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from fedge.devices.fedrevive.generator import Size, new_generator


def draws(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(6, 128), (2, 13), (1, 1), (3, 9, 14)])
def test_windows_have_the_shape_that_is_asked_for(shape):
    made = new_generator(shape, draws(0))(torch.randn(5, Size().latent, generator=draws(1)))
    assert made.shape == (5, *shape)
    assert made.abs().max() < 4


def test_weights_follow_from_the_stream():
    before = torch.random.get_rng_state()
    one, same, other = (parameters_to_vector(new_generator((2, 8), draws(n)).parameters()) for n in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_sizes_are_those_of_its_authors_and_can_be_others():
    """256 latent numbers, 128 channels: Linear(256, 256 · T/4); with a sigmoid all is between 0 and 1."""
    made = new_generator((2, 8), draws(0))
    assert made.first.weight.shape == (256 * 2, 256)
    assert made.conv3.weight.shape == (2, 128, 3)
    small = new_generator((2, 8), draws(0), Size(16, 4, "sigmoid"))
    assert small.first.weight.shape == (8 * 2, 16)
    windows = small(10 * torch.randn(64, 16, generator=draws(1)))
    assert ((windows > 0) & (windows < 1)).all()
