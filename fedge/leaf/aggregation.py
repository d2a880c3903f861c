"""Aggregation of children, one notion for all tiers: a leaf over its clients, the cloud over its leaves.

A server asks its children, some of what they bring counts, it is combined, and the children are told with
what correction to go on:

    question               a leaf, over its clients                   the cloud, over its leaves
    who is asked           a sample (`fedge.rounds.training`)         all, when a cloud step is due
    which replies count    checks, counting, quorum (`fedge.leaf`)    all: a leaf has a model at any time
    how they combine       Flower's strategies (`fedge.leaf.rules`)   means of groups (`fedge.cloud.step`)
    with what correction   c_j − c_i (`fedge.training.scaffold`)      u_j (`fedge.cloud.control`)

What a child brings has one form, so a server's result can be its contribution to the server above it. It
names the version of the model that it started from: here all of a round started from the present one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fedge.states.averaging import State, weighted_mean


@dataclass(frozen=True)
class Contribution:
    """What one child of a server brings to an aggregation.

    Attributes:
        child: partition id of a client, or index of a leaf.
        state: the model that it made.
        weight: its training windows.
        version: of the model that it started from: the round of the server above it.
    """

    child: int
    state: State = field(repr=False)
    weight: float
    version: int


def mean_of(contributions: Iterable[Contribution]) -> State:
    """Return the mean of what children bring, weighted by their windows, in the order given.

    Raises:
        ValueError: there are none.

    Source: McMahan et al. 2017, Algorithm 1, server update.
    """
    given = list(contributions)
    return weighted_mean([each.state for each in given], [each.weight for each in given])
