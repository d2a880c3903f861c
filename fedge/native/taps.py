"""Geometry of convolutions and pools over images, for the native step: size, stride and padding by axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedge.native.sequences import require


@dataclass(frozen=True)
class Taps:
    """Size, stride and padding of taps, each over lines and over steps."""

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    def over_lines(self, image: Tensor) -> dict[str, Any]:
        """Fields of a node, for an image (N, C, H, W)."""
        return {
            "size": self.size[1], "stride": self.stride[1], "padding": self.padding[1],
            "lines": (image.shape[2], self.size[0], self.stride[0], self.padding[0]),
        }  # fmt: skip

    def need_lines(self, image: Tensor) -> bool:
        """Whether taps reach beyond the one line of a series, (N, C, 1, T)."""
        is_single_line = (self.size[0], self.stride[0], self.padding[0]) == (1, 1, 0)
        return image.shape[2] > 1 or not is_single_line


def pair_of(value: Any, label: str) -> tuple[int, int]:
    """Argument over lines and over steps; a single number stands for both.

    Raises:
        UnknownError: `value` is neither one nor two whole numbers.
    """
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    require(len(pair) in (1, 2) and all(isinstance(number, int) for number in pair), f"{label} {value}")
    return pair[0], pair[-1]


def taps_of(a: dict[str, Any], size: tuple[int, int]) -> Taps:
    """Taps of a convolution or a pool over an image.

    Raises:
        UnknownError: taps are dilated, or may lie entirely in the padding.
    """
    require(pair_of(a.get("dilation", 1), "dilation") == (1, 1), "dilation")
    stride = size if a["stride"] in (None, []) else pair_of(a["stride"], "stride")
    padding = a["padding"]
    if isinstance(padding, str):
        require(padding == "valid" or all(number % 2 for number in size), f"padding {padding}")
        padding = tuple((number - 1) // 2 if padding == "same" else 0 for number in size)
    taps = Taps(size, stride, pair_of(padding, "padding"))
    require(all(p < s for p, s in zip(taps.padding, size, strict=True)), f"padding {padding}")
    return taps
