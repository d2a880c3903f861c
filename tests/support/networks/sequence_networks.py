"""Networks on sequences that the native step takes, drawn by seed: recurrent, normed, embedded, residual."""

import numpy as np
import torch
from odd_networks import OddCase
from torch import nn

CHANNELS = (1, 2, 3, 5, 16, 17)
STEPS = (1, 2, 3, 7, 16, 21)
HIDDEN = (1, 2, 5, 15, 16, 17, 33)
TOKENS = (2, 3, 11, 40)


class Sequence(nn.Module):
    """Layers on (N, T, C) one after another, and what is made of their last answer.

    Attributes:
        steps_first: recurrent layers are given (T, N, C).
        head: "last" step, "mean" or "greatest" of all, "states" of the last layer, "flat", "convolved".
    """

    def __init__(self, layers, head, width, steps, classes, steps_first):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.head, self.steps_first = head, steps_first
        self.conv = nn.Conv1d(width, width, 3, padding=1) if head == "convolved" else None
        self.out = nn.Linear(width * (steps if head == "flat" else 1), classes)

    def forward(self, x):
        if x.is_floating_point():
            x = x.transpose(1, 2)
        states = None
        for layer in self.layers:
            if isinstance(layer, nn.GRU | nn.LSTM):
                x, states = layer(x if layer.batch_first else x.permute(1, 0, 2))
                x = x if layer.batch_first else x.transpose(0, 1)
            else:
                x = layer(x)
        return self.out(self._made(x, states))

    def _made(self, x, states):
        if self.head == "states":
            states = states[0] if isinstance(states, tuple) else states
            return torch.cat([states[-2], states[-1]], dim=1) if len(states) > 1 else states.squeeze(0)
        if self.head == "convolved":
            return torch.tanh(self.conv(x.transpose(1, 2))).mean(dim=-1)
        if self.head == "greatest":
            return x.max(dim=1).values
        return {"last": x[:, -1], "mean": x.mean(1), "flat": x.flatten(1)}[self.head]


class Residual(nn.Module):
    """x + f(norm(x)), as transformers have it."""

    def __init__(self, width, norm, act):
        super().__init__()
        self.norm, self.inner = norm, nn.Sequential(nn.Linear(width, width), act, nn.Linear(width, width))

    def forward(self, x):
        return x + self.inner(self.norm(x))


class ByChannels(nn.Module):
    """A layer on (N, C, T) for what is (N, T, C)."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.transpose(1, 2)).transpose(1, 2)


def _pick(rng, values):
    return values[int(rng.integers(len(values)))]


def sequence_case(seed, dropout=True):
    """An `OddCase` on sequences (C, T), or on tokens (T,); equal seeds give equal ones."""
    rng = np.random.default_rng([seed, 27])
    channels, steps, classes = _pick(rng, CHANNELS), _pick(rng, STEPS), _pick(rng, (2, 3, 10, 17))
    layers, width, shape = [], channels, (channels, steps)
    steps_first = bool(rng.integers(2))
    if seed % 4 == 0:
        rows, width, shape = _pick(rng, TOKENS), _pick(rng, (1, 3, 16, 20)), (steps,)
        layers.append(nn.Embedding(rows, width, padding_idx=_pick(rng, (None, 0, rows - 1))))
    heads = ["last", "mean", "greatest", "flat", "convolved"]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        for _ in range(int(rng.integers(1, 3))):
            layer, width, recurrent = _layer(rng, width, steps, steps_first, dropout)
            layers.append(layer)
            if recurrent:
                heads.append("states")
        head = _pick(rng, heads)
        if head == "states" and not isinstance(layers[-1], nn.GRU | nn.LSTM):
            head = "last"
        if head == "states" and layers[-1].num_layers > 1 and not layers[-1].bidirectional:
            head = "last"
        model = Sequence(layers, head, width, steps, classes, steps_first)
    alone = [layer for layer in model.modules() if isinstance(layer, nn.GroupNorm)]
    smallest = 2 if steps == 1 and any(layer.num_groups == layer.num_channels for layer in alone) else 1
    batch = max(smallest, _pick(rng, (1, 2, 3, 7, 16, 33)))
    windows = _pick(rng, (2, batch, batch + 1, 2 * batch + 1))
    windows += 0 < windows % batch < smallest
    return OddCase(model, shape, classes, windows, batch, smallest)


def _layer(rng, width, steps, steps_first, dropout):
    """One layer, its width, whether it is recurrent."""
    kind = int(rng.integers(5))
    if kind < 3:
        hidden, both = _pick(rng, HIDDEN), bool(rng.integers(3) == 0)
        rate = _pick(rng, (0.0, 0.3)) if dropout else 0.0
        layers = _pick(rng, (1, 1, 2, 3))
        made = _pick(rng, (nn.GRU, nn.LSTM))(
            width, hidden, layers, bias=bool(rng.integers(4)), batch_first=not steps_first,
            dropout=rate if layers > 1 else 0.0, bidirectional=both,
        )  # fmt: skip
        return made, hidden * (1 + both), True
    norm = nn.LayerNorm(width, elementwise_affine=bool(rng.integers(4)))
    groups = _pick(rng, [g for g in (1, 2, 4, width) if width % g == 0])
    if rng.integers(3) == 0:
        norm = ByChannels(_pick(rng, (nn.GroupNorm(groups, width), nn.LayerNorm((width, steps)))))
    if kind == 3:
        act = _pick(rng, (nn.GELU(), nn.SiLU(), nn.Tanh(), nn.Sigmoid(), nn.ReLU()))
        return Residual(width, norm, act), width, False
    out = _pick(rng, HIDDEN)
    drop = nn.Dropout(_pick(rng, (0.0, 0.3)) if dropout else 0.0)
    return nn.Sequential(norm, nn.Linear(width, out, bias=bool(rng.integers(2))), nn.SiLU(), drop), out, False


def sequences(case, seed=0):
    """x (N, C, T) float32, or (N, T) int64 of tokens, and y (N) int64."""
    draw = torch.Generator().manual_seed(seed)
    y = torch.randint(0, case.classes, (case.windows,), generator=draw)
    if len(case.shape) == 1:
        rows = case.model.layers[0].num_embeddings
        return torch.randint(0, rows, (case.windows, *case.shape), generator=draw), y
    return torch.randn(case.windows, *case.shape, generator=draw), y
