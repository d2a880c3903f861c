"""Passes of local training over a client's windows: whole epochs, or a number of steps.

With a number H, every client takes H steps, as in protocols of hierarchical methods (the public code of
HierFAVG and MTGC). Each epoch has its own permutation: a client with few windows goes through several epochs
until H is reached; one with many stops in the middle of an epoch, and starts with a fresh permutation the
next time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np


def steps_of_passes(windows: int, batch_size: int, epochs: int, steps: int = 0) -> list[int]:
    """Optimiser steps in each pass over the windows.

    Args:
        windows: number of the client's windows, at least 1.
        batch_size: windows per step; the last step of a whole pass may have fewer.
        epochs: passes, where `steps` is 0.
        steps: H, in place of epochs; the last pass may stop before its end.

    >>> steps_of_passes(windows=70, batch_size=32, epochs=2)
    [3, 3]
    >>> steps_of_passes(windows=70, batch_size=32, epochs=2, steps=4)
    [3, 1]
    """
    per_epoch = -(-windows // batch_size)
    if not steps:
        return [per_epoch] * epochs
    return [per_epoch] * (steps // per_epoch) + [steps % per_epoch] * bool(steps % per_epoch)


def windows_seen(windows: int, batch_size: int, epochs: int, steps: int = 0) -> int:
    """Windows passing through the model, counted with repetition; arguments as of `steps_of_passes`.

    >>> windows_seen(windows=70, batch_size=32, epochs=2)
    140
    >>> windows_seen(windows=70, batch_size=32, epochs=2, steps=4)  # 70 in three steps, 32 in the fourth
    102
    """
    if not steps:
        return windows * epochs
    per_epoch = -(-windows // batch_size)
    return steps // per_epoch * windows + steps % per_epoch * batch_size


def mean_steps(windows: Iterable[int], batch_size: int, epochs: int) -> int:
    """H = max(1, epochs · ⌈mean n_i / batch⌉): the steps of a client with as many windows as the mean.

    Args:
        windows: n_i of all training clients.
        batch_size: windows per step.
        epochs: epochs of the mean client.

    >>> mean_steps([10, 100, 40], batch_size=25, epochs=2)  # 50 windows on average: two batches, twice
    4
    """
    counts = list(windows)
    return max(1, epochs * math.ceil(sum(counts) / len(counts) / batch_size)) if counts else 1


def mean_of_passes(losses: Sequence[float], steps: Sequence[int], windows: int, batch_size: int) -> float:
    """Mean over the windows of all passes, of the passes' means; fewer after an early stop."""
    counts = [min(windows, count * batch_size) for count in steps]
    return float(np.mean(losses) if len(set(counts)) <= 1 else np.average(losses, weights=counts))
