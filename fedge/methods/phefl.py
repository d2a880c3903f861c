"""PHE-FL: every leaf is served a mixture of its own model and the mean of all others', weighted by scores.

    CAM_e = Σ_{k≠e} n_k/(N − n_e) · EAM_k;   α_e = a/(a + b), a and b the scores of EAM_e and CAM_e;
    PEAM_e = α_e EAM_e + (1 − α_e) CAM_e,   the next model of leaf e

EAM_e is leaf e's model. α_e is ½ where a + b is 0 or a score is not finite. Tasks whose scores may be
negative are refused.

Source: Lee, Tavallaie, Chen, Thilakarathna, Seneviratne, Toosi, Zomaya 2025, arXiv:2504.08872. There is no
public code of the authors. There α is chosen on the test data of its evaluation; here scores are of the
validation windows of a leaf's clients. The cloud makes the mixture, so the mixture is sent as well as CAM.
"""

from typing import ClassVar

import numpy as np

from fedge.clustering.cloud_part import CloudPart, Family
from fedge.clustering.likeness.evidence import Evidence, Questions
from fedge.states.averaging import weighted_mean

OWN, OTHERS = "own", "others"


class PheFl(CloudPart):
    """Mixtures by validation scores."""

    compares: ClassVar[str] = "scores of own and others' models"
    told: ClassVar[str] = "Every leaf mixes its model with the mean of all others', by their scores"

    def ask(self, cloud: Evidence) -> Questions:
        """Each leaf's own model, and the mean of all others'."""
        shares = _shares_of_others(cloud)
        mixed = [weighted_mean(cloud.models, row) for row in shares]
        return [{OWN: model, OTHERS: others} for model, others in zip(cloud.models, mixed, strict=True)]

    def group(self, cloud: Evidence) -> Family:
        """Mixtures of all leaves' models."""
        own_scores, other_scores = (scores(cloud, role) for role in (OWN, OTHERS))
        total = own_scores + other_scores
        is_known = np.isfinite(total) & (total > 0)
        alpha = np.where(is_known, own_scores / np.where(is_known, total, 1.0), 0.5)
        memberships = alpha[:, None] * np.eye(len(alpha)) + (1 - alpha)[:, None] * _shares_of_others(cloud)
        return Family(memberships, cloud.models, facts={"alpha": alpha.tolist()})


def _shares_of_others(cloud: Evidence) -> np.ndarray:
    """Shares of all other leaves, (S, S), rows sum to 1; of itself for a leaf with all windows."""
    n = np.asarray(cloud.weights, dtype=np.float64)
    rest = n.sum() - n
    shares = n * (1 - np.eye(len(n))) / np.where(rest > 0, rest, 1.0)[:, None]
    return np.where((rest > 0)[:, None], shares, np.eye(len(n)))


def scores(cloud: Evidence, role: str) -> np.ndarray:
    """Score of a role's model at each leaf, (S,): mean over clients' windows, NaN without answers."""
    result = np.full(len(cloud.weights), np.nan)
    if cloud.answers is not None and role in cloud.answers.accuracies:
        scored, windows = cloud.answers.accuracies[role], cloud.answers.windows
        for leaf in range(len(result)):
            answering = (cloud.answers.leaf_of == leaf) & np.isfinite(scored) & (windows > 0)
            if answering.any():
                result[leaf] = np.average(scored[answering], weights=windows[answering])
    return result
