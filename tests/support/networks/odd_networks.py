"""Odd networks that the native step takes, odd windows, and odd settings, drawn by seed.

Sizes lie beside those that vectors and tiles are made for; kernels are as long as the window, strides longer
than kernels and pools, batches of one window, and the last batch of one.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

CHANNELS = (1, 1, 2, 3, 5, 16, 17, 33, 64, 65)
STEPS = (1, 2, 3, 7, 16, 17, 31, 32, 33, 64, 65, 100)
WIDTHS = (1, 1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 63, 65, 97, 130, 257)
CLASSES = (1, 2, 3, 10, 17, 33)
_MOST = 40_000  # multiplications of a window, so that a sanitizer takes no minute for one


@dataclass(frozen=True)
class OddCase:
    """A network with the shape of its windows.

    Attributes:
        model: by seed.
        shape: (C, T) of a window.
        classes: of its logits.
        windows, batch: how many, and how many of them a step takes.
        smallest: windows that a batch must have (`fedge.native.plan.Plan.smallest_batch`).
    """

    model: nn.Module
    shape: tuple[int, int]
    classes: int
    windows: int
    batch: int
    smallest: int


class _MeanAll(nn.Module):
    """The mean over all time, as a line of `forward`."""

    def forward(self, x):
        return x.mean(dim=2)


class _Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


def _pick(rng, values):
    return values[int(rng.integers(len(values)))]


def odd_case(seed):
    """An `OddCase`; equal seeds give equal ones."""
    rng = np.random.default_rng([seed, 24])
    channels, steps, classes = _pick(rng, CHANNELS), _pick(rng, STEPS), _pick(rng, CLASSES)
    layers, width, left, needs_two, cost = [], channels, steps, False, 0
    for _ in range(int(rng.integers(0, 4))):
        added, width, left, cost, alone = _block(rng, width, left, cost)
        layers += added
        needs_two |= alone
    layers += _head(rng, width, left, classes)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for layer in layers:
            for inner in layer.modules():
                if hasattr(inner, "reset_parameters"):
                    inner.reset_parameters()
    if rng.integers(8) == 0:  # the first layer with weights is frozen
        next(iter(nn.Sequential(*layers).parameters())).requires_grad_(False)
    windows, batch = _windows(rng, 2 if needs_two else 1)
    return OddCase(nn.Sequential(*layers), (channels, steps), classes, windows, batch, 1 + needs_two)


def _windows(rng, smallest):
    """Numbers of windows and of a batch: of one, a last one of one, one that is larger than all."""
    batch = _pick(rng, (1, 2, 3, 7, 16, 33))
    windows = _pick(rng, (1, 2, batch, batch + 1, 2 * batch + 1, 19))
    batch = max(batch, smallest)
    return windows + (0 < windows % batch < smallest), batch


def _block(rng, width, left, cost):
    """A convolution with what may follow; returns layers, width, steps, cost, whether a batch needs two."""
    sizes = [size for size in (1, 2, 3, 4, 5, 7, left, left) if size <= left]
    size = _pick(rng, sizes)
    padding = _pick(rng, (0, 0, 1, size // 2, size - 1)) if size > 1 else _pick(rng, (0, 0, 1))
    stride = _pick(rng, (1, 1, 1, 2, 3, size, size + 1, left))
    out_left = (left + 2 * padding - size) // stride + 1
    out = _pick(rng, [w for w in WIDTHS if cost + w * width * size * out_left <= _MOST] or [1])
    cost += out * width * size * out_left
    layers = [nn.Conv1d(width, out, size, stride, padding, bias=bool(rng.integers(2)))]
    width, left, alone = out, out_left, False
    if rng.integers(2):
        eps, momentum = _pick(rng, (1e-5, 1e-5, 1e-3, 1e-12)), _pick(rng, (0.1, 0.1, 1.0, 0.01))
        layers.append(nn.BatchNorm1d(width, eps, momentum, affine=bool(rng.integers(4))))
        alone = left == 1
    layers.append(
        _pick(rng, (nn.ReLU(), nn.ReLU(inplace=True), nn.GELU(), nn.GELU(approximate="tanh"), nn.Identity()))
    )
    if rng.integers(4) == 0 and cost + 3 * width * width * left <= _MOST:
        layers.append(_Residual(nn.Sequential(nn.Conv1d(width, width, 3, padding=1), nn.ReLU())))
        cost += 3 * width * width * left
    if left > 1 and rng.integers(2):
        layers.append(_pool(rng, left))
        left = layers[-1](torch.zeros(1, 1, left)).shape[-1]
    if rng.integers(3) == 0:
        rate = _pick(rng, (0.0, 0.01, 0.5, 0.99))
        layers.append(_pick(rng, (nn.Dropout, nn.Dropout1d))(rate))
    return layers, width, left, cost, alone


def _pool(rng, left):
    """A pool of any size; its stride may be more or less than that."""
    size = _pick(rng, [s for s in (1, 2, 3, 4, 5, left) if s <= left])
    stride, padding = _pick(rng, (1, 2, 3, size, size + 2)), _pick(rng, (0, 0, size // 2))
    return _pick(rng, (nn.MaxPool1d, nn.AvgPool1d))(size, stride, padding)


def _head(rng, width, left, classes):
    """From a series to logits."""
    kind = int(rng.integers(4))
    if kind == 0:
        return [nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, classes, bias=bool(rng.integers(2)))]
    if kind == 1:
        return [_MeanAll(), nn.Linear(width, classes)]
    if kind == 2:
        return [nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(width, classes)]
    hidden = _pick(rng, (1, 5, 17, 64))
    return [nn.Flatten(), nn.Linear(width * left, hidden), nn.ReLU(), nn.Linear(hidden, classes)]


# --- windows ----------------------------------------------------------------------------------------------


def _one(value):
    return lambda draw, shape: torch.full(shape, value)


def _scaled(scale, middle=0.0):
    return lambda draw, shape: torch.randn(shape, generator=draw) * scale + middle


def _alternating(draw, shape):
    return (1.0 - 2.0 * (torch.arange(shape[-1]) % 2)).expand(shape).clone()


def _outlier(draw, shape):
    x = torch.randn(shape, generator=draw)
    x[(-1, 0, -1) if x.dim() > 2 else (-1, -1)] = 1e6
    return x


def _still(draw, shape):
    """One channel at rest, the others as usual."""
    x = torch.randn(shape, generator=draw)
    x[:, 0] = 9.81
    return x


def _alike(draw, shape):
    return torch.randn(shape[1:], generator=draw).expand(shape).clone()


def _with(value):
    def made(draw, shape):
        x = torch.randn(shape, generator=draw)
        x[(0,) * min(x.dim(), 3)] = value
        return x

    return made


FINITE = {
    "usual": _scaled(1.0),
    "constant": _one(1.0),
    "constant 1e4": _one(1e4),
    "all zero": _one(0.0),
    "all −0": _one(-0.0),
    "1e-38": _scaled(1e-38),
    "1e-42": _scaled(1e-42),
    "1e-20": _scaled(1e-20),
    "1e4": _scaled(1e4),
    "about 1e4": _scaled(1.0, 1e4),
    "alternating": _alternating,
    "one outlier": _outlier,
    "a still channel": _still,
    "all alike": _alike,
}
WILD = {"1e30": _scaled(1e30), "one NaN": _with(float("nan")), "one infinity": _with(float("inf"))}
WINDOWS = {**FINITE, **WILD}


def odd_windows(kind, case, seed=0):
    """x (N, C, T) float32 and y (N) int64."""
    draw = torch.Generator().manual_seed(seed)
    x = WINDOWS[kind](draw, (case.windows, *case.shape)).float()
    return x, torch.randint(0, case.classes, (case.windows,), generator=draw)


# --- settings ---------------------------------------------------------------------------------------------


def odd_terms(seed):
    """The six terms of a step, in the order of `fedge.native.training.Descent`, by name."""
    rng = np.random.default_rng([seed, 25])
    return {
        "lr": _pick(rng, (0.05, 1e-3, 1e-8, 0.5)),
        "momentum": _pick(rng, (0.0, 0.0, 0.9, 0.99)),
        "weight_decay": _pick(rng, (0.0, 0.0, 1e-3, 0.5)),
        "clip_norm": _pick(rng, (0.0, 0.0, 0.5, 1e-6)),
        "label_smoothing": _pick(rng, (0.0, 0.0, 0.1, 0.9)),
        "prox_mu": _pick(rng, (0.0, 0.0, 0.1, 2.0)),
    }
