"""Cuts of leaves in two: the distance between the clients of the parts, and its distribution by chance.

All quantities use cosines of clients' updates, less each client's common part with all others. Shape letters:
S leaf servers, K clients, D deals, Q cuts, M similarities.

Source: Anderson 2001, A new method for non-parametric multivariate analysis of variance (the share explained,
and the pseudo-F, from similarities).
"""

from collections.abc import Sequence

import numpy as np

from fedge.clustering.likeness.affinity import effects

MOST_LEAVES_FOR_ALL_CUTS = 12  # 2,047 cuts
EIGENVECTORS = 2  # of the leaves' similarity, by which cuts are proposed where there are too many
ROUNDING = 1e-9  # by which equal statistics may differ
_LEAST_LEFT = 1e-6  # share of the distances, of which a logarithm is taken


def without_client_effects(similarity: np.ndarray) -> np.ndarray:
    """Interaction of each pair of clients: (K, K), symmetric, zero diagonal, zero row sums.

    A client equally far from, or equally close to, all others says nothing about groups.

    Args:
        similarity: (K, K), symmetric, larger is more alike; the diagonal is not looked at; K ≥ 3.

    Returns:
        The rest, with unit standard deviation over pairs; all zero where pairs do not differ.
    """
    rest = effects(similarity)[1]
    rest = (rest + rest.T) / 2
    spread = rest[~np.eye(len(rest), dtype=bool)].std()
    return rest / spread if spread > ROUNDING * np.abs(similarity).max() else np.zeros_like(rest)


def mean_apart(similarity: np.ndarray) -> float:
    """Mean distance between pairs of clients, in the unit of `without_client_effects`.

    Args:
        similarity: (K, K); a client has 1 with itself, or as much as the most similar pair.
    """
    pairs = ~np.eye(len(similarity), dtype=bool)
    rest = effects(similarity)[1]
    spread = ((rest + rest.T) / 2)[pairs].std()
    distance = max(1.0, float(similarity[pairs].max())) - float(similarity[pairs].mean())
    return distance / float(spread) if spread > ROUNDING * np.abs(similarity).max() else 1.0


def log_explained(
    between: np.ndarray, mean_distance: np.ndarray, inside: np.ndarray, clients: int
) -> np.ndarray:
    """−log of the share of the squared distances remaining within the parts of cuts.

    With distances less clients' common part with all others, each part's sum within is minus half of the sum
    between them, and a part of n of K clients leaves the share

        1 + between · K / (n (K − n) (K − 2) · mean_distance)

    Args:
        between: (M, D, Q) sum of similarities between the parts.
        mean_distance: (M,) of `mean_apart`.
        inside: (Q,) or (D, Q) clients of one part.
        clients: K.
    """
    weight = clients / (inside * (clients - inside) * (clients - 2))
    remaining = 1 + between * weight / mean_distance[:, None, None]
    logs: np.ndarray = -np.log(np.maximum(remaining, _LEAST_LEFT))
    return logs


def null_spread(pairs: np.ndarray) -> np.ndarray:
    """(M, K+1): the null's standard deviation of the sum over pairs between k clients and the rest.

    Which k clients are set apart is, over all deals, a matter of chance. With rows of zero sum, pairs of
    pairs with a common client have Σ a_ij·a_il = −2T and disjoint ones Σ a_ij·a_lm = T, T = Σ_{i<j} a_ij²,
    and

        variance = T · 4 k (k − 1) (K − k) (K − k − 1) / (K (K − 1) (K − 2) (K − 3)).

    Where it is 0 (a single client: its pairs sum to zero), the result is infinity: such a cut is no evidence.

    Args:
        pairs: (M, K, K), symmetric, zero diagonal, rows with zero sums.
    """
    count = pairs.shape[-1]
    k = np.arange(count + 1.0)
    ways = 4 * k * (k - 1) * (count - k) * (count - k - 1)
    ways /= count * (count - 1) * (count - 2) * (count - 3)
    spread = np.sqrt(np.square(pairs).sum(axis=(-2, -1))[:, None] / 2 * ways)
    return np.where(spread > 0, spread, np.inf)


def between_leaves(pairs: np.ndarray, deals: np.ndarray, leaves: int) -> np.ndarray:
    """(M, D, S, S): sums over the pairs of clients of every two leaves."""
    one_hot = (deals[..., None] == np.arange(leaves)).astype(np.float64)  # (D, K, S)
    summed: np.ndarray = np.swapaxes(one_hot, 1, 2) @ (pairs[:, None] @ one_hot)
    return summed


def proposed_cuts(blocks: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The examined cuts, True for the leaves of one part: (Q, S), or (D, Q, S)."""
    leaves = len(sizes)
    if leaves <= MOST_LEAVES_FOR_ALL_CUTS:
        numbers = np.arange(1, 2 ** (leaves - 1))  # the last leaf is never in the part: each cut once
        return (numbers[:, None] >> np.arange(leaves)) & 1 == 1
    pair_counts = sizes[:, None] * sizes - np.diag(sizes)
    means = blocks.sum(axis=0) / np.maximum(pair_counts, 1)
    order = np.linalg.eigh(means)[1][..., -EIGENVECTORS:].argsort(axis=1)  # (D, S, eigenvectors)
    ranks = np.moveaxis(order.argsort(axis=1), 1, 2)  # (D, eigenvectors, S): place of each leaf
    prefixes = ranks[:, :, None] < np.arange(1, leaves)[:, None]  # (D, eigenvectors, S-1, S)
    single = np.broadcast_to(np.eye(leaves, dtype=bool), (len(means), leaves, leaves))
    return np.concatenate([prefixes.reshape(len(means), -1, leaves), single], axis=1)


def sums_between(blocks: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """(M, D, Q): the sums over all pairs of clients on different sides of a cut."""
    if cuts.ndim == 2:
        differ = (cuts[:, :, None] & ~cuts[:, None, :]).reshape(len(cuts), -1).T.astype(np.float64)
        flat: np.ndarray = blocks.reshape(*blocks.shape[:2], -1) @ differ
        return flat
    inside = cuts.astype(np.float64)
    return np.einsum("dqs,mdst,dqt->mdq", inside, blocks, 1 - inside, optimize=True)


def refine_cut(pairs: np.ndarray, leaf_of: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """The cut (S,) bool reached by moving leaves across, each to a larger separation.

    If there are too many cuts to try them all, the proposed ones are only near the best. The test's finding
    of groups holds, whichever leaves are then put into them.

    Args:
        pairs: (M, K, K), of `without_client_effects`.
        leaf_of: (K,) leaf of each client, 0..S-1.
        cut: (S,) True for the leaves of one part.
    """
    sizes = np.bincount(leaf_of)
    blocks, spread = between_leaves(pairs, leaf_of[None], len(sizes)), null_spread(pairs)
    best = cut.astype(bool)
    flips = np.eye(len(sizes), dtype=bool)
    while True:
        candidates = np.concatenate([best[None], best ^ flips])
        candidates = candidates[candidates.any(axis=1) & ~candidates.all(axis=1)]
        separations = (-sums_between(blocks, candidates)[:, 0] / spread[:, candidates @ sizes]).max(axis=0)
        if separations.argmax() == 0 or separations.max() <= separations[0] + ROUNDING:
            return best
        best = candidates[separations.argmax()]


def similarity_weight(
    similarity: np.ndarray, members: np.ndarray, other_groups: Sequence[np.ndarray]
) -> float:
    """Weight of a similarity in the test of one group of clients, by how clearly it distinguishes all groups.

    It is the pseudo-F of all groups (the variance between them over the variance within) times the group's
    share of the sum of squares within. Neither changes with a new deal of any group's clients to its leaves.

    Args:
        similarity: (K, K) cosines of all clients; squared distances are proportional to 1 − cosine.
        members: the clients of the group.
        other_groups: the clients of each other group, at least one.

    >>> cosines = np.array([[1, 0.9, 0.1, 0.1], [0.9, 1, 0.1, 0.1], [0.1, 0.1, 1, 0.9], [0.1, 0.1, 0.9, 1]])
    >>> round(similarity_weight(cosines, np.array([0, 1]), [np.array([2, 3])]), 9)  # 17, half of it
    8.5
    """
    groups = [members, *other_groups]
    clients = np.concatenate(groups)
    within = sum(_scatter(similarity, group) for group in groups)
    between = max(_scatter(similarity, clients) - within, 0.0) / (len(groups) - 1)
    spread = within / (len(clients) - len(groups))
    if spread <= ROUNDING:
        return 0.0
    return between / spread * _scatter(similarity, members) / within


def _scatter(similarity: np.ndarray, clients: np.ndarray) -> float:
    """Sum of squares of unit vectors about their mean."""
    inner = similarity[np.ix_(clients, clients)]
    return float((1 - inner)[~np.eye(len(clients), dtype=bool)].sum()) / (2 * len(clients))


def remove_directions(
    similarity: np.ndarray, members: np.ndarray, other_groups: Sequence[np.ndarray]
) -> np.ndarray:
    """Similarity (m, m) of some clients, less the directions in which others differ within their groups.

    With or without groups, people differ from each other in some directions more than in others. With X and Y
    the unit vectors of the clients and of the others, Y less the mean of its group, the kernel is

        X Xᵀ − X Yᵀ (Y Yᵀ + λ I)⁻¹ Y Xᵀ,    λ = mean of the diagonal of Y Yᵀ,

    the residual of a ridge regression. Returned is 1 − half of the squared distances, as of a cosine.

    Args:
        similarity: (K, K) cosines of all clients.
        members: (m,) the clients.
        other_groups: the clients of each of the other groups; without any, the similarity is unchanged.

    Source: Hastie, Buja and Tibshirani 1995, Penalized discriminant analysis (differences within groups, with
    a ridge, as the metric).
    """
    inner: np.ndarray = similarity[np.ix_(members, members)]
    others = [group for group in other_groups if len(group) > 1]
    if not others:
        return inner
    rest = np.concatenate(others)
    group_of = np.repeat(np.arange(len(others)), [len(group) for group in others])
    together = group_of[:, None] == group_of
    centre = np.eye(len(rest)) - together / together.sum(axis=1)
    full = similarity.copy()
    np.fill_diagonal(full, 1.0)
    within = centre @ full[np.ix_(rest, rest)] @ centre
    ridge = max(float(np.trace(within)) / len(rest), ROUNDING)
    across = full[np.ix_(members, rest)] @ centre
    kernel = full[np.ix_(members, members)] - across @ np.linalg.solve(
        within + ridge * np.eye(len(rest)), across.T
    )
    norms = np.diag(kernel)
    residual: np.ndarray = 1 - (norms[:, None] + norms - 2 * kernel) / 2
    return (residual + residual.T) / 2
