"""Aggregation of children, one notion for all tiers: a leaf over clients, a region over servers, the cloud.

A server asks its children, combines the accepted contributions, and sends the children the correction for the
next round:

    question               a leaf, over its clients                   above it, over servers
    children asked         a sample (`fedge.rounds.training`)         all, when a round of the server ends
    which replies count    checks, counting, quorum (`fedge.leaf`)    all: a server has a model at any time
    how they combine       Flower's strategies (`fedge.leaf.strategies.rules`)   means or a rule: of groups
                                                                      (`fedge.cloud.step`), of all in a region
    correction             c_j − c_i (`fedge.training.scaffold`)      u_j (`fedge.cloud.control`)

Contributions have one form, so a server's result is its contribution to the server above it. A contribution
names the version of its starting model: here all of a round started from the present one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedge.states.averaging import State, weighted_mean


@dataclass(frozen=True)
class Contribution:
    """Contribution of one child of a server to an aggregation.

    Attributes:
        child: partition id of a client, or index of a leaf.
        state: the new model.
        weight: its training windows.
        version: of the starting model: the round of the server above it.
        parts: states averaged in the state of a region with one round per round of the server above. A mean
            further up is computed over them and rounded once, so that region changes no bit of it.
    """

    child: int
    state: State = field(repr=False)
    weight: float
    version: int
    parts: "tuple[Contribution, ...]" = field(default=(), repr=False)

    @property
    def leaves(self) -> "tuple[Contribution, ...]":
        """Leaves of the contribution: itself, or the leaves' of all its parts, in order."""
        return tuple(leaf for part in self.parts for leaf in part.leaves) or (self,)


def mean_of(contributions: Iterable[Contribution]) -> State:
    """Mean of children's states, weighted by their windows, in the order given.

    Raises:
        ValueError: there are none.

    Source: McMahan et al. 2017, Algorithm 1, server update.
    """
    given = [leaf for each in contributions for leaf in each.leaves]
    return weighted_mean([each.state for each in given], [each.weight for each in given])


def group_means(labels: np.ndarray, brought: Sequence[Contribution]) -> list[State | None]:
    """Per child the mean of its group's states, one object for the group; None for a child alone.

    A child of weight 0, a leaf without clients, stands in no mean and gets none.

    Args:
        labels: (S,) group of each child.
        brought: per child, in order.
    """
    means: list[State | None] = [None] * len(brought)
    for group in np.unique(labels):
        members = [int(child) for child in np.flatnonzero(labels == group) if brought[int(child)].weight > 0]
        if len(members) > 1:
            mean = mean_of(brought[member] for member in members)
            for member in members:
                means[member] = mean
    return means
