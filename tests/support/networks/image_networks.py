"""Networks on images that the native step takes, drawn by seed: small and odd, some of many weights."""

import numpy as np
import torch
from odd_networks import OddCase
from torch import nn

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 13)
CHANNELS = (1, 1, 2, 3, 5)
WIDTHS = (1, 2, 3, 7, 15, 16, 17, 33)
WIDE = 97  # 3 × 3 × 97 × 97 weights are more than stay in the second cache
_MOST = 60_000  # multiplications of a window, so that a sanitizer takes no minute for one


class Shortcut(nn.Module):
    """f(x) + x, or f(x) + a convolution of single pixels where f changes the shape."""

    def __init__(self, inner, shortcut):
        super().__init__()
        self.inner, self.shortcut = inner, shortcut

    def forward(self, x):
        return torch.relu(self.inner(x) + self.shortcut(x))


class MeanOfPixels(nn.Module):
    """The mean over all pixels, as a line of `forward`."""

    def forward(self, x):
        return x.mean(dim=(2, 3))


def _pick(rng, values):
    return values[int(rng.integers(len(values)))]


def image_case(seed):
    """An `OddCase` on images (C, H, W); equal seeds give equal ones."""
    rng = np.random.default_rng([seed, 26])
    shape = (_pick(rng, CHANNELS), _pick(rng, SIZES), _pick(rng, SIZES))
    classes = _pick(rng, (2, 3, 10, 17))
    layers, left = _layers(rng, shape)
    layers += _head(rng, left, classes)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for layer in layers:
            for inner in layer.modules():
                if hasattr(inner, "reset_parameters"):
                    inner.reset_parameters()
    model = nn.Sequential(*layers)
    if rng.integers(8) == 0:  # the first layer with weights is frozen
        next(iter(model.parameters())).requires_grad_(False)
    smallest = 2 if any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules()) else 1
    batch = max(smallest, _pick(rng, (1, 2, 3, 7, 16)))
    windows = _pick(rng, (2, batch, batch + 1, 2 * batch + 1))
    windows += 0 < windows % batch < smallest
    return OddCase(model, shape, classes, windows, batch, smallest)


def _layers(rng, shape):
    """One to three blocks; layers, and the shape that is left."""
    layers, cost = [], 0
    wide = rng.integers(6) == 0 and shape[1] * shape[2] <= 9
    if wide:
        layers += [nn.Conv2d(shape[0], WIDE, 1), nn.ReLU(), nn.Conv2d(WIDE, WIDE, 3, padding=1), nn.ReLU()]
        shape = (WIDE, *shape[1:])
    for _ in range(1 if wide else int(rng.integers(1, 4))):
        added, shape, cost = _block(rng, shape, cost)
        layers += added
    return layers, shape


def _taps(rng, shape):
    """Size, stride and padding of a convolution that fits on an image."""
    size = tuple(_pick(rng, [s for s in (1, 2, 3, 3, 5, n) if s <= n]) for n in shape[1:])
    stride = tuple(_pick(rng, (1, 1, 1, 2, s + 1)) for s in size)
    padding = tuple(_pick(rng, (0, s // 2, s - 1)) for s in size)
    return size, stride, padding


def _block(rng, shape, cost):
    """A convolution with what may follow; returns layers, shape, cost."""
    size, stride, padding = _taps(rng, shape)
    left = [(n + 2 * p - s) // t + 1 for n, s, t, p in zip(shape[1:], size, stride, padding, strict=True)]
    of_one = shape[0] * size[0] * size[1] * left[0] * left[1]
    out = _pick(rng, [w for w in WIDTHS if cost + w * of_one <= _MOST] or [1])
    conv = nn.Conv2d(shape[0], out, size, stride, padding, bias=bool(rng.integers(2)))
    after = [nn.BatchNorm2d(out, affine=bool(rng.integers(4)))] if rng.integers(2) else []
    kind = int(rng.integers(5))
    if kind == 0:
        inner = nn.Sequential(conv, *after, nn.ReLU(), nn.Conv2d(out, out, 3, padding=1))
        short = _shortcut(shape, (out, *left), size, stride, padding)
        layers = [Shortcut(inner, short)] if short is not None else [inner]
        cost += 9 * out * out * left[0] * left[1]
    else:
        layers = [conv, *after, (nn.ReLU(), nn.ReLU(inplace=True), nn.GELU(), nn.Identity())[kind - 1]]
    shape = (out, *left)
    if min(left) > 1 and rng.integers(2):
        layers.append(_pool(rng, left))
        shape = tuple(layers[-1](torch.zeros(1, *shape)).shape[1:])
    if rng.integers(3) == 0:
        layers.append(_pick(rng, (nn.Dropout, nn.Dropout2d))(_pick(rng, (0.0, 0.3, 0.9))))
    return layers, shape, cost + out * of_one


def _shortcut(shape, left, size, stride, padding):
    """From the shape of a block's input to that of its output; None where single pixels do not give that."""
    if shape == left:
        return nn.Identity()
    there = tuple((n - 1) // t + 1 for n, t in zip(shape[1:], stride, strict=True))
    return nn.Conv2d(shape[0], left[0], 1, stride, bias=False) if there == tuple(left[1:]) else None


def _pool(rng, left):
    """A pool of any size; its stride may be more or less than that."""
    size = tuple(_pick(rng, [s for s in (1, 2, 3, n) if s <= n]) for n in left)
    stride = tuple(_pick(rng, (1, 2, s)) for s in size)
    padding = tuple(_pick(rng, (0, 0, s // 2)) for s in size)
    return _pick(rng, (nn.MaxPool2d, nn.AvgPool2d))(size, stride, padding)


def _head(rng, shape, classes):
    """From an image to logits."""
    kind = int(rng.integers(4))
    if kind == 0:
        return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(shape[0], classes)]
    if kind == 1:
        return [MeanOfPixels(), nn.Linear(shape[0], classes, bias=bool(rng.integers(2)))]
    if kind == 2:
        return [nn.AdaptiveMaxPool2d((1, 1)), nn.Flatten(), nn.Linear(shape[0], classes)]
    return [nn.Flatten(), nn.Linear(shape[0] * shape[1] * shape[2], 7), nn.ReLU(), nn.Linear(7, classes)]
