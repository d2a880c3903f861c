"""Starts of a round: leaves with a common start, and starts withheld from a method.

A method comparing updates declares their required starts (`fedge.clustering.registry.NEEDS`). Where they do
not, the starts are withheld: the groups in force stay as they are, and the step says why. Shape letter: S
leaf servers.
"""

from collections.abc import Collection, Sequence

import numpy as np

from fedge.clustering.likeness.evidence import Withheld
from fedge.clustering.registry import Need
from fedge.states.averaging import State

_WORDS = "did not start from one model, so their updates cannot be compared"


def began_alike(starts: Sequence[State]) -> np.ndarray:
    """(S,) int64: leaves with the same initial bits have one number, in order of appearance."""
    known: list[State] = []
    found = np.zeros(len(starts), dtype=np.int64)
    for leaf, start in enumerate(starts):
        same = (k for k, other in enumerate(known) if start is other or _equal(start, other))
        number = next(same, len(known))
        if number == len(known):
            known.append(start)
        found[leaf] = number
    return found


def _equal(one: State, other: State) -> bool:
    return all(np.array_equal(one[name], other[name]) for name in other)


def usable(
    starts: Sequence[State] | None, began: np.ndarray, needs: Collection[Need], labels: np.ndarray | None
) -> Sequence[State] | None:
    """The starts, withheld where a method needs equal ones, and they differ.

    Args:
        starts: per leaf its initial model; None where nobody needs them.
        began: (S,) of `began_alike`.
        needs: of the method.
        labels: (S,) groups in force; None for one of all leaves.
    """
    if starts is None:
        return None
    if "one-start" in needs and began.any():
        return Withheld(f"leaves {_WORDS}")
    together = np.zeros_like(began) if labels is None else labels
    pairs = set(zip(together.tolist(), began.tolist(), strict=True))
    if "cluster-start" in needs and len(pairs) > len(set(together.tolist())):
        return Withheld(f"leaves of a cluster {_WORDS}")
    return starts
