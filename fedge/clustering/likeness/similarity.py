"""Similarity of leaf models, and groups as connected components above a threshold.

Pure functions on arrays. Shape letter: S leaf servers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

ModelWeights = Mapping[str, np.ndarray] | Sequence[np.ndarray]


def weight_clustering(
    server_weights_list: Sequence[ModelWeights],
    global_weights: Any = None,
    reference_imgs: Any = None,
    round_num: int = 0,
    tau: float = 0.7,
    stability_history: list[np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Group leaf servers by the published rule (contract C5).

    Last-layer weights of each leaf model, L2-normalised; absolute cosine similarity; an edge where the
    similarity is at least `tau`; connected components.

    Args:
        server_weights_list: S models, each a mapping name → array or a list of arrays, in layer order. The
            last array with two or more axes is taken as the last layer's weights (biases have one).
        global_weights: accepted for earlier callers; unused.
        reference_imgs: accepted for earlier callers; unused.
        round_num: accepted for earlier callers; unused.
        tau: threshold on the absolute cosine, -1..1; above 1 every leaf stays alone.
        stability_history: a list for appending this call's labels, to show the stability of groups.

    Returns:
        labels (S,) int64, numbered by first appearance; similarity (S, S) float64, diagonal 1; `tau`.

    Raises:
        ValueError: no models, no weight matrix in one, different shapes, or non-finite weights (the leaf is
            named).

    >>> models = [{"w": np.array([head])} for head in ([1.0, 0.0], [0.0, 2.0], [-3.0, 0.0])]
    >>> labels, similarity, _ = weight_clustering(models, tau=0.7)
    >>> labels.tolist(), similarity[0].tolist()  # the sign does not count
    ([0, 1, 0], [1.0, 0.0, 1.0])
    """
    heads = [last_layer(model) for model in server_weights_list]
    similarity = np.abs(cosine_similarity(heads))
    labels = threshold_components(similarity, tau)
    if stability_history is not None:
        stability_history.append(labels.copy())
    return labels, similarity, tau


def last_layer(model: ModelWeights) -> np.ndarray:
    """The last array with two or more axes, (classes, …): the weights of a model's last layer.

    Raises:
        ValueError: the model has no such array.
    """
    arrays = list(model.values()) if isinstance(model, Mapping) else list(model)
    for array in reversed(arrays):
        if np.ndim(array) >= 2:
            return np.asarray(array)
    raise ValueError("a model without any array of two or more axes has no last-layer weights")


def cosine_similarity(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """The (S, S) signed cosines of S arrays, flattened, in float64; 1 on the diagonal.

    An all-zero array has no direction: its cosine with every other is 0. Two arrays and their product are
    held at a time, so a sequence may compute each on access.

    Raises:
        ValueError: no arrays, different sizes, or a non-finite value (the leaf is named).

    >>> cosine_similarity([np.array([3.0, 4.0]), np.array([4.0, 3.0])]).round(2).tolist()
    [[1.0, 0.96], [0.96, 1.0]]
    """
    if not vectors:
        raise ValueError("clustering needs at least one leaf model, got none")
    sizes, squares = [], []
    for leaf, vector in enumerate(map(_flat, vectors)):
        sizes.append(vector.size)
        if vector.size != sizes[0]:
            raise ValueError(
                f"leaf {leaf} has {vector.size} values where leaf 0 has {sizes[0]}; models must be alike"
            )
        if not np.isfinite(vector).all():
            raise ValueError(f"leaf {leaf} has non-finite weights; its training diverged, lower train.lr")
        squares.append(_dot(vector, vector))
    similarity = np.eye(len(sizes))
    for i in range(1, len(sizes)):
        vector = _flat(vectors[i])
        for j in range(i):
            norms = math.sqrt(squares[i] * squares[j])  # of the product: equal arrays get exactly 1
            value = _dot(vector, _flat(vectors[j])) / norms if norms > 0 else 0.0
            similarity[i, j] = similarity[j, i] = min(1.0, max(-1.0, value))
    return similarity


def _flat(vector: np.ndarray) -> np.ndarray:
    """An array as one of float64."""
    return np.asarray(vector, dtype=np.float64).ravel()


def _dot(a: np.ndarray, b: np.ndarray) -> float:
    """Σ a·b; not by BLAS, whose last bits depend on the number of threads."""
    return float((a * b).sum())


def threshold_components(similarity: np.ndarray, tau: float) -> np.ndarray:
    """The connected components of the graph with an edge where similarity (S, S) ≥ tau.

    Labels (S,) int64 are numbered by first appearance, so leaf 0 is always in cluster 0.

    Leaves 0 and 2 are in one component by way of 1:

    >>> similarity = np.array([[1.0, 0.8, 0.1], [0.8, 1.0, 0.9], [0.1, 0.9, 1.0]])
    >>> threshold_components(similarity, tau=0.7).tolist()
    [0, 0, 0]
    >>> threshold_components(similarity, tau=0.85).tolist()
    [0, 1, 1]
    """
    return number_by_first_appearance(connected_components(similarity >= tau))


def connected_components(edges: np.ndarray) -> np.ndarray:
    """Least node of each node's component in an undirected graph, (S,) int64.

    Every node takes the least name among its neighbours' until none changes: S steps at most, each of S²
    comparisons. SciPy's function would load a tenth of a second of packages for a handful of leaves.

    Args:
        edges: (S, S) bool; one direction of an edge suffices, and the diagonal is not looked at.

    >>> connected_components(np.array([[0, 0, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)).tolist()
    [0, 1, 0]
    """
    adjacent = edges | edges.T | np.eye(len(edges), dtype=bool)
    labels = np.arange(len(adjacent))
    while True:
        least = np.where(adjacent, labels, len(adjacent)).min(axis=1)
        if (least == labels).all():
            return labels
        labels = least


def number_by_first_appearance(labels: np.ndarray) -> np.ndarray:
    """Labels (S,) int64, renamed to 0, 1, 2, … in the order in which they first occur.

    >>> number_by_first_appearance(np.array([7, 7, 2, 7, 5])).tolist()
    [0, 0, 1, 0, 2]
    """
    numbers: dict[int, int] = {}
    return np.array([numbers.setdefault(int(label), len(numbers)) for label in labels], dtype=np.int64)
