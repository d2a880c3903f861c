"""Signals of similarity between leaves: evidence → matrix, one function per `cluster.signal`.

Shape letters: S leaf servers, K clients.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from fedge.clustering.likeness.affinity import FEWEST_LEAVES, affinity_of, client_relationships, mean_by_leaf
from fedge.clustering.likeness.evidence import CrossLosses, Evidence, NotComparable
from fedge.clustering.likeness.similarity import cosine_similarity, last_layer
from fedge.clustering.registry import Need
from fedge.config.registers.determinism import call_checked
from fedge.config.registers.groupings import SIGNALS
from fedge.config.registers.option import ConfigError, shown
from fedge.states.averaging import State

Signal = Callable[..., np.ndarray]
"""(evidence, further arguments) → (S, S), symmetric, larger is more alike."""


def signal(*needs: Need) -> Callable[[Signal], Signal]:
    """Declare the needs of a signal."""

    def declare(similarity: Signal) -> Signal:
        similarity.needs = frozenset(needs)  # type: ignore[attr-defined]
        return similarity

    return declare


def needs_of(name: str) -> frozenset[Need]:
    """Needs of a signal: quantities to be gathered for it."""
    return frozenset(getattr(SIGNALS.load(name), "needs", ()))


def similarity_of(name: str, evidence: Evidence, arguments: Mapping[str, Any] | None = None) -> np.ndarray:
    """The (S, S) similarity of the leaves by a signal.

    Raises:
        NotComparable: leaves did not start from one model, or clients have not answered.
        ValueError: the signal is not finite in a leaf (the leaf is named).
        ConfigError: a user's signal fails, or its result is no such matrix.
    """
    similarity: Signal = SIGNALS.load(name)
    if not SIGNALS.is_own(name):
        return similarity(evidence, **(arguments or {}))
    with SIGNALS.explaining_errors(name, NotComparable):
        evidence_view = evidence.read_only()
        result = call_checked(SIGNALS, name, lambda: similarity(evidence_view, **(arguments or {})))
    return _to_matrix(name, result, len(evidence.models))


def _to_matrix(name: str, result: Any, size: int) -> np.ndarray:
    """Result of a user's signal as float64 (S, S).

    Raises:
        ConfigError: another type or shape, values not finite or not symmetric.
    """
    with suppress(TypeError, ValueError):
        matrix = np.asarray(result)
        if matrix.dtype.kind == "c":  # NumPy would drop the imaginary part with no more than a warning
            raise TypeError
        matrix = matrix.astype(np.float64)
        if matrix.shape == (size, size) and np.isfinite(matrix).all() and np.allclose(matrix, matrix.T):
            return matrix
    raise ConfigError(
        f"cluster.signal {name} must return a symmetric ({size}, {size}) matrix of finite numbers, but "
        f"returned {shown(result)}; fix it"
    )


# --- of models ----------------------------------------------------------------------------------------


def weights(evidence: Evidence) -> np.ndarray:
    """The absolute cosine of the last layer's weights, as published (contract C5)."""
    return np.abs(cosine_similarity([last_layer(_parameters(m, evidence)) for m in evidence.models]))


@signal("starts")
def update(evidence: Evidence) -> np.ndarray:
    """Signed cosine of the round's updates, over all trainable entries.

    Source: Sattler et al. 2020, Clustered Federated Learning, equation 10.
    """
    return cosine_similarity(_Changes(evidence, evidence.parameter_names))


@signal("starts")
def update_head(evidence: Evidence) -> np.ndarray:
    """The same over the last layer's weights only."""
    matrices = [name for name in evidence.parameter_names if np.ndim(evidence.models[0][name]) >= 2]
    if not matrices:
        last_layer({})  # says so
    return cosine_similarity(_Changes(evidence, matrices[-1:]))


class _Changes(Sequence[np.ndarray]):
    """Change of each leaf's trainable entries, float64 (P,), made on request: none is kept."""

    def __init__(self, evidence: Evidence, names: Sequence[str]) -> None:
        if not evidence.common_start:  # meaningless from different starts
            raise NotComparable("leaves did not start from one model, so their updates cannot be compared")
        assert evidence.starts is not None
        self._pairs = list(zip(evidence.models, evidence.starts, strict=True))
        self._names = names

    def __len__(self) -> int:
        return len(self._pairs)

    def __getitem__(self, leaf: Any) -> Any:
        model, start = self._pairs[leaf]
        flat = np.empty(sum(model[name].size for name in self._names), np.float64)
        first = 0
        for name in self._names:
            part = flat[first : first + model[name].size]
            np.subtract(model[name].ravel(), start[name].ravel(), out=part, dtype=np.float64)
            first += part.size
        return flat


def _parameters(state: State, evidence: Evidence) -> State:
    """The trainable entries of a state."""
    return {name: state[name] for name in evidence.parameter_names}


# --- of losses at each other's clients ----------------------------------------------------------------


@signal("cross-losses")
def cross_loss(evidence: Evidence) -> np.ndarray:
    """Minus the excess loss of two leaves' models at each other's clients.

    Excess is over the loss of the clients' own leaf's model; the mean of both directions; 0 on the diagonal.
    Grouping by losses is the idea of Ghosh et al. 2020, IFCA.
    """
    excess = _excess_losses(evidence)
    mutual: np.ndarray = -(excess + excess.T) / 2
    return mutual


@signal("cross-losses")
def cross_loss_rows(evidence: Evidence) -> np.ndarray:
    """The correlation of two models' excess losses over all leaves: high if both are bad at the same ones.

    A model equally good at all leaves has no profile: its correlation with every other is 0.
    """
    excess = _excess_losses(evidence)
    return cosine_similarity([row - row.mean() for row in excess])


@signal("cross-losses")
def affinity(evidence: Evidence) -> np.ndarray:
    """Gain of two leaves' models at each other's clients over the expected loss, in log loss.

    Expected is the part explained by the models' quality and the clients' difficulty
    (`fedge.clustering.likeness.affinity`). The value is the mean over the newest cloud steps since the groups
    changed; 0 on the diagonal, and everywhere with fewer than four leaves.
    """
    leaves = tuple(range(len(evidence.models)))
    if len(leaves) < FEWEST_LEAVES:
        return np.zeros((len(leaves), len(leaves)))
    _known_losses(evidence)
    return affinity_of(mean_by_leaf(*relationships_among(evidence, leaves)))


def relationships_among(evidence: Evidence, leaves: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The relationships (S, K) of some leaves' models and clients, and the leaf of each client.

    They are the mean over this cloud step and the recent ones; a client does not count in a step without its
    answer, and not at all without any answer.

    Args:
        evidence: evidence with cross-losses.
        leaves: S ≥ 4 of them; in the result they are numbered 0..S-1 in this order.
    """
    steps = [_select_leaves(cross, leaves) for cross in (*evidence.recent, evidence.cross)]
    leaf_of = steps[-1].leaf_of
    total, counts = np.zeros((len(leaves), len(leaf_of))), np.zeros(len(leaf_of), dtype=np.int64)
    for cross in steps:
        known = np.isfinite(cross.losses).all(axis=0)
        if len(np.unique(leaf_of[known])) == len(leaves):
            answered = CrossLosses(cross.losses[:, known], cross.windows[known], leaf_of[known])
            total[:, known] += client_relationships(answered)
            counts += known
    return total[:, counts > 0] / counts[counts > 0], leaf_of[counts > 0]


def _select_leaves(cross: CrossLosses, leaves: Sequence[int]) -> CrossLosses:
    """The cross-losses of some leaves' models at their clients, with leaves renumbered."""
    members = np.isin(cross.leaf_of, leaves)
    number = {leaf: i for i, leaf in enumerate(leaves)}
    leaf_of = np.array([number[int(leaf)] for leaf in cross.leaf_of[members]], dtype=np.int64)
    return CrossLosses(cross.losses[list(leaves)][:, members], cross.windows[members], leaf_of)


def loss_matrix(cross: CrossLosses) -> np.ndarray:
    """(S, S): the loss of leaf i's model on all validation windows of leaf j; NaN where unknown."""
    size = len(cross.losses)
    matrix = np.full((size, size), np.nan)
    known = np.isfinite(cross.losses).all(axis=0)
    for leaf in range(size):
        at_leaf = known & (cross.leaf_of == leaf)
        if at_leaf.any():
            windows = cross.windows[at_leaf]
            matrix[:, leaf] = (cross.losses[:, at_leaf] * windows).sum(axis=1) / windows.sum()
    return matrix


def _excess_losses(evidence: Evidence) -> np.ndarray:
    """(S, S): the loss of leaf i's model at leaf j's clients beyond the loss of leaf j's own."""
    matrix = _known_losses(evidence)
    excess: np.ndarray = matrix - np.diag(matrix)
    return excess


def _known_losses(evidence: Evidence) -> np.ndarray:
    """`loss_matrix`, or raise NotComparable if parts are unknown."""
    matrix = loss_matrix(evidence.cross)
    unknown = np.flatnonzero(np.isnan(matrix).any(axis=0))
    if unknown.size:
        raise NotComparable(f"no client of leaf {int(unknown[0])} has evaluated the models")
    return matrix
