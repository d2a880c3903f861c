"""A short summary of a long vector, with the same inner products, so no server must hold all clients' models.

    sketch[j] = Σ_r s(r, j) · x[r · size + j],   s(r, j) = ±1 drawn at random, the same for all vectors

Over the signs, the mean of ⟨sketch(x), sketch(y)⟩ is ⟨x, y⟩ and its standard deviation about ‖x‖‖y‖/√size. A
vector no longer than the sketch is kept unchanged. Shape letters: K clients, P entries.

Source: Charikar, Chen and Farach-Colton 2002, Finding frequent items in data streams (count sketch), with the
index of an entry instead of its hash.
"""

from collections.abc import Sequence

import numpy as np

SIZE = 4096  # 32 kB in float64; cosines are then right to about 0.016
_ROWS = 256  # rows of which signs are drawn at a time: 1 MB
_SIGNS_SEED = 20021  # the signs belong to the method, not to a run: equal vectors have equal sketches


def sketch(arrays: Sequence[np.ndarray], size: int = SIZE) -> np.ndarray:
    """(min(P, size),) float64 of all P entries of some arrays, in order.

    Linear: the sketch of a sum is the sum of the sketches.

    >>> sketch([np.array([3.0, 4.0]), np.array([[5.0]])]).tolist()
    [3.0, 4.0, 5.0]
    """
    flat = np.concatenate([np.asarray(array, dtype=np.float64).ravel() for array in arrays] or [np.zeros(0)])
    if flat.size <= size:
        return flat
    summed = np.zeros(size)
    for number, first in enumerate(range(0, flat.size, _ROWS * size)):
        part = flat[first : first + _ROWS * size]
        rows = -(-part.size // size)
        bits = np.random.default_rng([_SIGNS_SEED, number]).integers(0, 256, rows * size // 8 + 1, np.uint8)
        signs = 1.0 - 2.0 * np.unpackbits(bits)[: part.size]
        padded = np.zeros(rows * size)
        padded[: part.size] = part * signs
        summed += padded.reshape(rows, size).sum(axis=0)
    return summed


def cosines(vectors: np.ndarray) -> np.ndarray:
    """(K, K) cosines of K vectors (K, P); 0 with a zero vector; 1 on the diagonal.

    >>> cosines(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])).round(3).tolist()
    [[1.0, 0.707, 0.0], [0.707, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    lengths = np.sqrt(np.square(vectors).sum(axis=1))
    unit = vectors / np.where(lengths > 0, lengths, 1.0)[:, None]
    # not by BLAS, whose last bits depend on the number of threads
    matrix = np.stack([(unit * row).sum(axis=1) for row in unit])
    np.fill_diagonal(matrix, 1.0)
    return matrix
