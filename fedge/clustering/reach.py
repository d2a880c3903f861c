"""What the deal test can show with the clients that there are, and what to say where that is little.

See `fedge.clustering.deals`: however many rounds or windows there are, the smallest p of one leaf against the
rest is the chance to deal its clients to one leaf.
"""

from collections.abc import Sequence
from math import comb

FEWEST_LEAVES = 3
STRONG, WEAK = 0.01, 0.05  # levels of cluster.level = "auto"
FEWEST_CLIENTS = 5  # of fewer, what a client has in common with all others explains nearly everything


def smallest_p(sizes: Sequence[int]) -> float:
    """Return the smallest p that one leaf against all others can have: the chance of its very deal.

    A leaf of n clients is set apart with the same statistic wherever its clients are dealt to one leaf of n;
    with `same` such leaves and K clients that is same / C(K, n). The smallest over the leaves.

    Args:
        sizes: clients of each leaf that train; at least two leaves.

    >>> round(smallest_p([3, 3, 3]), 3), round(smallest_p([3] * 6), 4), round(smallest_p([4, 4, 4]), 3)
    (0.036, 0.0074, 0.006)
    """
    clients, sizes = sum(sizes), list(sizes)
    if len(sizes) == 2:  # the other leaf is set apart by the same deals
        return (2 if sizes[0] == sizes[1] else 1) / comb(clients, sizes[0])
    return min(sizes.count(size) / comb(clients, size) for size in set(sizes))


def clients_per_leaf_needed(leaves: int, level: float) -> int:
    """Return how many clients each of `leaves` ≥ 3 leaves needs for one of them to be seen at `level`.

    >>> clients_per_leaf_needed(3, 0.01), clients_per_leaf_needed(6, 0.01), clients_per_leaf_needed(3, 0.05)
    (4, 3, 3)
    """
    size = 2
    while smallest_p([size] * leaves) > level:
        size += 1
    return size


def level_in_force(level: float | str, sizes: Sequence[int]) -> float:
    """Return the level of a test of leaves: "auto" is 0.01 where a lone leaf can reach it, else 0.05.

    Args:
        level: `cluster.level`.
        sizes: clients of each leaf that train.
    """
    if not isinstance(level, str):
        return level
    return STRONG if smallest_p(sizes) <= STRONG else WEAK


def out_of_reach(level: float | str, sizes: Sequence[int]) -> str | None:
    """Return what a user should know whose leaves are too small for a lone one to be seen, or None.

    Args:
        level: `cluster.level`.
        sizes: clients of each leaf that train.
    """
    if len(sizes) < FEWEST_LEAVES:
        there = "is one leaf" if len(sizes) == 1 else f"are {len(sizes)} leaves"
        return (
            f"whether there are groups can be tested from {FEWEST_LEAVES} leaves on, and there {there}: all "
            'stay one cluster; raise hierarchy.num-servers, or set cluster.count="threshold"'
        )
    smallest = smallest_p(sizes)
    if smallest <= STRONG:
        return None
    there = f"{sum(sizes)} clients in {len(sizes)} leaves"
    needed = clients_per_leaf_needed(len(sizes), STRONG)
    line = f"{there} cannot show that one leaf differs from all others below p = {smallest:.2g}; "
    line += f"{needed} at each leaf could show it at {STRONG:g}"
    in_force = level_in_force(level, sizes)
    if smallest <= in_force:
        return f"{line}; splits at p up to {in_force:g} count, which is weak evidence"
    return f"{line}; at cluster.level {in_force:g} only larger groups of leaves can be found"
