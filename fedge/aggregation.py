"""Averages of model states: at a leaf over its clients, at the cloud over the leaves of a cluster.

A state maps names to arrays. Pure functions; they import nothing of Flower or torch.
"""

from collections.abc import Mapping, Sequence

import numpy as np

State = dict[str, np.ndarray]


def weighted_mean(states: Sequence[Mapping[str, np.ndarray]], weights: Sequence[float]) -> State:
    """Average K model states entry by entry.

    Sums in float64 in the order given, then casts back, so equal inputs in equal order give equal
    bits. Entries that are not floating point (step counters) are copied from the first state.

    Args:
        states: K mappings, name → array; names, shapes and dtypes agree.
        weights: K non-negative numbers on any common scale, e.g. window counts.

    Raises:
        ValueError: K is zero, the lengths differ, names or shapes differ, or the weights do not sum to a
            positive finite number.

    Source: McMahan et al. 2017, Algorithm 1, server update.
    """
    shares = _shares(len(states), weights)
    first = states[0]
    for index, state in enumerate(states[1:], start=1):
        if state.keys() != first.keys():
            raise ValueError(
                f"state {index} has other entries than state 0: {sorted(state.keys() ^ first.keys())}"
            )
    return {name: _mean_entry([state[name] for state in states], shares, name) for name in first}


def _shares(count: int, weights: Sequence[float]) -> np.ndarray:
    """Return the weights divided by their sum (float64), or raise ValueError."""
    values = np.asarray(weights, dtype=np.float64)
    if count == 0 or values.shape != (count,):
        raise ValueError(
            f"need one weight per state and at least one state, got {count} states, {len(weights)} weights"
        )
    total = values.sum()
    if not np.isfinite(total) or total <= 0 or (values < 0).any():
        raise ValueError(f"weights must be non-negative with a positive finite sum, got {list(weights)}")
    shares: np.ndarray = values / total
    return shares


def _mean_entry(arrays: Sequence[np.ndarray], shares: np.ndarray, name: str) -> np.ndarray:
    """Return Σ share·array in float64, cast back to the first array's dtype."""
    first = arrays[0]
    if any(a.shape != first.shape or a.dtype != first.dtype for a in arrays):
        raise ValueError(
            f"entry {name!r} has different shapes or dtypes: {[(a.shape, str(a.dtype)) for a in arrays]}"
        )
    if not np.issubdtype(first.dtype, np.floating):
        return first.copy()
    total = np.asarray(shares[0] * first.astype(np.float64))  # not from zeros: 0.0 + -0.0 would lose a sign
    for array, share in zip(arrays[1:], shares[1:], strict=True):
        total += share * array.astype(np.float64)
    return total.astype(first.dtype)
