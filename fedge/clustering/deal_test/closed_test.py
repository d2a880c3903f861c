"""Groups into which leaves may be split: a closed test of partitions, each by deals within its groups.

The true groups are a partition P* of the leaves; within each, clients might as well have been dealt to leaves
at random. For every partition P, the hypothesis H_P states: within each group of P, leaves mean nothing. A
split into the groups of Q is *allowed* if H_P is rejected for every P refined by Q, including the P with all
leaves in one group. Each H_P has its own test at its own level, the same for any Q:

    p of a group     the deal test of its leaves, by deals of its clients
                     (`fedge.clustering.deal_test.deals`); of two leaves beside the other groups of P, whose
                     clients show how people differ anyway, and which similarity distinguishes groups
    p of H_P         of groups with smallest possible p within the common level: the least p times
                     level over share; a group's share is its smallest possible p, and of the rest as
                     much as it has of the clients (Bonferroni's inequality with weights; Tarone 1990: a group
                     without possible p below the level takes no share). Else the share of all combinations
                     of the groups' deals whose cuts explain as much in total (direct combination, Pesarin and
                     Salmaso 2010; a sum of logarithms of shares left, as of likelihood ratios, with weights
                     of `similarity_weight`): then a group of one kind of people does not hide another's
                     difference

So Q may be chosen by looking at the data: if Q splits a true group (it strictly refines P*), then H_P* was
rejected by a test fixed beforehand, which happens with probability at most its level. If there are no true
groups, every split is such an error. This is closed testing (Marcus, Peritz and Gabriel 1976) on the
hypotheses implied by a claim, as Einot and Gabriel (1975) and Begun and Gabriel (1981) use it for groups of
means. It gives no guarantee against a leaf on the wrong side of a cut between different groups.

Partitions are tested along a chain: all leaves, their best cut, the best cut of one of the two parts, and so
on down to single leaves, as long as the next step is allowed. A forbidden step ends its branch of the chain.
Beyond `MOST_GROUPS` groups there are too many implied hypotheses; a part is then cut by its own test, at the
same share of the level as its share of clients (Meinshausen 2008), which is as strict for a hierarchy fixed
beforehand.

Sources: Marcus, Peritz and Gabriel 1976, On closed testing procedures with special reference to ordered
analysis of variance, Biometrika 63; Einot and Gabriel 1975, A study of the powers of several methods of
multiple comparisons, JASA 70; Begun and Gabriel 1981, Closure of the Newman-Keuls multiple comparisons
procedure, JASA 76; Tarone 1990, A modified Bonferroni method for discrete data, Biometrics 46; Pesarin and
Salmaso 2010, Permutation Tests for Complex Data (direct combination); Meinshausen 2008, Hierarchical testing
of variable importance, Biometrika 95.
Shape letters: S leaf servers, K clients, M similarities.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from fedge.clustering.deal_test.cuts import (
    MOST_LEAVES_FOR_ALL_CUTS,
    ROUNDING,
    refine_cut,
    remove_directions,
    similarity_weight,
    without_client_effects,
)
from fedge.clustering.deal_test.deals import DealTest, deal_test
from fedge.clustering.deal_test.reach import (
    FEWEST_LEAVES,
    WEAK,
    draws_for,
    level_by_power,
    level_in_force,
    smallest_p,
    smallest_p_of_any_cut,
)
from fedge.clustering.likeness.similarity import number_by_first_appearance

Leaves = tuple[int, ...]
Partition = tuple[Leaves, ...]

MOST_GROUPS, MOST_GROUPS_OF_MANY = 7, 4  # of which all coarser partitions are tested; of more than 12 leaves
_SAME = 1e-12  # tolerance for equal numbers
_STEPS = 2**14  # in which sums over groups are counted


@dataclass(frozen=True)
class SubsetTest:
    """The deal test of one set of leaves: as in `DealTest`, without a level, and as in `DealComparison`."""

    parts: tuple[Leaves, Leaves]
    statistic: float
    p: float
    deals: int
    exact: bool
    explained: np.ndarray = field(repr=False, compare=False)
    of_deals: np.ndarray = field(repr=False, compare=False)

    def weighted(self, weights: np.ndarray) -> "Weighted":
        """Differences explained by the cuts, summed over similarities with weights (M,)."""
        return Weighted(float(self.explained @ weights), self.of_deals @ weights)


class Weighted(NamedTuple):
    """Clients' differences explained by the cuts of one group's deals, over all similarities.

    Attributes:
        actual: by the cut of the actual deal.
        of_deals: (D,) by those of all deals, the actual one among them.
    """

    actual: float
    of_deals: np.ndarray

    @property
    def p(self) -> float:
        """Share of the deals explaining at least as much as the actual one."""
        return float((self.of_deals >= self.actual - ROUNDING * max(1.0, abs(self.actual))).mean())


class DealTests:
    """Deal tests of sets of leaves, each computed once, with its own random stream."""

    def __init__(
        self,
        similarities: Sequence[np.ndarray] | np.ndarray,
        leaf_of: np.ndarray,
        stream: Callable[[Leaves], np.random.Generator],
        strata: np.ndarray | None = None,
        draws: int | None = None,
    ) -> None:
        """Keep the clients and their leaves.

        Args:
            similarities: M matrices (K, K) of all clients.
            leaf_of: (K,) leaf of each client.
            stream: a set of leaves → source of its deals.
            strata: (K,) stratum of each client, within which it is dealt; None for one stratum.
            draws: number of deals to draw if there are too many; None for as many as are worthwhile.
        """
        self._similarities, self._leaf_of, self._stream = similarities, leaf_of, stream
        self._strata = np.zeros_like(leaf_of) if strata is None else strata
        self._draws = draws
        self._cache: dict[tuple[Leaves, Partition], SubsetTest] = {}
        self._floors: dict[Leaves, float] = {}

    def clients(self, leaves: Leaves) -> int:
        """Number of clients of some leaves."""
        return int(np.isin(self._leaf_of, leaves).sum())

    def floor(self, leaves: Leaves) -> float:
        """The smallest possible p in a test of some leaves; 1 if untestable."""
        if leaves not in self._floors:
            self._floors[leaves] = smallest_p_of_any_cut(self.counts(leaves))
        return self._floors[leaves]

    def counts(self, leaves: Leaves) -> list[tuple[int, ...]]:
        """Per leaf the number of its clients of each stratum."""
        kinds = np.unique(self._strata)
        return [
            tuple(int(((self._leaf_of == leaf) & (self._strata == kind)).sum()) for kind in kinds)
            for leaf in leaves
        ]

    def test(self, leaves: Leaves, partition: Sequence[Leaves] = ()) -> SubsetTest:
        """The test of at least two leaves.

        Two leaves have few deals, so other groups help: the two leaves' clients are compared less the
        directions in which clients of other groups differ from each other (`remove_directions`), and the
        statistic is the part explained by the cut, summed over similarities by how clearly each distinguishes
        all groups (`similarity_weight`). Neither changes while the two leaves' clients are dealt, so the test
        is as exact as without.

        Args:
            leaves: the leaves to test.
            partition: of all leaves of the hypothesis; if empty, nothing else is examined.
        """
        others: Partition = tuple(g for g in partition if g != leaves) if len(leaves) == FEWEST_LEAVES else ()
        key = leaves, tuple(sorted(others))
        if key not in self._cache:
            self._cache[key] = self._compute(*key)
        return self._cache[key]

    def _compute(self, leaves: Leaves, others: Partition) -> SubsetTest:
        """The test of some leaves beside other groups."""
        clients, *other_groups = self._members([leaves, *others])
        leaf_index = np.searchsorted(leaves, self._leaf_of[clients])
        inner = [remove_directions(similarity, clients, other_groups) for similarity in self._similarities]
        draws = self._draws or draws_for(smallest_p(self.counts(leaves)))
        result = deal_test(inner, leaf_index, self._stream(leaves), draws, self._strata[clients])
        labels = result.labels
        if len(leaves) > MOST_LEAVES_FOR_ALL_CUTS and result.p <= WEAK:
            pairs = np.stack([without_client_effects(similarity) for similarity in inner])
            labels = number_by_first_appearance(refine_cut(pairs, leaf_index, labels == 1).astype(np.int64))
        first, second = (tuple(leaves[i] for i in np.flatnonzero(labels == k)) for k in (0, 1))
        tested = SubsetTest((first, second), result.statistic, result.p, *result[3:])
        return replace(tested, p=self._weighted(tested, clients, other_groups).p) if others else tested

    def explained(self, leaves: Leaves, partition: Sequence[Leaves]) -> Weighted:
        """Differences explained by the cuts of some leaves' deals, in one unit for a partition's groups."""
        clients, *other_groups = self._members([leaves, *(group for group in partition if group != leaves)])
        return self._weighted(self.test(leaves, partition), clients, other_groups)

    def _weighted(
        self, tested: SubsetTest, clients: np.ndarray, other_groups: Sequence[np.ndarray]
    ) -> Weighted:
        """A test's similarities, weighted by how clearly each distinguishes the groups."""
        return tested.weighted(
            np.array(
                [similarity_weight(similarity, clients, other_groups) for similarity in self._similarities]
            )
        )

    def _members(self, groups: Sequence[Leaves]) -> list[np.ndarray]:
        """The clients of each of some groups of leaves."""
        return [np.flatnonzero(np.isin(self._leaf_of, group)) for group in groups]


def partitions_of(items: Sequence[Leaves]) -> Iterator[list[list[Leaves]]]:
    """Yield every partition of some items; with three there are five.

    >>> sum(1 for _ in partitions_of([(0,), (1,), (2,), (3,)]))
    15
    """
    if not items:
        yield []
        return
    first, *others = items
    for rest in partitions_of(others):
        yield [[first], *rest]
        for i, group in enumerate(rest):
            yield [*rest[:i], [first, *group], *rest[i + 1 :]]


def levels_of_groups(floors: Sequence[float], clients: Sequence[int], level: float) -> list[float] | None:
    """The level of each group's own test in the test of a partition; None where all are tested together.

    Args:
        floors: the smallest possible p of each group.
        clients: of each group.
        level: level of the partition.

    >>> [round(share, 4) for share in levels_of_groups([0.0286, 0.0005], [8, 16], 0.05)]
    [0.0356, 0.0144]
    >>> levels_of_groups([0.0286, 0.0286], [8, 8], 0.05) is None
    True
    """
    testable = [floor <= level for floor in floors]
    spent = sum(floor for floor, is_testable in zip(floors, testable, strict=True) if is_testable)
    if spent > level + _SAME:
        return None
    testable_clients = sum(count for count, is_testable in zip(clients, testable, strict=True) if is_testable)
    remaining = max(0.0, level - spent)
    return [
        floor + remaining * count / testable_clients if is_testable else 0.0
        for floor, count, is_testable in zip(floors, clients, testable, strict=True)
    ]


def joint_p(tests: Sequence[Weighted]) -> float:
    """Chance for the cuts of random deals, one per group, to explain as much as those of the actual deals.

    Deals within different groups are independent, so all combinations of them are equally likely. Their
    sums are counted in steps, every deal rounded up and the actual ones down: p is no smaller than without.

    >>> strong = Weighted(2.0, np.array([2.0, 0.2, 0.1, 0.0]))
    >>> weak = Weighted(0.2, np.array([0.4, 0.3, 0.2, 0.1]))
    >>> joint_p([strong, weak])  # the strong one's best deal with three of the other's, of 16
    0.1875
    """
    least = [float(test.of_deals.min()) for test in tests]
    most = sum(float(np.ptp(test.of_deals)) for test in tests)
    step = max(most, _SAME) / _STEPS
    chance = np.ones(1)
    for test, lowest in zip(tests, least, strict=True):
        bins = np.ceil((test.of_deals - lowest) / step - _SAME * _STEPS).astype(np.int64)
        sums = np.zeros(len(chance) + int(bins.max()))
        for offset in bins:
            sums[offset : offset + len(chance)] += chance
        chance = sums / len(bins)
    actual = sum(test.actual - lowest for test, lowest in zip(tests, least, strict=True))
    return float(chance[int(actual / step + _SAME * _STEPS) :].sum())


class ClosedTest:
    """The tests of partitions of some leaves."""

    def __init__(self, tests: DealTests, leaves: Leaves, level: float | str) -> None:
        """Keep tests, leaves and level.

        Args:
            tests: tests of sets of leaves.
            leaves: all of them, at least two.
            level: `cluster.level`: of every partition; "auto": 0.01 where four times their smallest p
                together are no more, else 0.05.
        """
        self._tests, self._leaves, self._level = tests, leaves, level
        self._cache: dict[frozenset[Leaves], tuple[float, float]] = {}

    def level_of(self, groups: Sequence[Leaves]) -> float:
        """The level of the partition with the given groups of two leaves and more."""
        if not isinstance(self._level, str):
            return self._level
        floors = [self._tests.floor(group) for group in groups]
        if len(groups) == 1 and groups[0] == self._leaves:
            return level_in_force(self._level, [self._tests.clients((leaf,)) for leaf in self._leaves])
        return level_by_power(sum(floors))

    def result_of(self, partition: Sequence[Leaves]) -> tuple[float, float]:
        """p and level of a partition's hypothesis; p is 1 if nothing can be tested.

        If one group rejects a partition, the others are not examined: then p is an upper bound.
        """
        groups = sorted((g for g in partition if len(g) > 1), key=lambda g: (-self._tests.clients(g), g))
        key = frozenset(groups)
        if key not in self._cache:
            level = self.level_of(groups)
            groups = [group for group in groups if self._tests.floor(group) < 1]
            self._cache[key] = (self._compute_p(groups, level, tuple(sorted(partition))), level)
        return self._cache[key]

    def _compute_p(self, groups: Sequence[Leaves], level: float, partition: Partition) -> float:
        """p of the testable hypothesis of exchangeable clients inside some groups."""
        if not groups:
            return 1.0
        if len(groups) == 1:
            return self._tests.test(groups[0], partition).p
        floors = [self._tests.floor(group) for group in groups]
        levels = levels_of_groups(floors, [self._tests.clients(group) for group in groups], level)
        if levels is None:
            return joint_p([self._tests.explained(group, partition) for group in groups])
        least = 1.0
        for group, share in zip(groups, levels, strict=True):
            p = self._tests.test(group, partition).p if share > 0 else 1.0
            if p <= share:
                return min(level, p * level / share)
            least = min(least, p * level / share if share > 0 else 1.0)
        return least

    def hardest(self, partition: Sequence[Leaves]) -> tuple[float, float]:
        """p and level of the hypothesis hardest to reject among those refined by a partition.

        The first one not rejected, if any; the others are then not tested.
        """
        hardest = (0.0, 1.0)
        for groups in partitions_of(partition):
            if len(groups) < len(partition):
                p, level = self.result_of(
                    [tuple(sorted(leaf for part in group for leaf in part)) for group in groups]
                )
                if p > level:
                    return p, level
                if p * hardest[1] > hardest[0] * level:
                    hardest = (p, level)
        return hardest

    def chain(self) -> list[DealTest]:
        """The cuts from all leaves on, each with its decisive p."""
        groups: list[Leaves] = [self._leaves]
        closed: set[Leaves] = set()
        cuts: list[DealTest] = []
        most = MOST_GROUPS if len(self._leaves) <= MOST_LEAVES_FOR_ALL_CUTS else MOST_GROUPS_OF_MANY
        while True:
            group = self._next_group(groups, closed)
            if group is None:
                return cuts
            tested = self._tests.test(group, groups)
            first, second = tested.parts
            new_groups = [first, second, *(other for other in groups if other != group)]
            if len(new_groups) <= most:
                p, level = self.hardest(new_groups)
            else:
                share = self._tests.clients(group) / self._tests.clients(self._leaves)
                p, level = tested.p, self.level_of([self._leaves]) * share
            deal = DealTest(group, (first, second), tested.statistic, p, level, tested.deals, tested.exact)
            cuts.append(deal)
            if deal.stands:
                groups = new_groups
            else:
                closed.add(group)

    def _next_group(self, groups: Sequence[Leaves], closed: set[Leaves]) -> Leaves | None:
        """The group to be cut next: the one with the smallest ratio of p to its smallest possible p.

        Two different leaves of four clients cannot get below 1/35, while a large group may by chance, so
        the p values themselves are not comparable.
        """
        candidates = [g for g in groups if len(g) > 1 and g not in closed and self._tests.floor(g) < 1]
        ranked = []
        for group in candidates:
            tested = self._tests.test(group, groups)
            least = max(self._tests.floor(group), 1 / tested.deals)
            ranked.append((round(tested.p / least, 9), tested.p, -tested.statistic, group))
        return min(ranked)[-1] if ranked else None
