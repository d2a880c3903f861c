"""A test of whether a client's leaf matters, by dealing whole clients to leaves again.

Every client trains an update from one common start, so the similarity of two clients' updates does not depend
on their leaves. If leaves mean nothing, the actual assignment is one random deal, and every other deal of the
same clients to leaves of the same sizes was as likely. This null is exact, whatever people are like. The
*deal test*:

    similarity  (K, K) cosines of the clients' updates; the part common to all pairs of a client is taken out
    separation  of a cut of the leaves in two: excess similarity of client pairs within the parts over pairs
                between them, in its standard deviations in the null
    standing    the largest separation of cuts between one leaf and the rest, two leaves and the rest, …, each
                less its mean and over its standard deviation in the null; the largest of these. There are few
                ways to part one leaf and many to part half of them, and the best half would hide a lone leaf
    statistic   the number of deals with a standing at least as large, by similarity; the least over
                similarities (Tippett 1931). Ties are broken by the cut explaining more of clients'
                differences: −log of the share left within the parts
    cut         by similarity, the cut with the largest standing; over similarities, the one reached by the
                fewest deals among cuts parting as many leaves
    p           share of all deals, the observed one among them, whose statistic is at least the observed

Pairs within one leaf count, so a leaf different from all others is detected. If there are few deals, all are
computed. Beyond `MOST_LEAVES_FOR_ALL_CUTS` leaves, the cuts are those proposed by the leading eigenvectors of
the leaves' similarity, separately for each deal, and every single leaf against the rest.

Several similarities (of parameters, of BatchNorm statistics) are tested together, over the same deals. Two
leaves of four clients have 35: a similarity without information also has a best deal, and the share explained
distinguishes this from groups; so do other groups, if any (`DealTests.of`). The number of groups is decided
by several such tests (`fedge.clustering.deal_test.closed_test`).

If clients differ in size, which is known and does not make a group, each is dealt among clients of about its
size (strata, `fedge.clustering.likeness.updates.size_strata`): a leaf with all large clients is then the same
in every deal, and no evidence.

Its limit: the smallest p of one leaf against the rest is the chance to deal its clients to one leaf
(`fedge.clustering.deal_test.reach`), however many rounds or windows there are.

Sources: Fisher 1935, The Design of Experiments (randomisation tests); Tippett 1931, The Methods of Statistics
(the least of several p); Phipson and Smyth 2010, Permutation p-values should never be zero; Good 2005,
Permutation, Parametric and Bootstrap Tests of Hypotheses (deals inside of blocks).
Shape letters: S leaf servers, K clients, D deals, Q cuts, M similarities.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fedge.clustering.deal_test.cuts import (
    EIGENVECTORS,
    MOST_LEAVES_FOR_ALL_CUTS,
    ROUNDING,
    between_leaves,
    log_explained,
    mean_apart,
    null_spread,
    proposed_cuts,
    sums_between,
    without_client_effects,
)
from fedge.clustering.deal_test.dealing import deals_of
from fedge.clustering.deal_test.reach import FEWEST_CLIENTS, FEWEST_LEAVES
from fedge.clustering.likeness.similarity import number_by_first_appearance
from fedge.states.restore_checks import checked_bool, checked_int, checked_ints, checked_number

DRAWS = 1999
_AT_ONCE = 250  # largest number of deals computed together
_MOST_NUMBERS = 2**22  # in one array while they are: 32 MB


@dataclass(frozen=True)
class DealTest:
    """Result of the test on one set of leaves.

    Attributes:
        leaves: the tested leaves.
        parts: the best cut of them in two.
        statistic: standing of the cut, to nine digits.
        p: p-value of the test, at least 1/deals.
        level: level of the test.
        deals: number of deals compared.
        exact: whether these are all possible deals.
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
    def from_json(cls, facts: Mapping[str, Any]) -> "DealTest":
        """Inverse of `to_json`."""
        first, second = (tuple(checked_ints(part, "a part of a test")) for part in facts["parts"])
        leaves = tuple(checked_ints(facts["leaves"], "leaves of a test"))
        if sorted((*first, *second)) != sorted(leaves):
            raise ValueError(f"parts of a test must be of its leaves {list(leaves)}, but are not")
        return cls(
            leaves, (first, second), checked_number(facts["statistic"], "the statistic of a test"),
            checked_number(facts["p"], "the p of a test", 0),
            checked_number(facts["level"], "the level of a test", 0),
            checked_int(facts["deals"], "the deals of a test"),
            checked_bool(facts["exact"], "whether they are all"),
        )  # fmt: skip


class DealComparison(NamedTuple):
    """The actual deal compared with others.

    Attributes:
        labels: (S,) int64, 0 and 1, leaf 0 in part 0.
        statistic: standing of the cut.
        p: p-value of the test.
        deals: number of deals compared.
        exact: whether these are all possible deals.
        explained: (M,) by each similarity's best cut, −log of the share left within the parts.
        of_deals: (D, M) the same of every deal, the actual one among them.
    """

    labels: np.ndarray
    statistic: float
    p: float
    deals: int
    exact: bool
    explained: np.ndarray
    of_deals: np.ndarray


def deal_test(
    similarities: Sequence[np.ndarray] | np.ndarray,
    leaf_of: np.ndarray,
    rng: np.random.Generator,
    draws: int = DRAWS,
    strata: np.ndarray | None = None,
    cut: np.ndarray | None = None,
) -> DealComparison:
    """The best cut of S leaves in two, and the p-value of the test whether there is any.

    Args:
        similarities: M matrices (K, K) of the clients, made from one common start; larger is more alike.
        leaf_of: (K,) leaf of each client, 0..S-1, each leaf with a client.
        rng: source of deals if there are too many to take all.
        draws: number of deals drawn in this case; p is at least 1 / (draws + 1).
        strata: (K,) stratum of each client, within which it is dealt; None for one stratum.
        cut: (S,) bool, True for the leaves of one part: p of this cut, among all cuts of the deals; None for
            the best.

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
    mean_distances = np.array([mean_apart(similarity) for similarity in similarities])
    deals, exact = deals_of(leaf_of, strata, rng, draws)
    best_cuts, cuts = _best_cuts(pairs, mean_distances, deals, sizes)
    first = 1 if exact else 0  # of the null deals
    mean, spread = _mean_and_spread(best_cuts.separation[first:])
    if cut is not None:  # the null of any cut
        best_cuts.separation[0], best_cuts.explained[0] = _evaluate_cut(pairs, mean_distances, leaf_of, cut)
    standing = (best_cuts.separation - mean) / spread
    kind, leaves = _least_likely_cut(best_cuts.separation, standing, first)
    best = standing.argmax(axis=2)[..., None]
    highest, explained = (
        np.take_along_axis(values, best, axis=2)[..., 0] for values in (standing, best_cuts.explained)
    )
    num_as_high, share = _statistic(highest, explained, first)
    reached = num_as_high[first:] < num_as_high[0]
    reached |= (num_as_high[first:] == num_as_high[0]) & (share[first:] >= share[0] - ROUNDING)
    reached[: 1 - first] = True  # the actual deal is one of the drawn ones
    labels = number_by_first_appearance((cuts[kind, leaves] if cut is None else cut).astype(np.int64))
    statistic = float(f"{standing[0, kind, leaves]:.9g}")
    return DealComparison(
        labels, statistic, float(reached.mean()), len(deals) - first, exact, explained[0], explained[first:]
    )


@dataclass(frozen=True)
class _BestCuts:
    """The best cuts of D deals by each similarity, among those separating 1, 2, … leaves from the rest.

    Attributes:
        separation: (D, M, S // 2).
        explained: (D, M, S // 2) of the same cuts.
    """

    separation: np.ndarray
    explained: np.ndarray


def _evaluate_cut(
    pairs: np.ndarray, mean_distances: np.ndarray, leaf_of: np.ndarray, cut: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(M, S // 2) separations of one cut, -inf for other numbers of separated leaves; its explained share."""
    sizes = np.bincount(leaf_of)
    between = sums_between(between_leaves(pairs, leaf_of[None], len(sizes)), cut[None])
    separation = np.full((len(pairs), len(sizes) // 2), -np.inf)
    explained = np.zeros_like(separation)
    leaves, inside = int(cut.sum()), int(sizes[cut].sum())
    column = min(leaves, len(sizes) - leaves) - 1
    separation[:, column] = -between[:, 0, 0] / null_spread(pairs)[:, inside]
    explained[:, column] = log_explained(between, mean_distances, np.array([inside]), len(leaf_of))[:, 0, 0]
    return separation, explained


def _mean_and_spread(null: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (M, S // 2) of separations (D, M, S // 2); 1 where they do not differ."""
    spread = null.std(axis=0)
    return null.mean(axis=0), np.where(spread > ROUNDING, spread, 1.0)


def _least_likely_cut(separation: np.ndarray, standing: np.ndarray, first: int) -> tuple[int, int]:
    """(similarity, m - 1) of the observed cut, used for the groups.

    The test detects whether there are groups, not which. For each similarity, the cut with the separation
    most standard deviations above the mean of the deals; and of the similarities the one in which fewest
    deals separate as much: where a few clients stand out in one, their leaf is parted by many deviations, and
    in many other deals by as many.

    Args:
        separation: (D, M, S // 2) of all deals, the observed one first.
        standing: the same, less the mean of the null and over its standard deviation.
        first: index of the first null deal.
    """
    best = standing[0].argmax(axis=1)
    reached = (separation[first:] >= separation[0] - ROUNDING).mean(axis=0)
    kind = min(range(len(best)), key=lambda k: (reached[k, best[k]], -standing[0, k, best[k]]))
    return kind, int(best[kind])


def _statistic(highest: np.ndarray, share: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """(D,) the fewest deals reaching a deal's standing, over similarities; (D,) the share explained there.

    Args:
        highest: (D, M) largest standings of all deals, the observed one first.
        share: (D, M) explained by the same cuts.
        first: index of the first null deal.
    """
    null = np.sort(highest[first:], axis=0)
    below = [
        np.searchsorted(null_heights, heights - ROUNDING)
        for null_heights, heights in zip(null.T, highest.T, strict=True)
    ]
    reached = len(null) - np.stack(below, axis=1)
    least: np.ndarray = reached.min(axis=1)
    return least, np.where(reached == least[:, None], share, -np.inf).max(axis=1)


def _best_cuts(
    pairs: np.ndarray, mean_distances: np.ndarray, deals: np.ndarray, sizes: np.ndarray
) -> tuple[_BestCuts, np.ndarray]:
    """The best cut of every deal among those separating m leaves from the rest.

    Returns:
        The cuts' separations and shares explained, for m = 1, 2, …; (M, S // 2, S) those of the first deal.
    """
    spread, clients = null_spread(pairs), pairs.shape[1]
    separations, explained, cuts = [], [], np.zeros((0, 0, len(sizes)), dtype=bool)
    per_batch = _deals_per_batch(pairs.shape[0] * clients, len(sizes))
    for first in range(0, len(deals), per_batch):
        blocks = between_leaves(pairs, deals[first : first + per_batch], len(sizes))
        proposed = proposed_cuts(blocks, sizes)  # (Q, S), or (D, Q, S) where each deal has its own
        between, inside = sums_between(blocks, proposed), proposed @ sizes
        chance = spread[:, inside]
        by_kind = -between / (chance[:, None] if proposed.ndim == 2 else chance)  # (M, D, Q)
        share = log_explained(between, mean_distances, inside, clients)
        leaves = proposed.sum(axis=-1)
        parted = np.broadcast_to(np.minimum(leaves, len(sizes) - leaves), by_kind.shape)
        of_size = [np.where(parted == m, by_kind, -np.inf) for m in range(1, len(sizes) // 2 + 1)]
        best = np.stack([values.argmax(axis=-1) for values in of_size], axis=-1)  # (M, D, S // 2)
        separations.append(np.take_along_axis(by_kind, best, axis=-1).swapaxes(0, 1))
        explained.append(np.take_along_axis(share, best, axis=-1).swapaxes(0, 1))
        if not first:
            cuts = (proposed if proposed.ndim == 2 else proposed[0])[best[:, 0]]
    return _BestCuts(np.concatenate(separations), np.concatenate(explained)), cuts


def _deals_per_batch(clients: int, leaves: int) -> int:
    """Number of deals computed together, for bounded memory with any number of leaves.

    Args:
        clients: times similarities.
        leaves: S.
    """
    proposed = (EIGENVECTORS + 1) * leaves**2 if leaves > MOST_LEAVES_FOR_ALL_CUTS else 2 ** (leaves - 1)
    return max(1, min(_AT_ONCE, _MOST_NUMBERS // max(clients * leaves, proposed)))


def leaf_similarity(
    similarities: Sequence[np.ndarray] | np.ndarray, leaf_of: np.ndarray, leaves: int
) -> np.ndarray:
    """(S, S): the mean over pairs of clients of two leaves, in standard deviations over all pairs.

    The mean of the similarities is taken; 1 on the diagonal, 0 where a leaf has no client.
    """
    pairs = np.mean([without_client_effects(similarity) for similarity in similarities], axis=0)
    sizes = np.bincount(leaf_of, minlength=leaves)
    summed = between_leaves(pairs[None], leaf_of[None], leaves)[0, 0]
    means: np.ndarray = summed / np.maximum(sizes[:, None] * sizes, 1)
    np.fill_diagonal(means, 1.0)
    return means


def move_leaf_beside(test: DealTest, leaf: int, other: int) -> DealTest:
    """A cut in which a leaf is on the side of another leaf; without it where only the leaf is there.

    >>> cut = DealTest((0, 1, 2, 3), ((0, 1), (2, 3)), 5.0, 0.001, 0.01, 1999, False)
    >>> move_leaf_beside(cut, 1, 2).parts
    ((0,), (1, 2, 3))
    """
    first, second = (tuple(member for member in part if member != leaf) for part in test.parts)
    if other in first:
        first = tuple(sorted((*first, leaf)))
    if other in second:
        second = tuple(sorted((*second, leaf)))
    return replace(test, leaves=tuple(sorted((*first, *second))), parts=(first, second))


def labels_after(tests: Sequence[DealTest], labels: np.ndarray) -> np.ndarray:
    """Labels (S,) after the accepted cuts."""
    new_labels, next_label = labels.copy(), int(labels.max()) + 1
    for test in tests:
        if test.stands and test.parts[1]:
            new_labels[list(test.parts[1])] = next_label
            next_label += 1
    return number_by_first_appearance(new_labels)
