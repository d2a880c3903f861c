"""Windows out of noise: their shape and range, and weights that follow from a stream alone."""

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from fedge.devices.generator import LATENT, new_generator


def draws(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("shape", [(6, 128), (2, 13), (1, 1), (3, 9, 14)])
def test_windows_have_the_shape_that_is_asked_for(shape):
    made = new_generator(shape, draws(0))(torch.randn(5, LATENT, generator=draws(1)))
    assert made.shape == (5, *shape)
    assert made.abs().max() < 4


def test_weights_follow_from_the_stream():
    before = torch.random.get_rng_state()
    one, same, other = (parameters_to_vector(new_generator((2, 8), draws(n)).parameters()) for n in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), before)
