"""Deals of clients to leaves of given sizes: all of them, or a random sample.

Deals are the null of the deal test (`fedge.clustering.deal_test.deals`). Clients may be dealt within
strata only. Shape letters: S leaf servers, K clients, D deals.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import factorial, prod

import numpy as np

from fedge.clustering.deal_test.reach import MOST_DEALS_TO_ENUMERATE


def deals_of(
    leaf_of: np.ndarray, strata: np.ndarray | None, rng: np.random.Generator, draws: int
) -> tuple[np.ndarray, bool]:
    """Deals (D, K), the actual one first, and whether the others are all possible ones.

    Args:
        leaf_of: (K,) leaf of each client, 0..S-1.
        strata: (K,) stratum of each client, within which it is dealt; None for one stratum.
        rng: source of deals if there are too many to take all.
        draws: number of deals drawn in this case.
    """
    if strata is None or (strata == strata[0]).all():
        enumerated = all_deals(np.bincount(leaf_of))
        groups = [np.arange(len(leaf_of))]
    else:
        groups = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
        enumerated = _all_deals_inside(leaf_of, groups)
    # the observed deal is among them, perhaps with other names of leaves of one size
    if enumerated is not None:
        return np.concatenate([leaf_of[None], enumerated]), True
    drawn = np.empty((draws, len(leaf_of)), dtype=leaf_of.dtype)
    for group in groups:
        drawn[:, group] = rng.permuted(np.broadcast_to(leaf_of[group], (draws, len(group))), axis=1)
    return np.concatenate([leaf_of[None], drawn]), False


def _all_deals_inside(leaf_of: np.ndarray, groups: Sequence[np.ndarray]) -> np.ndarray | None:
    """Every deal (D, K) of each group's clients among themselves, or None if there are too many."""
    counts = [np.bincount(leaf_of[group]) for group in groups]
    ways = prod(factorial(int(n.sum())) // prod(factorial(int(k)) for k in n) for n in counts)
    if ways > MOST_DEALS_TO_ENUMERATE:
        return None
    arrangements = [list(_arrangements(tuple(leaf_of[group].tolist()))) for group in groups]
    deals = np.empty((ways, len(leaf_of)), dtype=leaf_of.dtype)
    for row, dealt in enumerate(product(*arrangements)):
        for group, hand in zip(groups, dealt, strict=True):
            deals[row, group] = hand
    return deals


def _arrangements(items: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield every distinct order of some numbers, which may repeat."""
    if not items:
        yield ()
    for first in sorted(set(items)):
        rest = list(items)
        rest.remove(first)
        for others in _arrangements(tuple(rest)):
            yield (first, *others)


def all_deals(sizes: Sequence[int] | np.ndarray, most: int = MOST_DEALS_TO_ENUMERATE) -> np.ndarray | None:
    """Every deal of K clients to leaves of given sizes, or None if there are more than `most`.

    Swapping the names of leaves of one size changes no statistic, so such deals are listed once.

    Returns:
        (D, K) int64, leaf of each client.
    """
    sizes = [int(size) for size in sizes]
    clients = sum(sizes)
    count = factorial(clients) // prod(map(factorial, sizes))
    count //= prod(factorial(sizes.count(size)) for size in set(sizes))
    if count > most:
        return None
    order = sorted(range(len(sizes)), key=lambda leaf: (sizes[leaf], leaf))
    deal = np.zeros(clients, dtype=np.int64)

    def enumerate_deals(position: int, remaining: tuple[int, ...], first_before: int) -> Iterator[np.ndarray]:
        if position == len(order):
            yield deal.copy()
            return
        leaf = order[position]
        is_twin = position > 0 and sizes[order[position - 1]] == sizes[leaf]
        for hand in combinations(remaining, sizes[leaf]):
            if is_twin and hand[0] < first_before:
                continue
            deal[list(hand)] = leaf
            yield from enumerate_deals(position + 1, tuple(c for c in remaining if c not in hand), hand[0])

    return np.stack(list(enumerate_deals(0, tuple(range(clients)), -1)))
