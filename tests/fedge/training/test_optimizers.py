"""Optimisers against steps computed by hand."""

import numpy as np
import pytest
import torch

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import SGD
from fedge.config.sections.train import TrainConfig
from fedge.training.optimizers import BETAS, EPSILON, optimizer_of, refuse_optimizer
from fedge.training.settings import LocalTraining

ADAM = "adam"


def path_of(name: str, gradients: list[float], start: float = 0.0, **settings) -> list[float]:
    """Where one weight is after each step."""
    weights = [torch.full((1, 1), start)]
    optimizer = optimizer_of(weights, LocalTraining(optimizer=name, **settings))
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
    assert not optimizer_of([weight], LocalTraining()).memory
    for settings in (LocalTraining(momentum=0.9), LocalTraining(optimizer=ADAM)):
        optimizer = optimizer_of([weight], settings)
        kept = [m.clone() for m in (weight, *optimizer.memory)]
        optimizer.move([torch.ones(3)])
        once = weight.clone()
        for tensor, before in zip((weight, *optimizer.memory), kept, strict=True):
            tensor.copy_(before)
        optimizer.move([torch.ones(3)])
        assert torch.equal(weight, once)


def test_adamw_shortens_beside_the_step():
    """w = 2 (1 − 0.1 · ½) = 1.9, and the first step of Adam is lr · sign g: 1.8."""
    assert path_of("adamw", [3.0], start=2.0, lr=0.1, weight_decay=0.5) == pytest.approx([1.8])


def test_rmsprop_by_hand():
    """s = 0.01 · 4, so the first step is lr · 2 / 0.2 = 10 lr; with α = ½ it is lr · 2 / √2."""
    assert path_of("rmsprop", [2.0], lr=0.1) == pytest.approx([-1.0])
    given = path_of("rmsprop", [2.0], lr=0.1, optimizer_args=(("alpha", 0.5),))
    assert given == pytest.approx([-0.1 * 2**0.5])


def test_pytorchs_sgd_is_ours():
    """Any of PyTorch's by its place; momentum is an argument of its own then."""
    given = {"lr": 0.1, "weight_decay": 0.25}
    ours = path_of(SGD, [1.0, -2.0, 0.5], momentum=0.5, **given)
    theirs = path_of("torch.optim:SGD", [1.0, -2.0, 0.5], optimizer_args=(("momentum", 0.5),), **given)
    assert theirs == pytest.approx(ours)


class Signs:
    """Moves by the sign alone; knows no weight decay."""

    def __init__(self, parameters, lr, scale=1.0):
        self.parameters, self.lr = parameters, lr * scale

    def step(self):
        for p in self.parameters:
            p.sub_(p.grad.sign(), alpha=self.lr)


class Still(Signs):
    """Moves nothing."""

    def step(self):
        """Do nothing."""


def test_decay_joins_the_gradient_of_who_knows_none():
    """g = −1 + ½ · 4 = 1, so the weight falls; without decay it would rise."""
    name = f"{__name__}:Signs"
    assert path_of(name, [-1.0], start=4.0, lr=0.1, weight_decay=0.5) == pytest.approx([3.9])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "torch.optim:LBFGS"}, "cannot take a step: TypeError: .*closure"),
        ({"optimizer": "adamw", "optimizer_args": '{"beta": 1}'}, "unexpected keyword argument 'beta'"),
        ({"optimizer": "rmsprop", "optimizer_args": '{"alpha": -1}'}, "cannot take a step: ValueError"),
        ({"optimizer": "sgd", "optimizer_args": '{"nesterov": true}'}, "sgd takes no train.optimizer-args"),
        ({"optimizer": f"{__name__}:Still"}, "must move weights"),
        (
            {
                "optimizer": f"{__name__}:Signs",
                "lr": 1.0,
                "weight_decay": 0.0,
                "optimizer_args": '{"scale": 3e38}',
            },
            "finite ones",
        ),
    ],
)
def test_what_takes_no_step_is_refused_in_one_line(options, message):
    with pytest.raises(ConfigError, match=message) as refused:
        refuse_optimizer(TrainConfig(**options))
    assert "\n" not in str(refused.value)


def test_dashes_are_as_good_as_underscores():
    refuse_optimizer(TrainConfig(optimizer="adagrad", optimizer_args='{"initial-accumulator-value": 0.5}'))
