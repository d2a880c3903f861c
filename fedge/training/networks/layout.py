"""The memory layout in which time-series layers run fastest, without a change of results.

On a CPU, PyTorch's convolution, pooling and batch-norm kernels are fastest when the channels of one
time step lie side by side: logical shape (N, C, 1, T) in `torch.channels_last`, that is (N, T, C) in
memory. On a GPU, (N, C, 1, T) lies in the plain order, and a convolution is one matrix product of stretches
of all windows: with sums in a fixed order, cuDNN takes a Fourier transform for 64 channels, which is 20 to 70
times slower (docs/gpu.md). The layers below keep the parameter names and shapes of `nn.Conv1d` and
`nn.BatchNorm1d`, so a state dict of the plain network loads. Shape letters: N windows, C channels, T samples,
K taps.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function_unary


def to_layout(x: Tensor) -> Tensor:
    """(N, C, T) in any order → (N, C, 1, T), channels-last in memory on a CPU."""
    x = x.unsqueeze(2)
    if x.device.type == "cpu":
        return x.contiguous(memory_format=torch.channels_last)
    return x


class Conv(nn.Conv1d):
    """`nn.Conv1d` with stride 1 and "same" zero padding (odd kernel), on (N, C, 1, T)."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int) -> None:
        assert kernel_size % 2 == 1, kernel_size
        super().__init__(in_channels, out_channels, kernel_size, padding=kernel_size // 2)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, 1, T) → (N, out_channels, 1, T)."""
        if x.device.type == "cuda":
            return convolved_as_product(x, self.weight, self.bias)
        padding = (0, self.kernel_size[0] // 2)
        return F.conv2d(x, self.weight.unsqueeze(2), self.bias, padding=padding)


def convolved_as_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A convolution with "same" zero padding as one matrix product.

    Args:
        x: (N, C, 1, T).
        weight: (out_channels, C, K), K odd.
        bias: (out_channels,).

    Returns:
        (N, out_channels, 1, T).
    """
    windows, channels, _, samples = x.shape
    out_channels, _, taps = weight.shape
    stretches = F.pad(x.squeeze(2), (taps // 2, taps // 2)).unfold(2, taps, 1)  # (N, C, T, K)
    rows = stretches.permute(0, 2, 1, 3).reshape(windows * samples, channels * taps)
    answers = F.linear(rows, weight.reshape(out_channels, channels * taps), bias)
    return answers.view(windows, samples, out_channels).transpose(1, 2).unsqueeze(2).contiguous()


class BatchNorm(nn.BatchNorm1d):
    """`nn.BatchNorm1d` on (N, C, 1, T): statistics per channel over N and T."""

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() != 4:
            raise ValueError(f"BatchNorm: input must have shape (N, C, 1, T), got {tuple(input.shape)}")


def relu(x: Tensor) -> Tensor:
    """ReLU in place, of any shape: neither convolution nor batch norm needs its output going backward."""
    return F.relu(x, inplace=True)


def relu_max_pool2(x: Tensor) -> Tensor:
    """ReLU, then max pooling over pairs of time steps: (N, C, 1, T) → (N, C, 1, ⌊T / 2⌋)."""
    if has_torch_function_unary(x):  # calls are watched, as by `fedge.native.trace`
        result: Tensor = handle_torch_function(relu_max_pool2, (x,), x)
        return result
    if x.device.type == "cpu" and not (torch.jit.is_tracing() or torch.compiler.is_exporting()):
        return _ReluMaxPool2.apply(x)
    return F.max_pool2d(F.relu(x), (1, 2))


def mean_over_time(x: Tensor) -> Tensor:
    """Global average pooling: (N, C, 1, T) → (N, C).

    Sums, then divides: the gradient of `mean` would arrive in the plain order and slow the layers below.
    """
    return x.sum(dim=(2, 3)) / x.shape[3]


def flatten_channels(x: Tensor) -> Tensor:
    """(N, C, 1, T) → (N, C·T), channel by channel as `nn.Flatten` does on (N, C, T)."""
    return x.flatten(1)


class _ReluMaxPool2(torch.autograd.Function):
    """`max_pool1d(relu(x), 2)` on channels-last memory, in value and gradient.

    In a tie the gradient goes to the earlier sample. Takes the maximum first, which commutes with ReLU and
    halves its work. PyTorch's pooling kernel keeps an int64 index per output; this keeps the difference of
    each pair, whose sign determines the gradient's target.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        even, odd = _even_and_odd(x)
        y = torch.maximum(even, odd).relu_()
        ctx.save_for_backward(odd - even, y)
        ctx.samples = x.shape[3]
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> Tensor:
        difference, y = ctx.saved_tensors
        masked = torch.ops.aten.threshold_backward(grad_y, y, 0)  # where y > 0, else 0
        n, c, _, pairs = y.shape
        grad_x = torch.empty((n, c, 1, ctx.samples), dtype=y.dtype, memory_format=torch.channels_last)
        grad_x[..., 2 * pairs :] = 0
        grad_even, grad_odd = _even_and_odd(grad_x)
        torch.ops.aten.threshold_backward.grad_input(masked, difference, 0, grad_input=grad_odd)
        torch.sub(masked, grad_odd, out=grad_even)
        return grad_x


def _even_and_odd(x: Tensor) -> tuple[Tensor, Tensor]:
    """Views of the samples 0, 2, 4, … and 1, 3, 5, …; a last unpaired sample is in neither."""
    end = x.shape[3] // 2 * 2
    return x[..., 0:end:2], x[..., 1:end:2]
