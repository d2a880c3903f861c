"""Agreement of two groupings of the same leaves: with the truth, and from one round to the next.

Pure functions on labels, whose numbers carry no meaning: only membership counts. Results equal scikit-learn's
measures of the same names, but scikit-learn takes a second to load. Shape letter: S leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Agreement:
    """A grouping against the truth.

    Attributes:
        ari: adjusted Rand index (Hubert and Arabie 1985): 1 for the truth, 0 expected by chance, down to −1.
        nmi: mutual information over the arithmetic mean of both entropies, 0..1.
        homogeneity: 1 if every cluster holds leaves of one group only (Rosenberg and Hirschberg 2007).
        completeness: 1 if all leaves of a group are in one cluster.
    """

    ari: float
    nmi: float
    homogeneity: float
    completeness: float


def agreement(truth: Sequence[int], labels: Sequence[int]) -> Agreement:
    """Agreement of `labels` (S,) with `truth` (S,); S is at least 1.

    Adjusted Rand index: Hubert and Arabie 1985. Membership matters, numbers of clusters do not:

    >>> agreement([0, 0, 1, 1], [1, 1, 0, 0]).ari
    1.0
    >>> agreement([0, 0, 1, 1], [0, 0, 0, 0]).ari  # one cluster tells nothing
    0.0
    """
    counts = _contingency(truth, labels)
    truth_entropy, entropy = _entropy(counts.sum(axis=1)), _entropy(counts.sum(axis=0))
    information = _information(counts)
    homogeneity = information / truth_entropy if truth_entropy else 1.0
    completeness = information / entropy if entropy else 1.0
    mean_entropy = (truth_entropy + entropy) / 2
    nmi = information / mean_entropy if mean_entropy else 1.0
    return Agreement(_adjusted_rand(counts), nmi, homogeneity, completeness)


def churn(before: Sequence[int] | np.ndarray, after: Sequence[int] | np.ndarray) -> float:
    """The share of leaf pairs joined or separated, 0..1: one minus the Rand index (1971).

    Both are (S,) labels. A renumbered cluster is no change. A single leaf has no pairs: 0.

    >>> churn([0, 0, 1, 1], [1, 1, 0, 0])
    0.0
    >>> churn([0, 0, 1, 1], [0, 0, 0, 1])  # joins 0–2 and 1–2, parts 2–3
    0.5
    """
    a, b = np.asarray(before), np.asarray(after)
    changed = (a[:, None] == a) != (b[:, None] == b)
    pairs = len(a) * (len(a) - 1)
    return float(changed.sum() / pairs) if pairs else 0.0


def _contingency(truth: Sequence[int], labels: Sequence[int]) -> np.ndarray:
    """(groups, clusters): leaves of each group in each cluster."""
    rows, columns = (np.unique(np.asarray(a), return_inverse=True)[1] for a in (truth, labels))
    counts = np.zeros((rows.max() + 1, columns.max() + 1), dtype=np.int64)
    np.add.at(counts, (rows, columns), 1)
    return counts


def _adjusted_rand(counts: np.ndarray) -> float:
    """The adjusted Rand index of a contingency table."""
    together, in_truth, in_labels, pairs = (
        int((n * (n - 1)).sum()) // 2
        for n in (counts, counts.sum(axis=1), counts.sum(axis=0), counts.sum(keepdims=True))
    )
    if in_truth == in_labels == together:  # the same grouping; also where both leave nothing to adjust
        return 1.0
    expected = in_truth * in_labels / pairs
    return (together - expected) / ((in_truth + in_labels) / 2 - expected)


def _entropy(sizes: np.ndarray) -> float:
    """The entropy in nats of a grouping with clusters of the given sizes (all above 0)."""
    shares = sizes / sizes.sum()
    return max(0.0, -float((shares * np.log(shares)).sum()))


def _information(counts: np.ndarray) -> float:
    """The mutual information in nats of both sides of a contingency table, 0 for rounding errors."""
    joint = counts / counts.sum()
    independent = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0)
    occurs = joint > 0
    information = float((joint[occurs] * np.log(joint[occurs] / independent[occurs])).sum())
    return information if information > np.finfo(np.float64).eps else 0.0
