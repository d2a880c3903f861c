"""Training with factors that are rounded to bf16 (train.precision), and with floats in three such parts."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from any_networks import KERNELS, flat_weights, in_double, kernels, learnable, needs_native, use_kernel
from torch import nn

from fedge.native.library import Session, best_kernel
from fedge.native.plan import flat_array, plan_of
from fedge.training.kernels import kernel_of, native_plan
from fedge.training.local import train
from fedge.training.networks.models import build_model
from fedge.training.networks.module_state import get_state
from fedge.training.settings import LocalTraining

pytestmark = needs_native

C, T, CLASSES, N = 6, 50, 4, 70
SETTINGS = LocalTraining(lr=0.05, epochs=1, batch_size=32, kernel="native")
ROUNDED = replace(SETTINGS, precision="bf16")


class Doubled(nn.Module):
    """Logits x and 0 of a window of one number."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 2, 1, bias=False)
        self.conv.weight.data = torch.tensor([1.0, 0.0]).view(2, 1, 1)

    def forward(self, x):
        return self.conv(x).mean(2)


def logit(kernel, number):
    """Product of a number and 1 by a kernel, from the loss log(1 + e^(0 - z)) of class 0."""
    model = Doubled()
    plan = plan_of(model, (1, 1))
    with Session(plan.evaluation, 1, kernel) as session:
        session.begin(
            flat_array(plan.weights, dict(model.named_parameters())),
            np.zeros(0, np.float32),
            None,
            np.zeros(6),
        )
        losses, _ = session.evaluate(np.full((1, 1, 1), number, np.float32), np.zeros(1, np.int64))
    return -np.log(np.expm1(losses[0]))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_factor_is_rounded_to_eight_bits(monkeypatch, kernel):
    """By hand: numbers from 1 to 2 lie 2^-7 apart; half-way goes to the even one."""
    use_kernel(monkeypatch, kernel)
    for number, rounded in (
        (1 + 2**-9, 1.0), (1 + 2**-8, 1.0), (1 + 3 * 2**-8, 1 + 2**-6), (1 + 3 * 2**-9, 1 + 2**-7),
        (-1 - 3 * 2**-8, -1 - 2**-6),
    ):  # fmt: skip
        assert logit(f"{kernel}_bf16", number) == pytest.approx(rounded, abs=1e-6)
        assert logit(kernel, number) == pytest.approx(number, abs=1e-6)


def stepped(settings, model, state, x, y):
    """The weights after one epoch, one after another."""
    result = train(model, x, y, settings, torch.Generator().manual_seed(9), state=state)
    return flat_weights(model, result.state)


@pytest.mark.parametrize("kernel", KERNELS)
def test_errors_are_of_eight_bits_with_rounding_and_of_floats_without(monkeypatch, kernel):
    """Against one step in double precision: a few thousandths of the step, and a few millionths."""
    use_kernel(monkeypatch, kernel)
    model = build_model("cnn", (C, T), CLASSES, torch.Generator().manual_seed(1))
    state, (x, y) = get_state(model), learnable(32, C, T, CLASSES)
    start = flat_weights(model, state)
    truth = in_double(model, x, y, SETTINGS, torch.Generator().manual_seed(9))
    size = np.linalg.norm(truth - start)
    assert np.linalg.norm(stepped(SETTINGS, model, state, x, y) - truth) < 1e-5 * size
    assert 1e-4 * size < np.linalg.norm(stepped(ROUNDED, model, state, x, y) - truth) < 2e-2 * size


@pytest.mark.parametrize("kernel", KERNELS)
def test_two_clients_at_once_have_the_bits_of_one_alone(monkeypatch, kernel):
    use_kernel(monkeypatch, kernel)
    models = [build_model("cnn-pool", (C, T), CLASSES, torch.Generator().manual_seed(1)) for _ in range(3)]
    state, (x, y) = get_state(models[0]), learnable(N, C, T, CLASSES)
    alone, together = stepped(ROUNDED, models[0], state, x, y), {}

    def client(number):
        together[number] = stepped(ROUNDED, models[number], state, x, y)

    threads = [threading.Thread(target=client, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(weights, alone) for weights in together.values())


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_not_finite_is_noticed(monkeypatch, kernel, wrong):
    use_kernel(monkeypatch, kernel)
    x, y = learnable(N, C, T, CLASSES)
    x[3, 2, 1] = wrong
    for settings in (SETTINGS, ROUNDED):
        model = build_model("cnn", (C, T), CLASSES, torch.Generator().manual_seed(1))
        with pytest.raises(FloatingPointError, match="training: loss is nan"):
            train(model, x, y, settings, torch.Generator().manual_seed(9))


def test_the_kernel_is_named():
    model = build_model("cnn", (C, T), CLASSES, torch.Generator())
    assert kernel_of(model, (C, T), "native", "bf16").name == f"native {kernels()[0]}_bf16"
    assert kernel_of(model, (C, T), "native", "tf32").name == f"native {best_kernel()}"
    assert native_plan(model, (C, T), "native").kernel == best_kernel()  # evaluation does not round


@pytest.mark.parametrize(
    ("channels", "out", "size", "stride", "steps"), [(1, 1, 1, 1, 1), (17, 33, 7, 2, 31), (64, 16, 3, 1, 65)]
)
def test_amx_knows_convolutions_of_any_shape(monkeypatch, channels, out, size, stride, steps):
    """Rows, columns and depths that fill no tile; three windows."""
    use_kernel(monkeypatch, "amx")
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv1d(channels, out, size, stride, size // 2), nn.ReLU(), nn.Conv1d(out, out, size, 1, size // 2),
        nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(out, CLASSES),
    )  # fmt: skip
    state, (x, y) = get_state(model), learnable(3, channels, steps, CLASSES)
    truth = in_double(model, x, y, SETTINGS, torch.Generator().manual_seed(9))
    size_of_step = np.linalg.norm(truth - flat_weights(model, state))
    assert np.linalg.norm(stepped(SETTINGS, model, state, x, y) - truth) < 1e-5 * size_of_step
