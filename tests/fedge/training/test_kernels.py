"""Kernel of a model's steps, and why."""

from dataclasses import replace

import pytest
import torch
from any_networks import kernels, needs_native
from torch import nn

from fedge.training.kernels import AUTO, NATIVE, TORCH, Kernel, kernel_of, native_plan, plan_of
from fedge.training.networks.models import build_model

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
def test_auto_takes_no_kernel_that_is_slower_than_pytorch(monkeypatch):
    """A processor without vectors of eight has one, taken if the user names it in the environment."""
    model, found = build_model("cnn-pool", SHAPE, 4, torch.Generator()), plan_of
    plain = lambda *words: replace(found(*words), kernel="plain")  # noqa: E731
    monkeypatch.setattr("fedge.training.kernels.plan_of", plain)
    monkeypatch.delenv("FEDGE_KERNEL", raising=False)
    why = "this processor runs only its plain kernel, which is slower than PyTorch"
    assert kernel_of(model, SHAPE, AUTO) == Kernel(TORCH, why)
    assert kernel_of(model, SHAPE, NATIVE) == Kernel("native plain")
    monkeypatch.setenv("FEDGE_KERNEL", "plain")
    assert kernel_of(model, SHAPE, AUTO) == Kernel("native plain")
    quick = lambda *words: replace(found(*words), kernel="avx2")  # noqa: E731
    monkeypatch.setattr("fedge.training.kernels.plan_of", quick)
    monkeypatch.delenv("FEDGE_KERNEL")
    assert kernel_of(model, SHAPE, AUTO) == Kernel("native avx2")


@needs_native
@pytest.mark.parametrize("name", kernels())
def test_a_run_s_kernel_is_taken_by_its_name(name):
    model = build_model("cnn-pool", SHAPE, 4, torch.Generator())
    plan = native_plan(model, SHAPE, f"native {name}", "bf16")
    assert plan is not None
    assert plan.kernel == f"{name}_bf16"
    assert native_plan(model, SHAPE, f"native {name}_bf16").kernel == name, "evaluations round nothing"
    assert kernel_of(model, SHAPE, f"native {name}").name == f"native {name}"


@needs_native
def test_a_run_s_kernel_that_is_not_here_is_said_once(caplog):
    model = build_model("linear", SHAPE, 4, torch.Generator())
    for _ in range(2):
        assert native_plan(model, SHAPE, "native none-such") is None
    (line,) = [record.message for record in caplog.records]
    assert line.startswith(
        "PyTorch trains in this process, though the run's kernel is native none-such, since "
    )


@needs_native
def test_the_layer_that_stands_in_the_way_is_named():
    kernel = kernel_of(Recurrent(), SHAPE, AUTO)
    assert kernel.name == "torch"
    assert kernel.reason.startswith("the native step does not support layer recurrent (LSTM: ")
    assert native_plan(Recurrent(), SHAPE, NATIVE) is None
