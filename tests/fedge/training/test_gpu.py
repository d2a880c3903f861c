"""Settings for GPUs; and on one, the same bits again, near those of a CPU."""

import os
import warnings
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import MODELS
from fedge.config.registers.traits import WINDOWS
from fedge.training import sgd as sgd_module
from fedge.training.evaluation import evaluate
from fedge.training.gpu import products, refuse_gpu_without_bf16, settle_gpus
from fedge.training.local import train
from fedge.training.networks.models import build_model
from fedge.training.networks.module_state import get_state
from fedge.training.settings import LocalTraining
from fedge.training.sgd import Sgd

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
SETTINGS = LocalTraining(lr=0.05, momentum=0.9, clip_norm=1.0, label_smoothing=0.1, epochs=4, batch_size=16)


@pytest.fixture(autouse=True)
def as_before():
    """Put PyTorch's switches back, and let go memory of a size that the environment no longer has."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    switches = (
        (cudnn, "deterministic"), (cudnn, "benchmark"), (cudnn, "allow_tf32"), (matmul, "allow_tf32"),
        (matmul, "allow_bf16_reduced_precision_reduction"),
    )  # fmt: skip
    before = [getattr(holder, name) for holder, name in switches]
    size = os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    yield
    for (holder, name), value in zip(switches, before, strict=True):
        setattr(holder, name, value)
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    if size is not None:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = size
    if torch.cuda.is_initialized():
        torch._C._cuda_clearCublasWorkspaces()


def test_memory_that_cublas_took_for_another_size_is_let_go(monkeypatch):
    """Else PyTorch would tell cuBLAS of the new size and give it the old memory, which it would overrun."""
    done = []
    monkeypatch.setattr(
        torch._C, "_cuda_clearCublasWorkspaces", lambda: done.append("cleared"), raising=False
    )
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append("waited"))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    settle_gpus("float32")
    assert done == []
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    for _ in range(2):
        settle_gpus("float32")
        assert done == ["waited", "cleared"]
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    settle_gpus("float32")
    assert done == ["waited", "cleared"]
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    monkeypatch.undo()


class Dropping(nn.Module):
    """Dropout of numbers, and a draw of the model's own on its device."""

    def __init__(self, input_shape, classes):
        super().__init__()
        self.first = nn.Conv1d(input_shape[0], 32, 5, padding=2)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        x = self.drop(torch.relu(self.first(x)))
        noise = torch.randn(x.shape[0], 1, device=x.device) if self.training else 0.0
        return self.head(x.mean(dim=2)) + noise


def problem(name, device):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(200, 6, 32, generator=generator), torch.randint(0, 4, (200,), generator=generator)
    torch.manual_seed(1)
    own = {"dropping": Dropping}
    model = own[name]((6, 32), 4) if name in own else build_model(name, (6, 32), 4, generator)
    return model.to(device), x, y


def trained(name, device, settings=SETTINGS):
    model, x, y = problem(name, device)
    draws = torch.Generator().manual_seed(3)
    return train(model, x, y, settings, torch.Generator().manual_seed(2), draws=draws).state


@pytest.mark.parametrize(("precision", "rounded"), [("float32", False), ("tf32", True), ("bf16", False)])
def test_sums_have_an_order_and_products_the_precision_that_is_asked_for(precision, rounded):
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = not rounded
    settle_gpus(precision)
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark
    assert torch.backends.cudnn.allow_tf32 is rounded
    assert torch.backends.cuda.matmul.allow_tf32 is rounded
    assert not torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction


def step_of(precision):
    """Weights and logits' type after a step on a CPU, whose products round where a GPU's would."""
    model = nn.Sequential(nn.Linear(1, 2, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0], [0.0]]))
    seen = []
    settings = replace(
        SETTINGS, clip_norm=0.0, label_smoothing=0.0, momentum=0.0, lr=1.0, precision=precision
    )
    sgd = Sgd(model, settings, None)
    model.register_forward_hook(lambda *answered: seen.append(answered[-1].dtype))
    loss = sgd.step(torch.tensor([[1.0 + 2**-9]]), torch.tensor([0]))
    return float(loss), model[0].weight.detach(), seen[0]


def test_bf16_rounds_products_of_training_and_neither_loss_nor_weights(monkeypatch):
    """1 + 2⁻⁹ is 1 in bf16: the loss is ln(1 + e⁻¹), and both gradients are ∓ 1 / (1 + e), rounded."""
    exact, _, of_float = step_of("bf16")  # on a CPU, PyTorch rounds nothing
    assert of_float == torch.float32
    assert exact == pytest.approx(np.log1p(np.exp(-(1 + 2**-9))), rel=1e-6)
    monkeypatch.setattr(
        sgd_module, "products", lambda device, precision: torch.autocast("cpu", torch.bfloat16)
    )
    loss, weight, kind = step_of("bf16")
    assert kind == torch.bfloat16
    assert loss == pytest.approx(np.log1p(np.exp(-1)), rel=1e-6)
    assert weight.dtype == torch.float32
    away = 1 / (1 + np.e)
    rounded = float(torch.tensor(away).bfloat16())
    assert weight.flatten().tolist() == pytest.approx([1 + rounded, -rounded], abs=1e-6)


def test_products_are_rounded_on_a_gpu_alone_and_where_bf16_is_asked_for():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    for device, precision in ((cpu, "bf16"), (gpu, "float32"), (gpu, "tf32")):
        assert isinstance(products(device, precision), nullcontext)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there may be no GPU
        rounding = products(gpu, "bf16")
    assert isinstance(rounding, torch.autocast)
    assert (rounding.device, rounding.fast_dtype) == ("cuda", torch.bfloat16)
    assert not rounding._cache_enabled


@pytest.mark.parametrize(("capability", "fails"), [((7, 5), True), ((8, 0), False), ((9, 0), False)])
def test_a_gpu_without_bf16_is_refused(monkeypatch, capability, fails):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA T4")
    refuse_gpu_without_bf16("float32")
    if not fails:
        refuse_gpu_without_bf16("bf16")
        return
    with pytest.raises(ConfigError, match=r"bf16 needs an NVIDIA GPU of the Ampere.*NVIDIA T4; set train"):
        refuse_gpu_without_bf16("bf16")


@needs_gpu
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize("name", [*MODELS.names_with(WINDOWS), "dropping"])
def test_a_gpu_computes_the_same_bits_again_with_a_graph_and_without(name, precision):
    settle_gpus(precision)
    settings = replace(SETTINGS, precision=precision)
    runs = [trained(name, "cuda", replace(settings, cuda_graph=graph)) for graph in (True, True, False)]
    for other in runs[1:]:
        for key, array in runs[0].items():
            np.testing.assert_array_equal(other[key], array, err_msg=key)


@needs_gpu
@pytest.mark.parametrize("name", MODELS.names_with(WINDOWS))
def test_in_float32_a_gpu_is_as_near_as_another_order_of_sums(name):
    settle_gpus("float32")
    one_epoch = replace(SETTINGS, epochs=1)
    on_cpu, on_gpu = trained(name, "cpu", one_epoch), trained(name, "cuda", one_epoch)
    for key, array in on_cpu.items():
        np.testing.assert_allclose(on_gpu[key], array, rtol=1e-3, atol=1e-4, err_msg=key)


@needs_gpu
@pytest.mark.parametrize("name", MODELS.names_with(WINDOWS))
def test_in_bf16_a_gpu_is_near_and_not_the_same(name):
    settle_gpus("bf16")
    one_epoch = replace(SETTINGS, epochs=1)
    exact = trained(name, "cuda", one_epoch)
    rounded = trained(name, "cuda", replace(one_epoch, precision="bf16"))
    far = max(float(np.abs(rounded[key] - array).max()) for key, array in exact.items())
    assert 0 < far < 0.1
    assert {array.dtype for array in rounded.values()} == {array.dtype for array in exact.values()}


@needs_gpu
def test_evaluation_on_a_gpu_counts_as_on_a_cpu():
    settle_gpus("float32")
    (there, x, y), (here, _, _) = problem("cnn", "cuda"), problem("cnn", "cpu")
    for key, array in get_state(here).items():
        np.testing.assert_array_equal(get_state(there)[key], array)
    on_gpu, on_cpu = evaluate(there, x, y), evaluate(here, x, y)
    assert on_gpu.loss == pytest.approx(on_cpu.loss, rel=1e-5)
    assert np.abs(on_gpu.confusion - on_cpu.confusion).sum() <= 2  # a tie may fall the other way
