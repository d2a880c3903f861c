"""Plans: a network that is known agrees with PyTorch, and what a trace cannot see is found by comparing."""

import re

import pytest
import torch
import torch.nn.functional as F
from any_networks import KERNELS, needs_native, random_network, use_kernel
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedge.native.plan import Plan, make_plan, plan_of

pytestmark = needs_native


@pytest.mark.slow
@given(
    seed=st.integers(0, 10_000),
    channels=st.integers(1, 19),
    steps=st.integers(9, 70),
    classes=st.integers(2, 11),
)
@settings(max_examples=12, deadline=None, derandomize=True)
def test_random_networks_are_known(seed, channels, steps, classes):
    """A plan is only made where loss, gradients and statistics agree with PyTorch."""
    plan = make_plan(random_network(seed, channels, steps, classes), (channels, steps), "plain")
    assert plan.classes == classes


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("seed", range(4))
def test_every_kernel_agrees_with_pytorch(monkeypatch, kernel, seed):
    use_kernel(monkeypatch, kernel)
    plan = plan_of(random_network(seed, 6, 50, 5, dropout=True), (6, 50))
    assert isinstance(plan, Plan), plan
    assert plan.kernel == kernel


def test_a_plan_is_made_once_per_shape():
    model = random_network(3, 4, 20, 3)
    plan = plan_of(model, (4, 20))
    assert plan_of(model, (4, 20)) is plan


class _Turned(torch.autograd.Function):
    """The same numbers, and another gradient, in words that a trace knows."""

    @staticmethod
    def forward(ctx, x):
        return F.relu(x)

    @staticmethod
    def backward(ctx, g):
        return -g


class _Odd(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.conv, self.head, self.how = nn.Conv1d(3, 4, 3), nn.Linear(4, 2), how

    def forward(self, x):
        if self.how == "turned":
            return self.head(_Turned.apply(self.conv(x)).mean(2))
        if self.how == "stopped":
            with torch.no_grad():
                return self.head(self.conv(x).mean(2))
        return self.head(self.conv(x).mean(2))


@pytest.mark.parametrize(
    ("how", "why"),
    [("turned", "the gradient of conv.weight is not what PyTorch computes"), ("stopped", "set_grad_enabled")],
)
def test_a_gradient_that_is_another_is_found(how, why):
    told = plan_of(_Odd(how), (3, 16))
    assert isinstance(told, str)
    assert why in told
    assert isinstance(plan_of(_Odd("plain"), (3, 16)), Plan)


def test_frozen_layers_stay_and_their_input_is_trained():
    model = random_network(1, 3, 20, 3)
    next(layer for layer in model if isinstance(layer, nn.Conv1d)).weight.requires_grad_(False)
    plan = plan_of(model, (3, 20))
    assert isinstance(plan, Plan), plan
    assert plan.weights.trainable < plan.weights.floats


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ([nn.Conv1d(3, 4, 3).double()], r"parameter 0\.weight \(torch\.float64"),
        ([nn.BatchNorm1d(3, track_running_stats=False)], "without running statistics"),
        ([nn.BatchNorm1d(3, momentum=None)], "Norm"),
        ([nn.Conv1d(3, 4, 3), nn.Softplus()], r"layer 1 \(Softplus: softplus\)"),
        ([nn.Conv1d(3, 3, 3, padding=1, padding_mode="circular")], r"layer 0 \(Conv1d: pad\)"),
    ],
)
def test_what_is_not_known_is_told_with_its_layer(layers, why):
    left = 8 * 3 if "Norm" in why or "statistics" in why else 1
    told = plan_of(nn.Sequential(*layers, nn.Flatten(), nn.Linear(left, 2)), (3, 8))
    assert isinstance(told, str)
    assert told.startswith("the native step does not support ")
    assert re.search(why, told), told


class _Named(nn.Module):
    """Layers by name, and in the order in which they are called: each has two names."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv1d(3, 8, 5), nn.BatchNorm1d(8), nn.Linear(8, 4)
        self.body = nn.Sequential(self.conv, self.norm, nn.ReLU())

    def forward(self, x):
        return self.head(self.body(x).mean(2))


def test_a_network_whose_layers_have_two_names_is_known_and_unchanged():
    model = _Named()
    before = {name: entry.clone() for name, entry in model.state_dict().items()}
    assert isinstance(plan_of(model, (3, 20)), Plan)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert model.body[0] is model.conv
    for name, entry in model.state_dict().items():
        torch.testing.assert_close(entry, before[name], rtol=0, atol=0)


UNUSED = {
    "class weights": torch.ones(6),
    "half": torch.ones(3, dtype=torch.float16),
    "double": torch.ones((), dtype=torch.float64),
    "empty": torch.zeros(0, 3),
    "mask": torch.ones(2, 2, dtype=torch.bool),
    "bytes": torch.ones(3, dtype=torch.uint8),
}


class Carrying(nn.Module):
    """A network with a buffer that its layers do not use; in training it may change."""

    def __init__(self, buffer, change=""):
        super().__init__()
        self.body = nn.Sequential(
            nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)
        )
        self.register_buffer("beside", buffer.clone(), persistent=change != "unsaved")
        self.change = change

    def forward(self, x):
        if self.training and self.change == "replaced":
            self.beside = torch.zeros_like(self.beside)
        return self.body(x)


@pytest.mark.parametrize("kind", UNUSED)
@pytest.mark.parametrize("change", ["", "unsaved"])
def test_buffers_that_no_layer_uses_do_not_matter(kind, change):
    assert isinstance(plan_of(Carrying(UNUSED[kind], change), (4, 4)), Plan)


def test_a_buffer_of_a_network_s_own_that_training_changes_is_left_to_pytorch():
    plan = plan_of(Carrying(UNUSED["class weights"], "replaced"), (4, 4))
    assert not isinstance(plan, Plan), plan
