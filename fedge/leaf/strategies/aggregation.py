"""Aggregation of children, in one form for all tiers: a leaf over clients, a region over servers, the cloud.

A server asks its children, combines the accepted contributions, and sends the children their correction for
the next round:

    question               a leaf, over its clients                   above it, over servers
    children asked         a sample (`fedge.rounds.training`)         all, when a round of the server ends
    which replies count    checks, counting, quorum (`fedge.leaf`)    all: a server has a model at any time
    how they combine       Flower's strategies (`fedge.leaf.strategies.rules`)   means or a rule: of groups
                                                                      (`fedge.cloud.step`), of all in a region
    correction             c_j − c_i (`fedge.training.scaffold`)      u_j (`fedge.cloud.control`)

All contributions have one form, so a server's result is its contribution to its parent. A contribution names
the version of its starting model; in synchronous rounds all start from the current one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedge.states.averaging import State, weighted_mean


@dataclass(frozen=True)
class Contribution:
    """Contribution of one child to an aggregation.

    Attributes:
        child: partition id of a client, or index of a leaf.
        state: the new model.
        weight: number of training windows.
        version: version of the starting model: the parent's round.
        parts: contributions averaged in `state`, for a region with one round per round of its parent. The
            parent's mean is computed over them and rounded once, so the region in between changes no bit.
    """

    child: int
    state: State = field(repr=False)
    weight: float
    version: int
    parts: "tuple[Contribution, ...]" = field(default=(), repr=False)

    @property
    def leaves(self) -> "tuple[Contribution, ...]":
        """The contributions at the bottom of `parts`, in order; itself without parts."""
        return tuple(leaf for part in self.parts for leaf in part.leaves) or (self,)


def mean_of(contributions: Iterable[Contribution]) -> State:
    """Mean of children's states, weighted by their windows, in the order given.

    Raises:
        ValueError: there are no contributions.

    Source: McMahan et al. 2017, Algorithm 1, server update.
    """
    parts = [leaf for contribution in contributions for leaf in contribution.leaves]
    return weighted_mean([part.state for part in parts], [part.weight for part in parts])


def group_means(
    labels: np.ndarray, contributions: Sequence[Contribution], have_clients: Sequence[bool]
) -> list[State | None]:
    """Per child, the mean of its group's states, one object per group; None for a child on its own.

    A child without clients is left out and gets None. One with clients and weight 0 (a leaf that has just
    joined the group) gets the mean of the others.

    Args:
        labels: (S,) group of each child.
        contributions: contribution of each child, in order.
        have_clients: whether each child has clients.
    """
    means: list[State | None] = [None] * len(contributions)
    for group in np.unique(labels):
        members = [int(child) for child in np.flatnonzero(labels == group) if have_clients[int(child)]]
        if len(members) > 1:
            mean = mean_of(contributions[m] for m in members if contributions[m].weight > 0)
            for member in members:
                means[member] = mean
    return means
