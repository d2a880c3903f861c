"""StoCFL at the leaves: every leaf begins alone; clusters with similar updates of one anchor are joined.

Zeng, Hu, Liu, Yu, Wang, Xu 2023, "Stochastic Clustered Federated Learning" (arXiv 2303.00897). Ψ_j is a
leaf's update of a common, constant model, the *anchor*; measured once. Every leaf begins as a cluster; in
each cloud step clusters are represented by the means of their Ψ, and pairs with a cosine of at least τ
(`cluster.tau`) are joined. Clusters never part.

Read in the authors' code (dunzeng/StoCFL at bd6d0312, `StoCFL-FCC.py`, `trainer.py`): the above, with pairs
joined in descending order of the cosines of the round, including leaves joined in between (union–find), τ =
0.3 (0.2 for rotated images, 0.65 for 200 clients of CIFAR-10). Not read: the paper's text and tables.
Differences: the anchor is the run's initial model and Ψ its update in the first global round (there, in a
client's first training); all leaves take part in every round; the model of joined clusters is the mean over
their leaves (there, the larger one's); and there is no pull of cluster models to a global one (there, μ/2 |w
− ω|² with μ = 0.1). Shape letter: S leaf servers.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedge.clustering.likeness.evidence import Evidence
from fedge.clustering.likeness.similarity import number_by_first_appearance
from fedge.clustering.methods.baselines import cosines_of, inner_products, needs_one_start
from fedge.clustering.registry import Grouping, method
from fedge.config.sections.cluster import ClusterConfig
from fedge.states.restore_checks import checked_list, checked_number, refuse_unequal_facts


def _refuse_other(kept: Mapping[str, Any], _: ClusterConfig, leaves: int) -> None:
    """Raise ValueError for a state `stocfl` cannot have left."""
    gram = [
        [checked_number(value, "an inner product") for value in row]
        for row in checked_list(kept["gram"], "gram", leaves, leaves)
    ]
    refuse_unequal_facts(kept, {"gram": gram}, "kept")


@method(needs_one_start, "update of the first model", _refuse_other)
def stocfl(evidence: Evidence, config: ClusterConfig, before: np.ndarray | None) -> Grouping:
    """Join clusters with a cosine of at least `cluster.tau` between their mean updates of the first model."""
    is_first = "gram" not in evidence.kept
    gram = inner_products(evidence) if is_first else np.array(evidence.kept["gram"])
    labels = np.arange(len(gram)) if is_first or before is None else before
    return Grouping(merge_once(gram, labels, config.tau), cosines_of(gram), kept={"gram": gram.tolist()})


def merge_once(gram: np.ndarray, labels: np.ndarray, tau: float) -> np.ndarray:
    """Labels (S,) after joining all sufficiently similar pairs of clusters.

    Args:
        gram: (S, S) inner products of Ψ.
        labels: (S,) of clusters before, 0, 1, … without gaps.
        tau: least cosine of two clusters' mean Ψ.
    """
    share = np.eye(int(labels.max()) + 1)[labels]
    share /= share.sum(axis=0)
    alike = cosines_of(share.T @ gram @ share)
    new_labels = labels.copy()
    for one, other in np.argwhere(np.triu(alike >= tau, 1)):
        kept, replaced = new_labels[labels == one][0], new_labels[labels == other][0]
        new_labels[new_labels == replaced] = kept
    return number_by_first_appearance(new_labels)
