"""Leaves with a common starting model in a round, and starts withheld from a method.

A method comparing updates declares which starts must be equal (`fedge.clustering.registry.NEEDS`). If they
are not, the starts are withheld from it: the groups stay unchanged, and the step records why. Shape letter: S
leaf servers.
"""

from collections.abc import Collection, Sequence

import numpy as np

from fedge.clustering.likeness.evidence import IncomparableModels
from fedge.clustering.registry import Need
from fedge.states.averaging import State

_WORDS = "did not start from one model, so their updates cannot be compared"


def number_starts(starts: Sequence[State]) -> np.ndarray:
    """(S,) int64: leaves with bit-identical starts share a number, in order of appearance."""
    distinct: list[State] = []
    numbers = np.zeros(len(starts), dtype=np.int64)
    for leaf, start in enumerate(starts):
        matches = (k for k, other in enumerate(distinct) if start is other or _equal(start, other))
        number = next(matches, len(distinct))
        if number == len(distinct):
            distinct.append(start)
        numbers[leaf] = number
    return numbers


def _equal(one: State, other: State) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in other)


def usable(
    starts: Sequence[State] | None,
    start_numbers: np.ndarray,
    needs: Collection[Need],
    labels: np.ndarray | None,
) -> Sequence[State] | None:
    """The starts, or None if a method needs equal ones and they differ.

    Args:
        starts: starting model of each leaf; None if not needed.
        start_numbers: (S,) result of `number_starts`.
        needs: needs of the method.
        labels: (S,) current groups; None for one of all leaves.
    """
    if starts is None:
        return None
    if "one-start" in needs and start_numbers.any():
        return IncomparableModels(f"leaves {_WORDS}")
    together = np.zeros_like(start_numbers) if labels is None else labels
    pairs = set(zip(together.tolist(), start_numbers.tolist(), strict=True))
    if "cluster-start" in needs and len(pairs) > len(set(together.tolist())):
        return IncomparableModels(f"leaves of a cluster {_WORDS}")
    return starts
