"""Scale of windows: mean and deviation of each channel, combined from each client's sums.

A client's count, mean and sum of squared deviations are enough (Chan, Golub and LeVeque 1983, "Algorithms for
computing the sample variance"), so windows need not be in one place; every engine combines the same parts in
the same order. Shape letters: N windows, C channels, T samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hhar.windows.window_file import MOST


@dataclass(frozen=True)
class ChannelSums:
    """A client's sums over its training windows, from which the common scale follows.

    Attributes:
        count: values of each channel, N · T.
        mean: mean of each channel (C).
        spread: sum of squared deviations from the mean, of each channel (C).
    """

    count: int
    mean: tuple[float, ...]
    spread: tuple[float, ...]


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of each channel (C), rounded to float32; empty without scaling."""

    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


def channel_sums(x: np.ndarray) -> ChannelSums:
    """The sums of windows x (N, C, …) float32, in float64; of tokens (int64) none.

    One channel at a time: all of them in float64, and once more for the deviations, would take several times
    the memory of the windows.
    """
    if x.dtype == np.int64:
        return ChannelSums(0, (), ())  # tokens have no scale
    means, spreads = [], []
    for channel in range(x.shape[1]):
        values = x[:, channel].astype(np.float64)
        mean = values.mean() if values.size else np.float64(0)
        values -= mean
        values *= values
        means.append(float(mean))
        spreads.append(float(values.sum()))
    return ChannelSums(math.prod((len(x), *x.shape[2:])), tuple(means), tuple(spreads))


def scale_of(parts: Sequence[ChannelSums]) -> Scale:
    """Mean and standard deviation of each channel over all parts, added up in the order given.

    A channel constant to float32 carries no information: its deviation is 1, so the scaled channel is zero
    instead of rounding noise.

    >>> scale_of([ChannelSums(2, (1.0,), (2.0,)), ChannelSums(2, (5.0,), (2.0,))])  # of 0, 2, 4, 6
    Scale(mean=(3.0,), std=(2.2360680103302,))
    """
    total = sum(part.count for part in parts)
    means, stds = [], []
    for channel in range(len(parts[0].mean)):
        mean = sum(part.count * part.mean[channel] for part in parts) / total
        spread = sum(p.spread[channel] + p.count * (p.mean[channel] - mean) ** 2 for p in parts)
        std = math.sqrt(spread / total)
        if std <= np.finfo(np.float32).eps * abs(mean):
            std = 1.0
        means.append(float(np.float32(mean)))
        stds.append(float(np.float32(std)))
    return Scale(tuple(means), tuple(stds))


def apply_scale(x: np.ndarray, scale: Scale) -> None:
    """Scale windows x (N, C, …) float32, in place; `unscalable` finds results that are too large."""
    for channel, (mean, std) in enumerate(zip(scale.mean, scale.std, strict=True)):
        x[:, channel] -= np.float32(mean)
        with np.errstate(over="ignore"):
            x[:, channel] /= np.float32(std)


def unscalable(x: np.ndarray, scale: Scale, channels: Sequence[str]) -> str:
    """Message on a channel whose scaled numbers are too large to compute with; empty if there is none.

    If training windows hardly vary, others are divided by nearly zero.

    Args:
        x: scaled windows (N, C, …) of one client.
        scale: by which they were scaled.
        channels: names of the C channels.
    """
    for channel, (mean, std) in enumerate(zip(scale.mean, scale.std, strict=True)):
        values = x[:, channel]
        if values.size and not max(values.max(), -values.min()) <= MOST:
            return (
                f"channel {channels[channel]!r} has numbers of more than {MOST:g} deviations of the training "
                f"windows of all clients (mean {mean:.4g}, deviation {std:.4g})"
            )
    return ""
