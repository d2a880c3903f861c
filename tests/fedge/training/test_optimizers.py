"""Optimisers against steps computed by hand."""

import numpy as np
import pytest
import torch

from fedge.training.optimizers import ADAM, BETAS, EPSILON, OPTIMIZERS, SGD
from fedge.training.settings import LocalTraining


def path_of(name: str, gradients: list[float], start: float = 0.0, **settings) -> list[float]:
    """Where one weight is after each step."""
    weights = [torch.full((1, 1), start)]
    optimizer = OPTIMIZERS[name](weights, LocalTraining(optimizer=name, **settings))
    places = []
    for gradient in gradients:
        optimizer.move([torch.full((1, 1), gradient)])
        places.append(weights[0].item())
    return places


def test_momentum_by_hand():
    """v = 1, then ½ · 1 − 2 = −1½: w = −0.1, then −0.1 + 0.15."""
    assert path_of(SGD, [1.0, -2.0], lr=0.1, momentum=0.5) == pytest.approx([-0.1, 0.05])


def test_decay_by_hand():
    """g = 1 + ½ · 2 = 2, w = 2 − 0.2; then g = 1 + 0.9 = 1.9."""
    assert path_of(SGD, [1.0, 1.0], start=2.0, lr=0.1, weight_decay=0.5) == pytest.approx([1.8, 1.61])


@pytest.mark.parametrize("gradient", [1e-3, -7.0])
def test_under_one_gradient_adam_moves_by_lr(gradient):
    """m / (1 − β₁ᵗ) = g and v / (1 − β₂ᵗ) = g² in every step, so each is lr · sign g, however large g."""
    expected = [-0.01 * step * np.sign(gradient) for step in (1, 2, 3)]
    assert path_of(ADAM, [gradient] * 3, lr=0.01) == pytest.approx(expected, rel=1e-4)


def test_adam_by_hand():
    """g = 2, then −1: m = 0.2, 0.08; v = 0.004, 0.004996; corrected by 0.1, 0.19 and 0.001, 0.001999."""
    assert (BETAS, EPSILON) == ((0.9, 0.999), 1e-8)
    first = -0.1
    second = first - 0.1 * (0.08 / 0.19) / (0.004996 / 0.001999) ** 0.5
    assert path_of(ADAM, [2.0, -1.0], lr=0.1) == pytest.approx([first, second], rel=1e-5)


def test_adams_decay_joins_the_gradient():
    """g = −1 + ½ · 2 = 0, so the weight stays; decay beside the gradient (AdamW) would shorten it."""
    assert path_of(ADAM, [-1.0], start=2.0, lr=0.1, weight_decay=0.5) == [2.0]


def test_what_an_optimizer_remembers_is_what_it_says():
    """A recorded step puts back what `memory` names: nothing else may change."""
    weight = torch.zeros(3)
    assert not OPTIMIZERS[SGD]([weight], LocalTraining()).memory
    for name, settings in ((SGD, LocalTraining(momentum=0.9)), (ADAM, LocalTraining(optimizer=ADAM))):
        optimizer = OPTIMIZERS[name]([weight], settings)
        kept = [m.clone() for m in (weight, *optimizer.memory)]
        optimizer.move([torch.ones(3)])
        once = weight.clone()
        for tensor, before in zip((weight, *optimizer.memory), kept, strict=True):
            tensor.copy_(before)
        optimizer.move([torch.ones(3)])
        assert torch.equal(weight, once)
