"""Are there groups at all? A test on cross-losses; its null: clients, not leaves, make the difference.

People differ, so each client finds some models better than others. If its leaf has nothing to do with it,
then clients of one leaf agree no more on which models suit them than clients of different leaves, and which
sign a client's relationships (`fedge.clustering.affinity`) have is a matter of chance. So the *client
sign-flip test*:

    statistic   the best cut of the leaves in two by affinity: mean affinity within the parts minus mean
                affinity between them, over √(1/n_within + 1/n_between)
    null        the same, search included, after every client's relationships have been multiplied by a sign
                of its own, drawn at random: 999 times
    p           share of all 1,000 statistics that are at least the observed one

A cut stands if p ≤ `cluster.level`. The parts are tested in the same way, so there may be any number of
groups. Shape letters: S leaf servers, K clients.

Sources: sign-flip (randomisation) tests: Fisher 1935; Winkler et al. 2014. Testing every cut of a hierarchy
against its own null: Kimes et al. 2017, Statistical significance for hierarchical clustering.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedge.clustering.affinity import FEWEST_LEAVES, affinity_of, mean_by_leaf
from fedge.clustering.similarity import number_by_first_appearance

DRAWS = 999
_AT_ONCE = 111  # draws that are worked out together

Bisect = Callable[[np.ndarray], np.ndarray]
"""(S, S) similarity → (S,) labels 0 and 1; a single label where it finds nothing to cut."""


@dataclass(frozen=True)
class CutTest:
    """One cut and its test result.

    Attributes:
        leaves: that were to be cut.
        parts: the best cut; one part where there is none.
        statistic: of the cut.
        p: its p-value.
    """

    leaves: tuple[int, ...]
    parts: tuple[tuple[int, ...], ...]
    statistic: float
    p: float

    def to_json(self) -> dict[str, Any]:
        """The test as JSON."""
        return {
            "leaves": list(self.leaves),
            "parts": [list(part) for part in self.parts],
            "statistic": self.statistic,
            "p": self.p,
        }


def separation(similarity: np.ndarray, labels: np.ndarray) -> float:
    """How far within-part similarities lie above those between, in standard errors of equal cells.

    `similarity` is (S, S) float64, `labels` (S,) int64; the diagonal does not count. Minus infinity if there
    is nothing within or nothing between.
    """
    together = labels[:, None] == labels
    between = similarity[~together]
    np.fill_diagonal(together, False)
    within = similarity[together]
    if not (within.size and between.size):
        return -np.inf
    differ = within.mean() - between.mean()
    return float(differ / np.sqrt(2 / within.size + 2 / between.size))  # every pair is there twice


def cut_test(
    relationships: np.ndarray,
    leaf_of: np.ndarray,
    bisect: Bisect,
    rng: np.random.Generator,
    draws: int = DRAWS,
) -> tuple[np.ndarray, float, float]:
    """(labels, statistic, p) of the best cut of S ≥ 4 leaves in two.

    Args:
        relationships: (S, K) of each leaf's model and each client, 0 at a client's own leaf.
        leaf_of: (K,) 0..S-1.
        bisect: finds the best cut.
        rng: draws the signs.
        draws: from the null; p is at least 1 / (draws + 1).
    """
    similarity = affinity_of(mean_by_leaf(relationships, leaf_of))
    labels = bisect(similarity)
    observed = separation(similarity, labels)
    reached = 0
    for first in range(0, draws, _AT_ONCE):
        signs = rng.choice((-1.0, 1.0), size=(min(_AT_ONCE, draws - first), 1, len(leaf_of)))
        for null in affinity_of(mean_by_leaf(relationships * signs, leaf_of)):
            reached += separation(null, bisect(null)) >= observed
    return labels, observed, (1 + reached) / (1 + draws)


def divide(
    relationships_of: Callable[[Sequence[int]], tuple[np.ndarray, np.ndarray]],
    leaves: Sequence[int],
    bisect: Bisect,
    level: float,
    rng: np.random.Generator,
) -> list[CutTest]:
    """The tests of `leaves` and of all parts that they come apart in, each before those of its parts.

    Args:
        relationships_of: leaves → their (S, K) relationships and (K,) leaf of each client, as 0..S-1.
        leaves: to be divided; fewer than four cannot be.
        bisect: finds the best cut.
        level: largest p at which a cut stands.
        rng: draws the signs.
    """
    if len(leaves) < FEWEST_LEAVES:
        return []
    labels, statistic, p = cut_test(*relationships_of(leaves), bisect, rng)
    parts = [tuple(leaf for leaf, own in zip(leaves, labels, strict=True) if own == k) for k in (0, 1)]
    parts = [part for part in parts if part]
    tests = [CutTest(tuple(leaves), tuple(parts), statistic, p)]
    if p <= level and len(parts) > 1:
        for part in parts:
            tests += divide(relationships_of, part, bisect, level, rng)
    return tests


def labels_after(tests: Sequence[CutTest], labels: np.ndarray, level: float) -> np.ndarray:
    """Labels (S,) after the cuts that stand."""
    after, free = labels.copy(), int(labels.max()) + 1
    for test in tests:
        if test.p <= level and len(test.parts) > 1:
            after[list(test.parts[1])] = free
            free += 1
    return number_by_first_appearance(after)
