"""The fast layout computes what the plain layers do, forwards and backwards."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedge.training.networks.layout import (
    BatchNorm,
    Conv,
    convolved_as_product,
    flatten_channels,
    mean_over_time,
    relu,
    relu_max_pool2,
    to_layout,
)

N, C, T = 3, 4, 11


@pytest.fixture
def x():
    return torch.randn(N, C, T, generator=torch.Generator().manual_seed(1))


def test_a_convolution_is_the_plain_one(x):
    fast, plain = Conv(C, 5, 3), nn.Conv1d(C, 5, 3, padding=1)
    plain.load_state_dict(fast.state_dict())
    torch.testing.assert_close(fast(to_layout(x)).squeeze(2), plain(x))


def test_batch_norm_is_the_plain_one(x):
    fast, plain = BatchNorm(C), nn.BatchNorm1d(C)
    torch.testing.assert_close(fast(to_layout(x)).squeeze(2), plain(x))
    torch.testing.assert_close(fast.running_var, plain.running_var)
    with pytest.raises(ValueError, match=r"shape \(N, C, 1, T\)"):
        fast(x)


def test_pooling_and_its_gradient_are_the_plain_ones(x):
    """An odd last time step is left out."""
    one, two = x.clone().requires_grad_(), x.clone().requires_grad_()
    found = relu_max_pool2(to_layout(one)).squeeze(2)
    plain = nn.functional.max_pool1d(torch.relu(two), 2)
    torch.testing.assert_close(found, plain)
    weights = torch.arange(plain.numel(), dtype=torch.float32).reshape(plain.shape)
    (found * weights).sum().backward()
    (plain * weights).sum().backward()
    torch.testing.assert_close(one.grad, two.grad)


@pytest.mark.parametrize(("module", "asked"), [(torch.jit, "is_tracing"), (torch.compiler, "is_exporting")])
def test_pooling_of_a_model_that_is_written_down_is_made_of_pytorch_s_steps(x, monkeypatch, module, asked):
    """Neither TorchScript nor an exported program can hold a step that is Python's."""
    x = to_layout(x).requires_grad_()
    own = relu_max_pool2(x)
    assert "ReluMaxPool2" in own.grad_fn.name()
    monkeypatch.setattr(module, asked, lambda: True)
    plain = relu_max_pool2(x)
    assert "ReluMaxPool2" not in plain.grad_fn.name()
    torch.testing.assert_close(plain, own)


def test_means_and_order(x):
    torch.testing.assert_close(mean_over_time(to_layout(x)), x.mean(dim=2))
    torch.testing.assert_close(flatten_channels(to_layout(x)), x.flatten(1))
    torch.testing.assert_close(relu(to_layout(x)).squeeze(2), torch.relu(x))


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 4), (3, 6, 17)], ids=str)
@pytest.mark.parametrize("taps", [1, 3, 5, 9])
def test_a_convolution_as_a_product_is_pytorchs_in_value_and_gradients(shape, taps):
    """By which a GPU computes it; windows may be shorter than the filter."""
    windows, channels, samples = shape
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(windows, channels, 1, samples, generator=generator, dtype=torch.float64)
    weight = torch.randn(7, channels, taps, generator=generator, dtype=torch.float64)
    bias = torch.randn(7, generator=generator, dtype=torch.float64)
    by_product, by_pytorch = ([each.clone().requires_grad_() for each in (x, weight, bias)] for _ in range(2))
    got = convolved_as_product(*by_product)
    expected = F.conv1d(by_pytorch[0].squeeze(2), *by_pytorch[1:], padding=taps // 2).unsqueeze(2)
    assert got.is_contiguous()
    torch.testing.assert_close(got, expected)
    rates = torch.randn(got.shape, generator=generator, dtype=torch.float64)
    (got * rates).sum().backward()
    (expected * rates).sum().backward()
    for one, other in zip(by_product, by_pytorch, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_convolves_by_products():
    layer = Conv(3, 4, 5).to("cuda")
    x = torch.randn(2, 3, 1, 8, device="cuda")
    assert torch.equal(layer(x), convolved_as_product(x, layer.weight, layer.bias))
