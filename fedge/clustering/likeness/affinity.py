"""Affinity of leaves: cross-losses without the effects of a model's quality and a client's difficulty.

Every leaf's model is evaluated by every other leaf's clients. Three things make a cross-loss: the model (some
leaves train better ones), the clients (some are hard for every model), and how the two suit each other. Only
the last tells groups: the *relationship* of the social relations model,

    loss[i, j] = mean + actor[i] + partner[j] + relationship[i, j],    i ≠ j.

A leaf model's loss at its own clients is excluded, because the model has memorised them. With three leaves
the first three terms explain all symmetric differences, so there are relationships from four leaves on. Pure
functions on arrays. Shape letters: S leaf servers, K clients.

Source: Warner, Kenny and Stoto 1979, A new round robin analysis of variance for social interaction data.
"""

import numpy as np

from fedge.clustering.likeness.evidence import CrossLosses

FEWEST_LEAVES = 4
_SMALLEST_LOSS = 1e-12  # of which a logarithm is taken


def effects(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Actor effects (…, S) and relationships (…, S, S) of round robins; least squares, in closed form.

    Args:
        matrix: (…, S, S), S ≥ 3; the diagonal is not looked at.
    """
    size = matrix.shape[-1]
    diagonal = np.eye(size, dtype=bool)
    pairs = np.where(diagonal, 0.0, matrix)
    rows, columns = pairs.sum(axis=-1) / (size - 1), pairs.sum(axis=-2) / (size - 1)
    mean = rows.mean(axis=-1)[..., None]
    own_factor = (size - 1) ** 2 / (size * (size - 2))
    other_factor = (size - 1) / (size * (size - 2))
    mean_factor = (size - 1) / (size - 2)
    actor = own_factor * rows + other_factor * columns - mean_factor * mean
    partner = own_factor * columns + other_factor * rows - mean_factor * mean
    fitted = mean[..., None] + actor[..., :, None] + partner[..., None, :]
    return actor, np.where(diagonal, 0.0, pairs - fitted)


def affinity_of(by_leaf: np.ndarray) -> np.ndarray:
    """Affinity of each pair of leaves: (…, S, S), symmetric, positive is better than expected.

    Args:
        by_leaf: (…, S, S) mean log loss of each leaf's model at each leaf's clients.
    """
    relationship = effects(by_leaf)[1]
    mutual: np.ndarray = -(relationship + np.swapaxes(relationship, -1, -2)) / 2
    return mutual


def client_relationships(cross: CrossLosses) -> np.ndarray:
    """(S, K): log loss of each model at each client beyond the expected.

    Logarithms give ratios, for any scale of losses. Cells of a client's own leaf are 0.
    """
    logs = np.log(np.maximum(cross.losses, _SMALLEST_LOSS))
    actor, _ = effects(mean_by_leaf(logs, cross.leaf_of))
    is_own_leaf = np.arange(len(logs))[:, None] == cross.leaf_of
    rest = np.where(is_own_leaf, 0.0, logs - actor[:, None])
    client = rest.sum(axis=0) / (len(logs) - 1)
    return np.where(is_own_leaf, 0.0, rest - client)


def mean_by_leaf(values: np.ndarray, leaf_of: np.ndarray) -> np.ndarray:
    """(…, S, S), the mean over each leaf's clients of values (…, S, K); every client counts alike."""
    leaves = range(values.shape[-2])
    return np.stack([values[..., leaf_of == leaf].mean(axis=-1) for leaf in leaves], axis=-1)
