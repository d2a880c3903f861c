"""Low-rank adapters (LoRA, Hu et al. 2022) on a small transformer; entries have PEFT's names.

Only adapters and head train. With `train.exchange="trainable"` the rest is sent once, and with
`train.start="backbone.safetensors"` it comes from a file.
"""

import math

import torch
from torch import Tensor, nn


class Adapted(nn.Module):
    """A frozen linear layer W with a trainable B A of rank r: y = W x + (α / r) B A x."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float):
        """Freeze `base`, and add matrices of rank `rank`."""
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, base.out_features, bias=False)})
        nn.init.zeros_(self.lora_B["default"].weight)
        self.scale = alpha / rank

    def forward(self, x: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        return self.base_layer(x) + self.scale * self.lora_B["default"](self.lora_A["default"](x))


class Transformer(nn.Module):
    """Tokens are samples of a window; one attention block, two layers, the class from the tokens' mean."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, hidden: int = 64, rank: int = 4):
        """Take windows of `input_shape` (C, T); rank 0 trains everything."""
        super().__init__()
        channels, samples = input_shape
        self.place = nn.Parameter(torch.randn(samples, hidden) / 10)
        self.embed, self.qkv = nn.Linear(channels, hidden), nn.Linear(hidden, 3 * hidden)
        self.out, self.up, self.down = (
            nn.Linear(hidden, hidden),
            nn.Linear(hidden, 4 * hidden),
            nn.Linear(4 * hidden, hidden),
        )
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        if rank:
            self.requires_grad_(False)
            for name in ("qkv", "out", "up", "down"):
                setattr(self, name, Adapted(getattr(self, name), rank, alpha=2 * rank))
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(N, C, T) → (N, classes)."""
        x = self.embed(x.transpose(1, 2)) + self.place
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=2)
        x = x + self.out(torch.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[2]), dim=2) @ v)
        return self.head((x + self.down(torch.relu(self.up(self.norm2(x))))).mean(dim=1))
