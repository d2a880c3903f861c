"""Smallest p within reach of the deal test with the given clients, and a warning if it is too large.

See `fedge.clustering.deal_test.deals`: however many rounds or windows there are, the smallest p of one leaf
against the rest is the chance to deal its clients to one leaf.
"""

from collections import Counter
from collections.abc import Sequence
from math import comb, prod, sqrt

from hhar.quantity import quantity

FEWEST_LEAVES = 2
MOST_DEALS_TO_ENUMERATE = 6000
STRONG, WEAK = 0.01, 0.05  # levels of cluster.level = "auto"
_ROOM = 4  # sets of clients, the leaf's own included, allowed to look as odd as a leaf found at 0.01
FEWEST_CLIENTS = 5  # of fewer, a client's part in common with all others explains nearly everything


_DRAWS = (1999, 19_999, 49_999)  # drawn deals if there are too many for all
_SURE = 3.1  # standard deviations by which a perfect leaf's p must lie below the level: it is lost in .1 %

Count = int | tuple[int, ...]
"""Clients of a leaf; of each stratum, where clients are dealt inside of strata only."""


def smallest_p(sizes: Sequence[Count]) -> float:
    """The smallest possible p of one leaf against all others: the chance of its very deal.

    A leaf of n clients is set apart with the same statistic wherever its clients are dealt to one leaf of n;
    with `same` such leaves and K clients, same / C(K, n), over strata the product. The smallest over the
    leaves.

    Args:
        sizes: training clients of each leaf; at least two leaves.

    >>> round(smallest_p([3, 3, 3]), 3), round(smallest_p([3] * 6), 4), round(smallest_p([4, 4, 4]), 3)
    (0.036, 0.0074, 0.006)
    """
    counts = [_as_strata(size) for size in sizes]
    ways = {count: _count_ways(counts, count) for count in set(counts)}
    if len(counts) == 2:  # the other leaf is set apart by the same deals
        return (2 if counts[0] == counts[1] else 1) / ways[counts[0]]
    return min(counts.count(count) / ways[count] for count in ways)


def _as_strata(size: Count) -> tuple[int, ...]:
    return size if isinstance(size, tuple) else (size,)


def _count_ways(counts: Sequence[tuple[int, ...]], chosen: tuple[int, ...]) -> int:
    """Number of ways to choose the given number of clients of each stratum."""
    return prod(comb(sum(kind), n) for kind, n in zip(zip(*counts, strict=True), chosen, strict=True))


def smallest_p_of_any_cut(sizes: Sequence[Count]) -> float:
    """The smallest possible p in a test of leaves, for any true cut.

    A cut between k of K clients and the rest has its largest separation in every deal in which some cut sets
    these k apart: as many of C(K, k) as there are cuts separating k clients from the rest; k and K - k are
    one cut.

    Args:
        sizes: training clients of each leaf.

    Returns:
        A probability; 1 where no test can be made.

    >>> round(smallest_p_of_any_cut([3, 3, 3]), 3), round(smallest_p_of_any_cut([3, 3, 3, 3]), 4)
    (0.036, 0.0065)
    >>> round(smallest_p_of_any_cut([5, 5]), 4)  # one of 126
    0.0079
    """
    counts = [_as_strata(size) for size in sizes]
    clients = sum(map(sum, counts))
    if len(counts) < FEWEST_LEAVES or clients < FEWEST_CLIENTS:
        return 1.0
    ways_of_parts = Counter(
        {(0,) * len(counts[0]): 1}
    )  # clients of each stratum → ways to choose leaves with so many
    for count in counts:
        extended: Counter[tuple[int, ...]] = Counter()
        for part, ways in ways_of_parts.items():
            extended[tuple(a + b for a, b in zip(part, count, strict=True))] += ways
        ways_of_parts = ways_of_parts + extended
    probabilities = [
        min(1.0, ways / _count_ways(counts, part))
        for part, ways in ways_of_parts.items()
        if 1 < sum(part) < clients - 1
    ]
    return min(probabilities, default=1.0)


def draws_for(floor: float) -> int:
    """Number of deals for which an entirely different leaf is hardly ever missed by chance.

    p of such a leaf is 1 + a binomial count, over the draws + 1. If its smallest p is close to the level,
    1,999 draws would often put it above (in 11 % of tests at six leaves of three clients).

    Args:
        floor: smallest p of one leaf.

    >>> draws_for(0.00056), draws_for(0.00735), draws_for(0.0182)
    (1999, 19999, 1999)
    """
    return next((draws for draws in _DRAWS if _is_sure(floor, draws)), _DRAWS[-1 if floor <= WEAK else 0])


def _is_sure(floor: float, draws: int) -> bool:
    level = STRONG if floor <= STRONG else WEAK
    return level * (draws + 1) - 1 - draws * floor >= _SURE * sqrt(draws * floor * (1 - floor))


def level_by_power(floor: float) -> float:
    """The level of "auto" for a test with a given smallest p.

    A possible p as small as the level is not enough: if few of all deals fit below the level, a different
    leaf must look odder than every other set of so many clients. Therefore 0.01 is used if four such sets fit
    below it, else 0.05.

    Args:
        floor: smallest p of the test.

    >>> level_by_power(0.0022), level_by_power(0.0061), level_by_power(0.0074)  # 4 × 4, 3 × 4, 6 × 3
    (0.01, 0.05, 0.05)
    """
    return STRONG if _ROOM * floor <= STRONG else WEAK


def clients_per_leaf_needed(leaves: int) -> int:
    """Number of clients per leaf, of `leaves` leaves, for the level of "auto" to be 0.01.

    >>> clients_per_leaf_needed(3), clients_per_leaf_needed(6), clients_per_leaf_needed(2)
    (5, 4, 6)
    """
    size = 2
    while level_by_power(smallest_p([size] * leaves)) > STRONG:
        size += 1
    return size


def level_in_force(level: float | str, sizes: Sequence[Count]) -> float:
    """The level of a test of leaves; "auto" is as `level_by_power` of a lone leaf says.

    Args:
        level: `cluster.level`.
        sizes: training clients of each leaf.
    """
    return level_by_power(smallest_p(sizes)) if isinstance(level, str) else level


def small_leaf_warning(
    level: float | str, sizes: Sequence[int], leaves_option: str = "hierarchy.num-servers"
) -> str | None:
    """Warning for leaves too small to detect a lone one, or None.

    Args:
        level: `cluster.level`.
        sizes: training clients of each leaf.
        leaves_option: name of the setting for the number of leaves.
    """
    if len(sizes) < FEWEST_LEAVES:
        situation = "is one leaf"
        return (
            f"whether there are groups can be tested from {FEWEST_LEAVES} leaves on, and there {situation}: "
            f'all stay one cluster; raise {leaves_option}, or set cluster.count="threshold"'
        )
    smallest = smallest_p(sizes)
    in_force = level_in_force(level, sizes)
    if in_force <= STRONG and smallest <= in_force:
        return None
    situation = f"{quantity(sum(sizes), 'client')} in {quantity(len(sizes), 'leaf')}"
    needed = clients_per_leaf_needed(len(sizes))
    line = f"{situation} cannot show that one leaf differs from all others below p = {smallest:.2g}; "
    line += f"{needed} at each leaf could show it at {STRONG:g}"
    if smallest <= in_force:
        return f"{line}; splits at p up to {in_force:g} count, which is weak evidence"
    return f"{line}; at cluster.level {in_force:g} only larger groups of leaves can be found"
