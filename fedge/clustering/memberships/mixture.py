"""Correct predictions by class, and the gain of a change for people with the classes of all leaves.

If class shares differ between leaves, a model of leaves with the same few classes does better there merely
because it expects these classes, even at clients it has never seen, since they are at the same leaves. A
person with all classes loses by it. So a gain due to class shares alone must not count. By direct
standardisation the classes of a part of the leaves are judged one by one, and weighted by their shares π
among all answering clients:

    error     e = Σ_c π_c (1 − right_c / windows_c)      of a model, validation windows of the part's clients
    worth     mean over the parts of log e(present) − log e(proposed)

Shares are those of training windows. If a part has no validation windows of a class, nothing is known about
the class there. If the part trains on it (`_TAUGHT` of its share among all, or more), the class is left out.
Otherwise the proposed model cannot know the class, and the accuracy of the present one cannot be measured, so
the worst case counts: the proposed model is wrong on all of the class, the present one right. Without this
rule a model of two classes, which learns them sooner than another learns six, would seem better to everybody
for some rounds.

Shape letters: K clients, C classes.

Sources: Keiding 1987, The method of expected number of deaths, 1786–1886–1986, International Statistical
Review 55 (standardisation); Saerens, Latinne and Decaestecker 2002, Adjusting the outputs of a classifier to
new a priori probabilities, Neural Computation 14; Zhang, Schölkopf, Muandet and Wang 2013, Domain adaptation
under target and conditional shift (classes' shares differ, and the look of a class does not); Manski 1990,
Nonparametric bounds on treatment effects (the worst case, where data tell nothing).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedge.data.composition import widest_class_gap

WIDE = 0.2  # gap of the classes from which on they are looked at one by one: people who do all come to .05
_TAUGHT = 0.25  # of a class's share, from which on a part without validation windows of it knows it


@dataclass(frozen=True)
class ByClass:
    """Correct predictions of two models on clients' windows, class by class.

    Attributes:
        leaf_of: (K,) the leaf of each client.
        taught: (K, C) training windows of each class.
        windows: (K, C) validation windows of each class; 0 where a client has not evaluated both models.
        present: (K, C) of these, the windows the present model gets right.
        proposed: (K, C) of these, the windows the proposed model gets right.
    """

    leaf_of: np.ndarray
    taught: np.ndarray
    windows: np.ndarray
    present: np.ndarray
    proposed: np.ndarray

    @property
    def is_skewed(self) -> bool:
        """Whether class shares differ much between leaves."""
        of_leaf = [self.taught[self.leaf_of == leaf].sum(axis=0) for leaf in np.unique(self.leaf_of)]
        return bool(of_leaf) and widest_class_gap(np.array(of_leaf)) > WIDE


def standardised_gain(predictions: ByClass, parts: Sequence[tuple[int, ...]]) -> float | None:
    """Fall of the log error for people with all classes: the mean over parts of leaves.

    Args:
        predictions: predictions on the clients' windows.
        parts: parts of leaves whose clients judge; those where no client evaluated both models are left out.

    Two classes with as many windows each; the present model has 6 of 8 right, the proposed one 7:

    >>> held = np.full((2, 2), 4)
    >>> right = np.array([[3, 3], [3, 3]])
    >>> better = np.array([[4, 3], [3, 4]])
    >>> predictions = ByClass(np.array([0, 1]), held, held, right, better)
    >>> round(float(np.exp(standardised_gain(predictions, [(0,), (1,)]))), 3)  # (2/8 + 1/8) / (1/8 + 1/8)
    1.5
    """
    share = _shares(predictions.taught)
    falls = []
    for part in parts:
        in_part = np.isin(predictions.leaf_of, part)
        windows, part_share = predictions.windows[in_part].sum(axis=0), _shares(predictions.taught[in_part])
        known = windows > 0
        untaught = ~known & (part_share < _TAUGHT * share)
        weights = np.where(known | untaught, share, 0.0)
        if known.any() and weights.sum() > 0:
            weights /= weights.sum()
            rates = [
                right[in_part].sum(axis=0) / np.maximum(windows, 1)
                for right in (predictions.present, predictions.proposed)
            ]
            least = 1 / windows.sum()  # an error of zero among few windows is no error of zero
            before = weights @ np.where(known, 1 - rates[0], 0.0) + least
            after = weights @ np.where(known, 1 - rates[1], 1.0) + least
            falls.append(np.log(before / after))
    return float(np.mean(falls)) if falls else None


def _shares(counts: np.ndarray) -> np.ndarray:
    """Share (C,) of each class in counts (K, C); 0 without any."""
    total = counts.sum(axis=0)
    return np.asarray(total / max(int(total.sum()), 1))
