"""Does it matter at which leaf a client is? A test that deals whole clients anew between the leaves.

From one common start every client trains an update. How alike the updates of two clients are does not depend
on the deal. So if leaves mean nothing, the clients at a leaf are as good as dealt to it, and
every other deal of the same clients to leaves of the same sizes was as likely: an exact null, whatever people
are like. The *deal test*:

    similarity  (K, K) cosines of the clients' updates; the part common to all pairs of a client is taken out
    separation  of a cut of the leaves in two: by how much pairs of clients within the parts are more alike
                than pairs between them, over its standard deviation in the null
    statistic   the largest separation of cuts that part one leaf from the rest, two leaves, …, each less its
                mean and over its standard deviation in the null; the largest of these. There are few ways to
                part one leaf and many to part half of them, so that the best half would hide a lone leaf
    cut         by each similarity the one of the largest of these; of the similarities the one whose largest
                fewest deals reach
    p           share of all deals, the observed one among them, whose statistic is at least the observed

Pairs of one leaf count, so that a leaf that differs from all others is seen. Where there are few deals all of
them are worked out. Beyond `MOST_LEAVES_FOR_ALL_CUTS` leaves the cuts are those that the leading eigenvectors
of the leaves' similarity propose and every single leaf, proposed anew in every deal.

Several similarities (of parameters, of BatchNorm statistics) are tested together by the largest of their
statistics, over the same deals. Into how many groups leaves may be parted is a matter of several such tests
(`fedge.clustering.closed`).

Where clients differ in size, which is known and is no group, they are dealt among clients of about their size
(strata, `fedge.clustering.updates.size_strata`): a leaf of large clients alone is the same in every deal, and
no evidence.

Its limit: the smallest p of one leaf against the rest is the chance to deal its clients to one leaf
(`fedge.clustering.reach`), however many rounds or windows there are.

Sources: Fisher 1935, The Design of Experiments (randomisation tests); Phipson and Smyth 2010, Permutation
p-values should never be zero; Good 2005, Permutation, Parametric and Bootstrap Tests of Hypotheses (deals
inside of blocks).
Shape letters: S leaf servers, K clients, D deals, Q cuts, M similarities.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import factorial, prod
from typing import Any

import numpy as np

from fedge.clustering.affinity import effects
from fedge.clustering.reach import FEWEST_CLIENTS, FEWEST_LEAVES, MOST_DEALS_TO_ENUMERATE
from fedge.clustering.similarity import number_by_first_appearance

DRAWS = 1999
MOST_LEAVES_FOR_ALL_CUTS = 12  # 2,047 cuts
_EIGENVECTORS = 2  # of the leaves' similarity, by which cuts are proposed where there are too many
_ROUNDING = 1e-9  # by which equal statistics may differ
_AT_ONCE = 250  # deals that are worked out together at most
_MOST_NUMBERS = 2**22  # in one array while they are: 32 MB


@dataclass(frozen=True)
class Deal:
    """Result of the test on one set of leaves.

    Attributes:
        leaves: that were tested.
        parts: the best cut of them in two.
        statistic: of the cut, to nine digits.
        p: of the test, 1/deals at least.
        level: at which the cut stands.
        deals: how many were looked at.
        exact: whether these are all there are.
    """

    leaves: tuple[int, ...]
    parts: tuple[tuple[int, ...], tuple[int, ...]]
    statistic: float
    p: float
    level: float
    deals: int
    exact: bool

    @property
    def stands(self) -> bool:
        """Whether the cut is more than chance at its level."""
        return self.p <= self.level

    def to_json(self) -> dict[str, Any]:
        """The test as JSON."""
        return {
            "leaves": list(self.leaves),
            "parts": [list(part) for part in self.parts],
            "statistic": self.statistic,
            "p": self.p,
            "level": self.level,
            "deals": self.deals,
            "exact": self.exact,
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> "Deal":
        """Inverse of `to_json`."""
        first, second = (tuple(part) for part in facts["parts"])
        numbers = (facts[name] for name in ("statistic", "p", "level", "deals", "exact"))
        return cls(tuple(facts["leaves"]), (first, second), *numbers)


def without_client_effects(similarity: np.ndarray) -> np.ndarray:
    """Interaction of each pair of clients: (K, K), symmetric, zero diagonal, zero row sums.

    A client whose updates are unlike everybody's, or like everybody's, says nothing about groups.

    Args:
        similarity: (K, K), symmetric, larger is more alike; the diagonal is not looked at; K ≥ 3.

    Returns:
        The rest, with unit standard deviation over pairs; all zero where pairs do not differ.
    """
    rest = effects(similarity)[1]
    rest = (rest + rest.T) / 2
    spread = rest[~np.eye(len(rest), dtype=bool)].std()
    return rest / spread if spread > _ROUNDING * np.abs(similarity).max() else np.zeros_like(rest)


def deal_test(
    similarities: Sequence[np.ndarray] | np.ndarray,
    leaf_of: np.ndarray,
    rng: np.random.Generator,
    draws: int = DRAWS,
    strata: np.ndarray | None = None,
    cut: np.ndarray | None = None,
) -> tuple[np.ndarray, float, float, int, bool]:
    """The best cut of S leaves in two and the p-value of there being one.

    Args:
        similarities: M matrices (K, K) of the clients, made from one common start; larger is more alike.
        leaf_of: (K,) leaf of each client, 0..S-1, each leaf with a client.
        rng: draws deals where there are too many.
        draws: how many then; p is at least 1 / (draws + 1).
        strata: (K,) clients are dealt among those of their number; None for all among all.
        cut: (S,) bool, True for the leaves of one part: p is that of this cut, among all cuts of the deals;
            None for the best.

    Returns:
        (S,) int64 labels 0 and 1, leaf 0 in part 0; the statistic; p; the deals looked at; whether all.

    Raises:
        ValueError: a similarity is not finite, or there are fewer leaves or clients than a test needs.
    """
    sizes = np.bincount(leaf_of)
    if len(sizes) < FEWEST_LEAVES or len(leaf_of) < FEWEST_CLIENTS or not sizes.all():
        raise ValueError(
            f"a deal test needs {FEWEST_LEAVES} leaves and {FEWEST_CLIENTS} clients, one at each leaf at "
            f"least, but has leaves of {sizes.tolist()} clients"
        )
    if not all(np.isfinite(similarity).all() for similarity in similarities):
        raise ValueError("a deal test needs finite similarities")
    pairs = np.stack([without_client_effects(similarity) for similarity in similarities])
    deals, exact = _deals(leaf_of, strata, rng, draws)
    of_kinds, cuts = _best_cuts(pairs, deals, sizes)
    first = 1 if exact else 0  # of the deals that are the null
    null = of_kinds[first:].max(axis=1)
    middle, spread = null.mean(axis=0), null.std(axis=0)
    spread = np.where(spread > _ROUNDING, spread, 1.0)
    if cut is None:
        labels = cuts[_least_likely(of_kinds, first)].astype(np.int64)
    else:
        labels = cut.astype(np.int64)
        of_kinds[0] = _only(pairs, leaf_of, cut)  # the null is that of any cut
    statistics = ((of_kinds.max(axis=1) - middle) / spread).max(axis=1)
    reached = ((null - middle) / spread).max(axis=1) >= statistics[0] - _ROUNDING
    reached[: 1 - first] = True  # the deal that was made is one of those that were drawn
    p = float(reached.mean())
    labels = number_by_first_appearance(labels)
    return labels, float(f"{statistics[0]:.9g}"), p, len(deals) - first, exact


def _deals(
    leaf_of: np.ndarray, strata: np.ndarray | None, rng: np.random.Generator, draws: int
) -> tuple[np.ndarray, bool]:
    """Deals (D, K), the one that was made first, and whether the others are all there are."""
    if strata is None or (strata == strata[0]).all():
        every = all_deals(np.bincount(leaf_of))
        groups = [np.arange(len(leaf_of))]
    else:
        groups = [np.flatnonzero(strata == stratum) for stratum in np.unique(strata)]
        every = _all_deals_inside(leaf_of, groups)
    if every is not None:  # the observed deal is among them, perhaps with other names of leaves of one size
        return np.concatenate([leaf_of[None], every]), True
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
    of_groups = [list(_arrangements(tuple(leaf_of[group].tolist()))) for group in groups]
    deals = np.empty((ways, len(leaf_of)), dtype=leaf_of.dtype)
    for at, dealt in enumerate(product(*of_groups)):
        for group, hand in zip(groups, dealt, strict=True):
            deals[at, group] = hand
    return deals


def _arrangements(items: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield every order of some numbers, of which equal ones are not told apart."""
    if not items:
        yield ()
    for first in sorted(set(items)):
        rest = list(items)
        rest.remove(first)
        for others in _arrangements(tuple(rest)):
            yield (first, *others)


def _only(pairs: np.ndarray, leaf_of: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """(M, S // 2) separations of one cut, -inf where it parts another number of leaves."""
    sizes = np.bincount(leaf_of)
    blocks = _between_leaves(pairs, leaf_of[None], len(sizes))
    found = np.full((len(pairs), len(sizes) // 2), -np.inf)
    leaves = int(cut.sum())
    apart = null_spread(pairs)[:, int(sizes[cut].sum())]
    found[:, min(leaves, len(sizes) - leaves) - 1] = -_sums_between(blocks, cut[None])[:, 0, 0] / apart
    return found


def _least_likely(separations: np.ndarray, first: int) -> tuple[int, int]:
    """(similarity, m - 1) of the observed cut that is taken for the groups.

    The test says that there are groups, not which. By each similarity it is the cut whose separation is most
    standard deviations above the mean of the deals; and of the similarities the one in which fewest deals
    separate as much: where a few clients stand out in one, their leaf is parted by many deviations, and in
    many other deals by as many.

    Args:
        separations: (D, M, S // 2) of all deals, the observed one first.
        first: of the deals that are the null.
    """
    null = separations[first:]
    spread = null.std(axis=0)
    scaled = (separations[0] - null.mean(axis=0)) / np.where(spread > _ROUNDING, spread, 1.0)
    best = scaled.argmax(axis=1)
    reached = (null >= separations[0] - _ROUNDING).mean(axis=0)
    kinds = [(reached[kind, m], -scaled[kind, m], kind) for kind, m in enumerate(best)]
    kind = min(kinds)[-1]
    return kind, int(best[kind])


def all_deals(sizes: Sequence[int] | np.ndarray, most: int = MOST_DEALS_TO_ENUMERATE) -> np.ndarray | None:
    """Every deal of K clients to leaves of given sizes, or None if there are more than `most`.

    Leaves of one size may change names without changing any statistic, so such deals are there once.

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

    def dealt(position: int, left: tuple[int, ...], first_before: int) -> Iterator[np.ndarray]:
        if position == len(order):
            yield deal.copy()
            return
        leaf = order[position]
        twin = position > 0 and sizes[order[position - 1]] == sizes[leaf]
        for hand in combinations(left, sizes[leaf]):
            if twin and hand[0] < first_before:
                continue
            deal[list(hand)] = leaf
            yield from dealt(position + 1, tuple(c for c in left if c not in hand), hand[0])

    return np.stack(list(dealt(0, tuple(range(clients)), -1)))


def _best_cuts(pairs: np.ndarray, deals: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest separations of every deal among cuts that part m leaves from the rest.

    Returns:
        (D, M, S // 2) separations by each similarity for m = 1, 2, …; (M, S // 2, S) the first deal's cuts
        that have them.
    """
    spread = null_spread(pairs)
    separations, cuts = [], np.zeros((0, 0, len(sizes)), dtype=bool)
    at_once = _deals_at_once(pairs.shape[0] * pairs.shape[1], len(sizes))
    for first in range(0, len(deals), at_once):
        blocks = _between_leaves(pairs, deals[first : first + at_once], len(sizes))
        proposed = _cuts(blocks, sizes)  # (Q, S), or (D, Q, S) where each deal has its own
        apart = spread[:, proposed @ sizes]
        apart = apart[:, None] if proposed.ndim == 2 else apart
        by_kind = -_sums_between(blocks, proposed) / apart  # (M, D, Q)
        leaves = proposed.sum(axis=-1)
        parted = np.broadcast_to(np.minimum(leaves, len(sizes) - leaves), by_kind.shape)
        found = [np.where(parted == m, by_kind, -np.inf) for m in range(1, len(sizes) // 2 + 1)]
        separations.append(np.stack([of_size.max(axis=-1) for of_size in found], axis=-1).swapaxes(0, 1))
        if not first:
            at = np.stack([of_size[:, 0].argmax(axis=-1) for of_size in found], axis=-1)
            cuts = (proposed if proposed.ndim == 2 else proposed[0])[at]
    return np.concatenate(separations), cuts


def _deals_at_once(clients: int, leaves: int) -> int:
    """How many deals are worked out together, so that memory stays bounded with any number of leaves.

    Args:
        clients: times similarities.
        leaves: S.
    """
    proposed = (_EIGENVECTORS + 1) * leaves**2 if leaves > MOST_LEAVES_FOR_ALL_CUTS else 2 ** (leaves - 1)
    return max(1, min(_AT_ONCE, _MOST_NUMBERS // max(clients * leaves, proposed)))


def null_spread(pairs: np.ndarray) -> np.ndarray:
    """(M, K+1): the null's standard deviation of the sum over pairs between k clients and the rest.

    Which k clients are set apart is, over all deals, a matter of chance. With rows that sum to zero, pairs of
    pairs that share a client have Σ a_ij·a_il = −2T and disjoint ones Σ a_ij·a_lm = T, T = Σ_{i<j} a_ij², and

        variance = T · 4 k (k − 1) (K − k) (K − k − 1) / (K (K − 1) (K − 2) (K − 3)).

    Where it is 0 (a single client: its pairs sum to zero) infinity stands, since no such cut says anything.

    Args:
        pairs: (M, K, K), symmetric, zero diagonal, rows that sum to zero.
    """
    count = pairs.shape[-1]
    k = np.arange(count + 1.0)
    ways = 4 * k * (k - 1) * (count - k) * (count - k - 1)
    ways /= count * (count - 1) * (count - 2) * (count - 3)
    spread = np.sqrt(np.square(pairs).sum(axis=(-2, -1))[:, None] / 2 * ways)
    return np.where(spread > 0, spread, np.inf)


def _between_leaves(pairs: np.ndarray, deals: np.ndarray, leaves: int) -> np.ndarray:
    """(M, D, S, S): sums over the pairs of clients of every two leaves."""
    at = (deals[..., None] == np.arange(leaves)).astype(np.float64)  # (D, K, S)
    summed: np.ndarray = np.swapaxes(at, 1, 2) @ (pairs[:, None] @ at)
    return summed


def _cuts(blocks: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The cuts that are looked at, True for the leaves of one part: (Q, S), or (D, Q, S)."""
    leaves = len(sizes)
    if leaves <= MOST_LEAVES_FOR_ALL_CUTS:
        numbers = np.arange(1, 2 ** (leaves - 1))  # the last leaf is never in the part: each cut once
        return (numbers[:, None] >> np.arange(leaves)) & 1 == 1
    counted = sizes[:, None] * sizes - np.diag(sizes)
    means = blocks.sum(axis=0) / np.maximum(counted, 1)
    order = np.linalg.eigh(means)[1][..., -_EIGENVECTORS:].argsort(axis=1)  # (D, S, eigenvectors)
    ranks = np.moveaxis(order.argsort(axis=1), 1, 2)  # (D, eigenvectors, S): place of each leaf
    prefixes = ranks[:, :, None] < np.arange(1, leaves)[:, None]  # (D, eigenvectors, S-1, S)
    single = np.broadcast_to(np.eye(leaves, dtype=bool), (len(means), leaves, leaves))
    return np.concatenate([prefixes.reshape(len(means), -1, leaves), single], axis=1)


def refined(pairs: np.ndarray, leaf_of: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """The cut (S,) bool to which leaves that change sides lead, each to a larger separation.

    Where there are too many cuts to try all, those that are proposed are near the best one. A test's answer
    of there being groups holds, whichever leaves they are then said to be.

    Args:
        pairs: (M, K, K), of `without_client_effects`.
        leaf_of: (K,) leaf of each client, 0..S-1.
        cut: (S,) True for the leaves of one part.
    """
    sizes = np.bincount(leaf_of)
    blocks, spread = _between_leaves(pairs, leaf_of[None], len(sizes)), null_spread(pairs)
    best = cut.astype(bool)
    flips = np.eye(len(sizes), dtype=bool)
    while True:
        near = np.concatenate([best[None], best ^ flips])
        near = near[near.any(axis=1) & ~near.all(axis=1)]
        apart = (-_sums_between(blocks, near)[:, 0] / spread[:, near @ sizes]).max(axis=0)
        if apart.argmax() == 0 or apart.max() <= apart[0] + _ROUNDING:
            return best
        best = near[apart.argmax()]


def _sums_between(blocks: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """(M, D, Q): the sums over all pairs of clients on different sides of a cut."""
    if cuts.ndim == 2:
        differ = (cuts[:, :, None] & ~cuts[:, None, :]).reshape(len(cuts), -1).T.astype(np.float64)
        flat: np.ndarray = blocks.reshape(*blocks.shape[:2], -1) @ differ
        return flat
    inside = cuts.astype(np.float64)
    return np.einsum("dqs,mdst,dqt->mdq", inside, blocks, 1 - inside, optimize=True)


def leaf_similarity(
    similarities: Sequence[np.ndarray] | np.ndarray, leaf_of: np.ndarray, leaves: int
) -> np.ndarray:
    """(S, S): the mean over pairs of clients of two leaves, in standard deviations over all pairs.

    The mean of the similarities is taken; 1 on the diagonal, 0 where a leaf has no client.
    """
    pairs = np.mean([without_client_effects(similarity) for similarity in similarities], axis=0)
    sizes = np.bincount(leaf_of, minlength=leaves)
    summed = _between_leaves(pairs[None], leaf_of[None], leaves)[0, 0]
    found: np.ndarray = summed / np.maximum(sizes[:, None] * sizes, 1)
    np.fill_diagonal(found, 1.0)
    return found


def with_leaf_beside(test: Deal, leaf: int, other: int) -> Deal:
    """A cut in which a leaf is on the side of another leaf; without it where only the leaf is there.

    >>> cut = Deal((0, 1, 2, 3), ((0, 1), (2, 3)), 5.0, 0.001, 0.01, 1999, False)
    >>> with_leaf_beside(cut, 1, 2).parts
    ((0,), (1, 2, 3))
    """
    first, second = (tuple(member for member in part if member != leaf) for part in test.parts)
    if other in first:
        first = tuple(sorted((*first, leaf)))
    if other in second:
        second = tuple(sorted((*second, leaf)))
    return replace(test, leaves=tuple(sorted((*first, *second))), parts=(first, second))


def labels_after(tests: Sequence[Deal], labels: np.ndarray) -> np.ndarray:
    """Labels (S,) after the cuts that stand."""
    after, free = labels.copy(), int(labels.max()) + 1
    for test in tests:
        if test.stands and test.parts[1]:
            after[list(test.parts[1])] = free
            free += 1
    return number_by_first_appearance(after)
