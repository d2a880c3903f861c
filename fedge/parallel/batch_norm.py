"""BatchNorm over a batch divided among processes, with the statistics of the whole batch.

PyTorch's SyncBatchNorm does this on GPUs only. The formulas, with sums over all windows and positions of a
channel, m in number over all processes, are

    μ = Σ x / m,  σ² = Σ (x − μ)² / m,  x̂ = (x − μ) / √(σ² + ε),  y = γ x̂ + β
    ∂x = γ / √(σ² + ε) · (∂y − Σ ∂y / m − x̂ Σ (∂y x̂) / m)

Means and squared deviations of the processes are combined in float64 (Chan et al. 1979), which avoids
differences of large numbers. Source: Ioffe and Szegedy 2015, Algorithm 1. Shape letters: N windows, C
channels.
"""

from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedge.config.registers.option import ConfigError
from fedge.parallel.shares import ProcessRank


def share_statistics(model: nn.Module, seat: ProcessRank) -> None:
    """Make every BatchNorm of a model compute its statistics over all processes; nothing else changes.

    Raises:
        ConfigError: a BatchNorm has code of its own, so its computation is unknown.
    """
    for name, layer in model.named_modules():
        if not isinstance(layer, _BatchNorm):
            continue
        if type(layer).forward is not _BatchNorm.forward:
            raise ConfigError(
                f"train.processes must be 1 with {type(layer).__name__} ({name}), a BatchNorm that computes "
                f"by code of its own; use nn.BatchNorm1d or 2d, or train.processes=1"
            )
        layer.forward = partial(_forward, layer, seat)  # type: ignore[method-assign]


def _forward(layer: _BatchNorm, seat: ProcessRank, x: Tensor) -> Tensor:
    """Normalise like `_BatchNorm.forward`, but over the batch of all processes."""
    has_statistics = layer.running_mean is not None and layer.running_var is not None
    if not layer.training and has_statistics:
        return _BatchNorm.forward(layer, x)
    layer._check_input_dim(x)
    mean, variance, count = joined_statistics(x.detach(), seat)
    if count <= 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {x.shape}")
    if layer.training and has_statistics:
        _update_running_statistics(layer, mean, variance * count / (count - 1))
    y: Tensor = _Normalise.apply(x, layer.weight, layer.bias, mean, variance, layer.eps, count, seat)
    return y


def joined_statistics(x: Tensor, seat: ProcessRank) -> tuple[Tensor, Tensor, float]:
    """Mean and variance (C,) float64 of the channels of x (N, C, …) over all processes, and m."""
    channels = x.shape[1]
    table = torch.zeros(seat.size, 2 * channels + 1, dtype=torch.float64, device=x.device)
    if seat.counts:
        variance, mean = torch.var_mean(x, _all_but_channels(x), correction=0)
        own_count = x.numel() // channels
        table[seat.rank] = torch.cat(
            [mean.double(), variance.double() * own_count, table.new_tensor([own_count])]
        )
    dist.all_reduce(table)
    means, squares, counts = table[:, :channels], table[:, channels:-1], table[:, -1:]
    count = counts.sum()
    mean = (counts * means).sum(0) / count
    deviations = (squares + counts * (means - mean) ** 2).sum(0)
    return mean, deviations / count, float(count)


def _update_running_statistics(layer: _BatchNorm, mean: Tensor, unbiased: Tensor) -> None:
    """Update the running statistics like `_BatchNorm.forward`."""
    factor = 0.0 if layer.momentum is None else layer.momentum
    with torch.no_grad():
        if layer.num_batches_tracked is not None:
            layer.num_batches_tracked.add_(1)
            if layer.momentum is None:
                factor = 1.0 / float(layer.num_batches_tracked)
        for running, current in ((layer.running_mean, mean), (layer.running_var, unbiased)):
            assert running is not None
            running.mul_(1 - factor).add_(current.to(running.dtype), alpha=factor)


class _Normalise(torch.autograd.Function):
    """y in the module's docstring; its gradient sums over all processes."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        eps: float,
        count: float,
        seat: ProcessRank,
    ) -> Tensor:
        mean, variance = mean.to(x.dtype), variance.to(x.dtype)
        ctx.save_for_backward(x, weight, mean, torch.rsqrt(variance + eps))
        ctx.count, ctx.seat, ctx.has_bias = count, seat, bias is not None
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (dy,) = gradients
        x, weight, mean, scale = ctx.saved_tensors
        channels = x.shape[1]
        broadcast = [1, channels, *[1] * (x.dim() - 2)]
        normalised = (x - mean.view(broadcast)) * scale.view(broadcast)
        own_sums = torch.cat([dy.sum(_all_but_channels(x)), (dy * normalised).sum(_all_but_channels(x))])
        total = own_sums.double()
        dist.all_reduce(total)
        outer = scale if weight is None else scale * weight
        dx = dy
        if ctx.seat.counts:  # statistics do not depend on a dummy window
            mean_term, variance_term = (total / ctx.count).to(x.dtype).split(channels)
            dx = dy - mean_term.view(broadcast) - normalised * variance_term.view(broadcast)
        dx = dx * outer.view(broadcast)
        d_bias, d_weight = own_sums.split(channels)
        return dx, None if weight is None else d_weight, d_bias if ctx.has_bias else None, *[None] * 5


def _all_but_channels(x: Tensor) -> list[int]:
    """Axes of x (N, C, …) except that of channels."""
    return [0, *range(2, x.dim())]
