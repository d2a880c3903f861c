"""A method at the cloud: groups of leaves, or a mixture of several models for each.

    offer of leaf e = Σ_k Π_ek w_k

with memberships Π (S, K), whose rows sum to 1, and models w_k, by default the mean of the leaves' models
under the weights Π_ek n_e, n_e a leaf's training windows. Labels are the largest membership. K = 1 is
HierFAVG (Liu et al. 2020), Π of zeros and ones hard clusters. Shape letters: S leaf servers, K models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from fedge.clustering.likeness.evidence import Evidence, Questions
from fedge.states.averaging import State


@dataclass(frozen=True)
class Family:
    """K models, and the share of each in every leaf's offer.

    Attributes:
        memberships: Π (S, K), 0..1, rows sum to 1.
        models: w_1 … w_K; None for the membership-weighted means of the leaves' models.
        similarity: (S, S), or None if leaves were not compared in pairs.
        facts: further findings for clusters.jsonl, as JSON.
    """

    memberships: np.ndarray
    models: Sequence[State] | None = None
    similarity: np.ndarray | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


class CloudPart:
    """Cloud side of a method; derive a class and write `group`.

    One object serves a whole run. Its state from step to step goes into ``cloud.memory`` (arrays, numbers
    and states by name), which is in checkpoints, never into the object. Its constructor takes the arguments
    of `cluster.method-args`.

    Attributes:
        needs: names in `fedge.clustering.registry.NEEDS`.
        compares: basis of its comparison of leaves, in a word or two.
        told: its effect, in one sentence, for pages.
        keeps: its state from round to round, in words; empty for nothing.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    compares: ClassVar[str] = "models"
    told: ClassVar[str] = ""
    keeps: ClassVar[str] = ""

    def ask(self, cloud: Evidence) -> Questions | None:
        """Models for evaluation by each leaf's clients before `group`, by role; None for none."""
        return None

    def group(self, cloud: Evidence) -> Any:
        """Labels (S,), a `Family`, or a `fedge.clustering.registry.Grouping`, in every cloud step."""
        raise NotImplementedError


def entropies(memberships: np.ndarray) -> np.ndarray:
    """Entropy of each leaf's memberships, (S,), in nats: 0 for a single model, ln K for equal shares of all.

    >>> entropies(np.array([[1.0, 0.0], [0.5, 0.5]])).round(3)
    array([0.   , 0.693])
    """
    shares = np.asarray(memberships, dtype=np.float64)
    logs = np.log(np.where(shares > 0, shares, 1.0))
    return np.abs(-(shares * logs).sum(axis=1))
