"""Dispersion of the models of a leaf's clients."""

from collections.abc import Sequence

import numpy as np

from fedge.states.averaging import State, batches, part_of


def dispersion(states: Sequence[State], names: Sequence[str]) -> float:
    """Mean squared Euclidean distance of K models from their plain mean; 0 for one.

        1/K Σ_c |w_c − 1/K Σ_c w_c|²

    Sums in float64, in the order given, and in parts, as models may be large.

    Args:
        states: K models, at least one.
        names: entries to include.

    >>> dispersion([{"w": np.array([0.0, 1.0])}, {"w": np.array([2.0, 1.0])}], ["w"])
    1.0
    """
    first = {name: states[0][name] for name in names}
    total = 0.0
    for batch in batches(first):
        parts = [part_of(state, batch) for state in states]
        for name in batch:
            mean = np.zeros(parts[0][name].shape, np.float64)
            for part in parts:
                mean += part[name]
            mean /= len(parts)
            for part in parts:
                total += float(((part[name] - mean) ** 2).sum())
    return total / len(states)
