"""Kernel of a model's steps, and why."""

import pytest
import torch
from any_networks import kernels, needs_native
from torch import nn

from fedge.training.kernels import AUTO, NATIVE, TORCH, Kernel, kernel_of, native_plan
from fedge.training.models import build_model

SHAPE = (6, 32)


class Recurrent(nn.Module):
    """Convolutions, then an LSTM, as DeepConvLSTM has them."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv1d(6, 8, 5), nn.Linear(8, 4)
        self.recurrent = nn.LSTM(28, 8)

    def forward(self, x):
        return self.head(self.recurrent(torch.relu(self.conv(x)))[0].mean(1))


def test_torch_is_torch():
    model = build_model("cnn", SHAPE, 4, torch.Generator())
    assert kernel_of(model, SHAPE, TORCH) == Kernel("torch")
    assert native_plan(model, SHAPE, TORCH) is None


@needs_native
@pytest.mark.parametrize("wanted", [AUTO, NATIVE])
def test_a_known_model_has_the_native_step(wanted):
    model = build_model("cnn-pool", SHAPE, 4, torch.Generator())
    assert native_plan(model, SHAPE, wanted) is not None
    assert kernel_of(model, SHAPE, wanted).name.removeprefix("native ") in kernels()


@needs_native
def test_the_layer_that_stands_in_the_way_is_named():
    kernel = kernel_of(Recurrent(), SHAPE, AUTO)
    assert kernel.name == "torch"
    assert kernel.why.startswith("the native step does not know layer recurrent (LSTM: ")
    assert native_plan(Recurrent(), SHAPE, NATIVE) is None
