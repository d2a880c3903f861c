"""Groups whose number the evidence decides: `cluster.count = "auto"`.

While all leaves start from one model, their clusters are found anew in every step: leaves are parted as long
as `fedge.clustering.significance` finds groups. Once clusters have models of their own, leaves of different
clusters differ for that reason alone. So from then on

- each cluster's leaves, which still start from one model, may be parted further, and
- a leaf goes where other leaves' models do better at its clients than those of its own cluster; since these
  have seen its clients' data for rounds and the others have not, that takes a real change,

until a probe (`cluster.probe-every`) lets all leaves start from one model again: only then can clusters
merge. Its groups are tried (`fedge.clustering.trial`) and must last (`fedge.clustering.membership`)
before they count. Shape letters: S leaf servers, K clients.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fedge.clustering import deals, reach
from fedge.clustering.affinity import FEWEST_LEAVES
from fedge.clustering.closed import ClosedTest, DealTests
from fedge.clustering.evidence import Evidence, NotComparable
from fedge.clustering.reach import STRONG
from fedge.clustering.registry import Grouping
from fedge.clustering.signals import affinity, loss_matrix, relationships_among
from fedge.clustering.significance import Bisect, CutTest, divide, labels_after
from fedge.clustering.similarity import number_by_first_appearance
from fedge.clustering.trial import others
from fedge.clustering.updates import Likeness
from fedge.config.sections.cluster import ClusterConfig
from fedge.seeding import Purpose, numpy_stream


def auto_grouping(
    evidence: Evidence, config: ClusterConfig, before: np.ndarray | None, bisect: Bisect
) -> Grouping:
    """The clusters that the evidence speaks for, with the tests that say so.

    Args:
        evidence: with cross-losses.
        config: its `level` is used.
        before: (S,) labels in force, or None.
        bisect: finds the best cut of some leaves in two.
    """
    present = np.zeros(len(evidence.models), dtype=np.int64) if before is None else before
    if len(present) < FEWEST_LEAVES:
        reason = f"whether there are groups can be tested from {FEWEST_LEAVES} leaves on"
        return Grouping(present, None, {"skipped": reason})
    matrix = loss_matrix(evidence.cross)
    known = [int(leaf) for leaf in np.flatnonzero(np.isfinite(matrix).all(axis=0))]
    facts: dict[str, Any] = {}
    if len(known) < len(present):
        silent = sorted(set(range(len(present))) - set(known))
        facts["silent"] = silent  # leaves without any answer stay where they are
    origin = np.zeros_like(present) if evidence.common_start else present
    labels = origin if evidence.common_start else moved(matrix, present)
    tests: list[CutTest] = []
    if np.array_equal(labels, origin):
        rng = numpy_stream(evidence.seed, Purpose.CLUSTERING, evidence.global_round)
        level = STRONG if isinstance(config.level, str) else config.level
        tests = _tests(evidence, origin, known, bisect, level, rng)
        labels = labels_after(tests, origin, level)
    facts["tests"] = [test.to_json() for test in tests]
    return Grouping(labels, _similarity(evidence), facts)


def dealt_tests(likeness: Likeness, config: ClusterConfig, seed: int) -> list[deals.Deal] | str:
    """The cuts of all leaves and of their parts, allowed or not, or why there are none.

    Deals are drawn from the same streams through the run, so that equal updates have equal tests.

    Args:
        likeness: of updates from one start.
        config: its `level` is used.
        seed: root of the run's streams.
    """
    there = tuple(int(leaf) for leaf in np.unique(likeness.leaf_of))
    tests = DealTests(likeness.cosines, likeness.leaf_of, partial(_stream, seed, there), likeness.strata)
    if len(there) < reach.FEWEST_LEAVES or len(likeness.leaf_of) < reach.FEWEST_CLIENTS:
        return (
            f"whether there are groups can be tested from {reach.FEWEST_LEAVES} leaves and "
            f"{reach.FEWEST_CLIENTS} clients on that train from one start"
        )
    if tests.floor(there) == 1:
        return "whether there are groups cannot be tested where no client could stand under another leaf"
    return ClosedTest(tests, there, config.level).chain()


def p_of_cut(likeness: Likeness, leaves: Sequence[int], part: Sequence[int], seed: int) -> float:
    """p of one cut of some leaves, among all cuts that their clients' deals have.

    Args:
        likeness: of updates from one start.
        leaves: that are cut, in order.
        part: those of one side.
        seed: root of the run's streams.
    """
    mine = np.flatnonzero(np.isin(likeness.leaf_of, leaves))
    there = np.unique(likeness.leaf_of[mine])
    own = np.searchsorted(there, likeness.leaf_of[mine])
    inner = [cosines[np.ix_(mine, mine)] for cosines in likeness.cosines]
    strata = None if likeness.strata is None else likeness.strata[mine]
    rng = numpy_stream(seed, Purpose.CLUSTERING, 3, *leaves)
    return deals.deal_test(inner, own, rng, strata=strata, cut=np.isin(there, part))[2]


def _stream(seed: int, everyone: tuple[int, ...], leaves: tuple[int, ...]) -> np.random.Generator:
    """Random stream of the deals of some leaves; the same in every round."""
    return numpy_stream(seed, Purpose.CLUSTERING, 1, *(() if leaves == everyone else leaves))


def _tests(
    evidence: Evidence,
    origin: np.ndarray,
    known: Sequence[int],
    bisect: Bisect,
    level: float,
    rng: np.random.Generator,
) -> list[CutTest]:
    """The tests of all clusters and of the parts that they come apart in."""
    tests: list[CutTest] = []
    for cluster in range(int(origin.max()) + 1):
        leaves = [leaf for leaf in known if origin[leaf] == cluster]
        if len(leaves) >= FEWEST_LEAVES:
            tests += divide(lambda some: relationships_among(evidence, some), leaves, bisect, level, rng)
    return tests


def moved(matrix: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Labels (S,) after each leaf has gone to the cluster whose models do best at its clients.

    A leaf stays where it is unless the other leaves of another cluster do better on average, in log loss,
    than the other leaves of its own; alone in its cluster it stays, too.

    Args:
        matrix: (S, S) loss of leaf i's model at leaf j's clients; NaN columns where unknown.
        labels: (S,) in force.
    """
    after = labels.copy()
    logs = np.log(np.maximum(matrix, np.finfo(np.float64).tiny))
    for leaf in range(len(labels)):
        own = others(labels, leaf)
        if not own or not np.isfinite(matrix[:, leaf]).all():
            continue
        best = float(logs[list(own), leaf].mean())
        for cluster in range(int(labels.max()) + 1):
            loss = float(logs[labels == cluster, leaf].mean())
            if cluster != labels[leaf] and loss < best:
                after[leaf], best = cluster, loss
    return number_by_first_appearance(after)


def _similarity(evidence: Evidence) -> np.ndarray | None:
    """The affinity of all leaves, or None where a leaf is silent."""
    try:
        return affinity(evidence)
    except NotComparable:
        return None
