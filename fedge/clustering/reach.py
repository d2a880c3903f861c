"""What the deal test can show with the clients that there are, and what to say where that is little.

See `fedge.clustering.deals`: however many rounds or windows there are, the smallest p of one leaf against the
rest is the chance to deal its clients to one leaf.
"""

from collections import Counter
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


def smallest_p_of_any_cut(sizes: Sequence[int]) -> float:
    """Return the smallest p that a test of leaves can have, whichever of its cuts is the groups.

    A cut that sets k of K clients apart has its largest separation in every deal in which some cut sets these
    k apart: as many of C(K, k) as there are cuts that part k clients from the rest.

    Args:
        sizes: clients of each leaf that train.

    >>> round(smallest_p_of_any_cut([3, 3, 3]), 3), round(smallest_p_of_any_cut([3, 3, 3, 3]), 4)
    (0.036, 0.0065)
    """
    clients = sum(sizes)
    if len(sizes) < FEWEST_LEAVES or clients < FEWEST_CLIENTS:
        return 1.0
    apart = Counter({0: 1})  # clients → ways to choose leaves that have so many
    for size in sizes:
        apart += Counter({count + size: ways for count, ways in apart.items()})
    return min(ways / comb(clients, count) for count, ways in apart.items() if 1 < count < clients - 1)


def levels_of_parts(level: float, parts: Sequence[Sequence[int]]) -> list[float]:
    """Return the levels at which the parts that a cut has made are tested; of those that can, in all `level`.

    Each part's share is its share of the clients; but a part that cannot have a p as small as its share could
    never be rejected, and costs nothing (Tarone 1990, A modified Bonferroni method for discrete data): the
    others share the level without it.

    Args:
        level: of the test of all of them.
        parts: per part the clients of each of its leaves.

    Returns:
        A level per part; where it cannot be reached, the one that the part would have had.
    """
    floors = [smallest_p_of_any_cut(sizes) for sizes in parts]
    sharing = list(range(len(parts)))
    levels = [0.0] * len(parts)
    while sharing:
        clients = sum(sum(parts[part]) for part in sharing)
        for part in sharing:
            levels[part] = level * sum(parts[part]) / clients
        out = [part for part in sharing if floors[part] > levels[part]]
        if not out:
            break
        sharing.remove(max(out, key=lambda part: floors[part]))
    return levels


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
