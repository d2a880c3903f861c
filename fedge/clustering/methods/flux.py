"""FLUX at the leaves: leaves with similar windows, as seen by the common model, form one cluster.

Fenoglio, Li, Barbiero, Lane, Langheinrich, Gjoreski 2025 (NeurIPS; arXiv 2511.22305). After some rounds
with one model every client describes its windows by it (`fedge.training.describe`), once. The server scales
the descriptions and clusters them by DBSCAN (Ester et al. 1996): a client joins any other within ε, and
clients without one are alone. ε is the value at the knee of the sorted distances to the
nearest other. From then on clusters train apart.

Read in the authors' code (dariofenoglio98/FLUX at 43aadbeb, `flux/server.py`, `public/models.py`,
`public/config.py`): all of the above, with at least two members to a cluster and a factor of 1 to ε. Not
read: the paper's text, `flux_dynamic`, and how a new client is placed (a note says: by the nearest centre of
its means and deviations without labels; here `fedge predict --fit` does this). Differences: leaves are
grouped in round `split_round` (there, when validation accuracy rises by less than 0.06 in a round, from the
third on); every number of a description is scaled by its own deviation over leaves (there, by a scaler for
each mean and deviation vector); the knee is the point farthest below the chord (there, the package kneed's);
clients describe validation windows, and a leaf's description is their mean, weighted by windows. Shape
letters: S leaf servers, K clients.
"""

import numpy as np

from fedge.clustering.likeness.evidence import Answers, Evidence
from fedge.clustering.likeness.similarity import connected_components, number_by_first_appearance
from fedge.clustering.registry import Grouping, Need, method
from fedge.config.sections.cluster import ClusterConfig
from fedge.exchange.evaluate import DESCRIBED


def _description(_: ClusterConfig) -> frozenset[Need]:
    """Need clients' description of their windows by the mean of all models."""
    return frozenset({"description"})


@method(_description, "descriptions of windows")
def flux(
    evidence: Evidence,
    config: ClusterConfig,
    before: np.ndarray | None,
    *,
    split_round: int,
    scale: float,
) -> Grouping:
    """Group leaves by descriptions of their clients' windows, once, in round `split_round`.

    Args:
        evidence: evidence, with answers if leaves should be grouped.
        config: configuration of the run.
        before: (S,) labels in force, or None.
        split_round: global round of the grouping, for which the cloud asks clients.
        scale: factor to ε.
    """
    leaves = len(evidence.models)
    present = np.zeros(leaves, np.int64) if before is None else before
    if evidence.answers is None:
        return Grouping(present, None)
    descriptions = leaf_descriptions(evidence.answers, leaves)
    if np.isnan(descriptions).any():
        silent = int(np.flatnonzero(np.isnan(descriptions).any(axis=1))[0])
        return Grouping(present, None, {"skipped": f"no client of leaf {silent} has described its windows"})
    distances = scaled_distances(descriptions)
    radius = scale * knee(distances)
    labels = dbscan_labels(distances, radius)
    return Grouping(labels, -distances, {"radius": radius})


def leaf_descriptions(answers: Answers, leaves: int) -> np.ndarray:
    """(S, numbers) the mean description of each leaf's clients; NaN for a leaf without answers."""
    descriptions = answers.moments.get(DESCRIBED)
    if descriptions is None:
        return np.full((leaves, 1), np.nan)
    means = np.full((leaves, descriptions.shape[1]), np.nan)
    for leaf in range(leaves):
        answering = (answers.leaf_of == leaf) & np.isfinite(descriptions).all(axis=1)
        if answering.any():
            means[leaf] = np.average(descriptions[answering], axis=0, weights=answers.windows[answering])
    return means


def scaled_distances(descriptions: np.ndarray) -> np.ndarray:
    """(S, S) Euclidean distances of descriptions of which every number has unit deviation.

    >>> scaled_distances(np.array([[0.0, 5.0], [2.0, 5.0]])).tolist()  # the second number does not differ
    [[0.0, 2.0], [2.0, 0.0]]
    """
    deviation = descriptions.std(axis=0)
    scaled = (descriptions - descriptions.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)
    distances: np.ndarray = np.sqrt(np.square(scaled[:, None] - scaled).sum(axis=2))
    return distances


def knee(distances: np.ndarray) -> float:
    """The distance to the nearest other at the knee of all of them, sorted; (S, S) → one number.

    The knee is the point farthest below the line from the first to the last. With fewer than three, or equal
    ones, the first.
    """
    others = distances + np.where(np.eye(len(distances), dtype=bool), np.inf, 0.0)
    nearest = np.sort(others.min(axis=1))
    if len(nearest) < 3 or nearest[-1] == nearest[0]:
        return float(nearest[0])
    positions = np.linspace(0, 1, len(nearest))
    height = (nearest - nearest[0]) / (nearest[-1] - nearest[0])
    return float(nearest[int((positions - height).argmax())])


def dbscan_labels(distances: np.ndarray, radius: float) -> np.ndarray:
    """Labels (S,) of DBSCAN with two members to a core: leaves within `radius` are joined."""
    adjacent = distances <= radius
    return number_by_first_appearance(connected_components(adjacent))
