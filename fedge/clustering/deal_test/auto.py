"""Groups whose number the evidence decides: `cluster.count = "auto"`.

Clients' updates of one model are tested for groups of their leaves
(`fedge.clustering.deal_test.closed_test`). The result is tried (`fedge.clustering.memberships.strangers`)
and must last (`fedge.clustering.memberships.proposals`) before it counts. Shape letters: S leaf servers, K
clients.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from fedge.clustering.deal_test import deals, reach
from fedge.clustering.deal_test.closed_test import ClosedTest, DealTests
from fedge.clustering.likeness.updates import Likeness
from fedge.config.sections.cluster import ClusterConfig
from fedge.seeding import Purpose, numpy_stream


def run_deal_tests(likeness: Likeness, config: ClusterConfig, seed: int) -> list[deals.DealTest] | str:
    """The cuts of all leaves and of their parts, allowed or not, or the reason why there are none.

    Deals come from the same streams throughout the run, so equal updates have equal tests.

    Args:
        likeness: likeness of updates from one start.
        config: its `level` is used.
        seed: root of the run's streams.
    """
    leaves = tuple(int(leaf) for leaf in np.unique(likeness.leaf_of))
    tests = DealTests(likeness.cosines, likeness.leaf_of, partial(_stream, seed, leaves), likeness.strata)
    if len(leaves) < reach.FEWEST_LEAVES or len(likeness.leaf_of) < reach.FEWEST_CLIENTS:
        return (
            f"whether there are groups can be tested from {reach.FEWEST_LEAVES} leaves and "
            f"{reach.FEWEST_CLIENTS} clients on that train from one start"
        )
    if tests.floor(leaves) == 1:
        return "whether there are groups cannot be tested if no client can be dealt to another leaf"
    return ClosedTest(tests, leaves, config.level).chain()


def p_of_cut(likeness: Likeness, leaves: Sequence[int], part: Sequence[int], seed: int) -> float:
    """p of one cut of some leaves, compared with all cuts in all deals of their clients.

    Args:
        likeness: likeness of updates from one start.
        leaves: the leaves to cut, in order.
        part: those of one side.
        seed: root of the run's streams.
    """
    clients = np.flatnonzero(np.isin(likeness.leaf_of, leaves))
    involved = np.unique(likeness.leaf_of[clients])
    leaf_index = np.searchsorted(involved, likeness.leaf_of[clients])
    inner = [cosines[np.ix_(clients, clients)] for cosines in likeness.cosines]
    strata = None if likeness.strata is None else likeness.strata[clients]
    rng = numpy_stream(seed, Purpose.CLUSTERING, 3, *leaves)
    return deals.deal_test(inner, leaf_index, rng, strata=strata, cut=np.isin(involved, part))[2]


def _stream(seed: int, all_leaves: tuple[int, ...], leaves: tuple[int, ...]) -> np.random.Generator:
    """Random stream of the deals of some leaves; the same in every round."""
    return numpy_stream(seed, Purpose.CLUSTERING, 1, *(() if leaves == all_leaves else leaves))
