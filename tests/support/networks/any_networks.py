"""Networks drawn at random of what the native step knows, and their training in double precision."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedge.native.library import UnavailableError, open_library


def kernels():
    """The kernels that this processor can run; none where the native step was not built."""
    try:
        return open_library().kernels
    except UnavailableError:
        return ()


needs_native = pytest.mark.skipif(not kernels(), reason="the native step is not built")
KERNELS = ("amx", "avx512", "avx2", "neon", "plain")


def use_kernel(monkeypatch, name):
    """Have this process use a kernel; skip the test where it cannot run here."""
    if name not in kernels():
        pytest.skip(f"no kernel {name} here")
    monkeypatch.setenv("FEDGE_KERNEL", name)


class Residual(nn.Module):
    """x + f(x), f a convolution that keeps the shape."""

    def __init__(self, channels, size):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, size, padding="same")

    def forward(self, x):
        return x + torch.relu(self.conv(x))


def random_network(seed, channels, steps, classes, dropout=False):
    """A network on windows (channels, steps); equal arguments give equal ones."""
    rng = np.random.default_rng(seed)
    layers, width, left = [], channels, steps
    for _ in range(rng.integers(1, 4)):
        out, size = int(rng.integers(3, 71)), int(rng.choice([1, 3, 5, 7]))
        stride = int(rng.integers(1, 3)) if left > 8 else 1
        layers.append(nn.Conv1d(width, out, size, stride, size // 2, bias=bool(rng.integers(2))))
        width, left = out, (left - 1) // stride + 1
        if rng.integers(2):
            layers.append(nn.BatchNorm1d(width))
        layers.append([nn.ReLU(), nn.GELU(), nn.ReLU(inplace=True)][rng.integers(3)])
        if rng.integers(3) == 0:
            layers.append(Residual(width, int(rng.choice([3, 5]))))
        if left >= 6 and rng.integers(2):
            layers.append(
                [nn.MaxPool1d(2), nn.MaxPool1d(3, 2, 1), nn.AvgPool1d(2), nn.AvgPool1d(3, 2, 1)][
                    rng.integers(4)
                ]
            )
            left = left // 2 if layers[-1].kernel_size in (2, (2,)) else (left - 1) // 2 + 1
        if dropout and rng.integers(2):
            layers.append([nn.Dropout(0.3), nn.Dropout1d(0.2)][rng.integers(2)])
    if rng.integers(2):
        layers += [nn.AdaptiveAvgPool1d(1), nn.Flatten()]
    else:
        hidden = int(rng.integers(5, 40))
        layers += [nn.Flatten(), nn.Linear(width * left, hidden), nn.ReLU()]
        layers += [nn.Dropout(0.4)] * dropout
        width = hidden
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    network = nn.Sequential(*layers, nn.Linear(width, classes))
    for layer in network.modules():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    torch.random.set_rng_state(state)
    return network


def learnable(windows, channels, steps, classes, seed=0):
    """Windows and labels: the class shifts one channel."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(0, classes, (windows,), generator=generator)
    x = torch.randn(windows, channels, steps, generator=generator)
    x[torch.arange(windows), y % channels] += 0.5
    return x, y


def in_double(network, x, y, settings, generator):
    """The weights after training in double precision, one after another: the truth to compare with."""
    network = copy.deepcopy(network).double().train()
    sgd = torch.optim.SGD(
        network.parameters(), settings.lr, settings.momentum, weight_decay=settings.weight_decay
    )
    for _ in range(settings.epochs):
        for batch in torch.randperm(len(y), generator=generator).split(settings.batch_size):
            sgd.zero_grad()
            logits = network(x[batch].double())
            F.cross_entropy(logits, y[batch], label_smoothing=settings.label_smoothing).backward()
            if settings.clip_norm:
                nn.utils.clip_grad_norm_(network.parameters(), settings.clip_norm)
            sgd.step()
    return torch.cat([p.detach().reshape(-1) for p in network.parameters()]).numpy()


def flat_weights(network, state):
    """The trained weights of a state, one after another, in double precision."""
    return np.concatenate([state[name].reshape(-1) for name, _ in network.named_parameters()]).astype(
        np.float64
    )
