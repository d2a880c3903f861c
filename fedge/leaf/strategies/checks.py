"""Checks of a leaf's replies against each other, before averaging.

`fedge.exchange.schema` has checked each reply on its own. Here, the norm of an update is compared with the
median of the leaf's recent norms, which a minority of clients cannot shift (clipping to a running median:
Karimireddy et al. 2021, "Learning from History"). Pure functions on arrays.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedge.exchange.schema import ReplyRejected
from fedge.leaf.strategies.aggregation import Contribution, mean_of
from fedge.states.averaging import State, batches

_HISTORY_ROUNDS = 10  # leaf rounds in the running median


def first_not_finite(state: State) -> str | None:
    """The name of the first entry with an infinity or a NaN, or None.

    The sum of squares is finite only if all numbers are, and BLAS computes it at memory speed. Only if it is
    not (1e30 squared overflows float32), each number is examined.
    """
    for batch in batches(state):
        for name, span in batch.items():
            entry = state[name]
            if not np.issubdtype(entry.dtype, np.inexact):
                continue
            part = entry.reshape(-1)[span]
            with np.errstate(over="ignore", invalid="ignore"):
                is_finite = part.dtype in (np.float32, np.float64) and np.isfinite(np.dot(part, part))
            if not is_finite and not np.isfinite(part).all():
                return name
    return None


def refuse_impossible(state: State, variances: Iterable[str] = (), owner: str = "") -> None:
    """Raise FloatingPointError unless a model's numbers are finite and its variances non-negative.

    Strategies and methods may extrapolate beyond the combined models.

    Args:
        state: a combined model.
        variances: entries that must not be negative; missing ones are skipped.
        owner: owner of the entry for the message, such as " of a group's model".
    """
    name = first_not_finite(state)
    if name is not None:
        raise FloatingPointError(f"entry {name!r}{owner} would not be finite")
    for name in variances:
        if name in state and (state[name] < 0).any():
            raise FloatingPointError(f"entry {name!r}{owner}, a variance, would be negative")


def finite_mean(contributions: Iterable[Contribution]) -> tuple[State | None, dict[int, ReplyRejected]]:
    """The weighted mean of all finite models, and the children whose models are not finite.

    A sum is finite only if its terms are, so it suffices to check the mean, at 1/K of the cost; only if the
    mean is not finite, each model is examined.

    Args:
        contributions: children's contributions; their models agree in form, and their weights are positive.

    Returns:
        (mean, child → reason for refusing its model); the mean is None if no model is left.
    """
    items = list(contributions)
    refused: dict[int, ReplyRejected] = {}
    mean = _mean(items)
    if mean is not None and first_not_finite(mean) is not None:
        for item in items:
            name = first_not_finite(item.state)
            if name is not None:
                refused[item.child] = ReplyRejected("not finite", f"entry {name!r}")
        mean = _mean([item for item in items if item.child not in refused])
    return mean, refused


def _mean(contributions: Sequence[Contribution]) -> State | None:
    """The weighted mean, or None without contributions."""
    with np.errstate(invalid="ignore"):  # infinity minus infinity is handled by the caller
        return mean_of(contributions) if contributions else None


class NormHistory:
    """Norms of a leaf's recent updates, to find new ones too far above their median.

    Attributes:
        norms: norms of the accepted updates of the last 10 leaf rounds, oldest first.
    """

    def __init__(self, num_clients: int) -> None:
        """Start with an empty history for a leaf of `num_clients` clients."""
        self.norms: deque[float] = deque(maxlen=_HISTORY_ROUNDS * num_clients)

    def too_large(self, norms: Mapping[int, float], factor: float) -> dict[int, ReplyRejected]:
        """The clients whose update is above `factor` × median; the other norms are recorded.

        The median covers this round's updates as well as the recent ones, so it does not depend on the order
        of the replies, and it exists in the first round.

        Args:
            norms: client → norm of its update.
            factor: largest allowed norm, in medians; with 0 all pass, and nothing is recorded.
        """
        if factor == 0:
            return {}
        finite_norms = [norm for norm in [*self.norms, *norms.values()] if np.isfinite(norm)]
        median = float(np.median(finite_norms)) if finite_norms else 0.0
        limit = factor * median if median > 0 else np.finfo(np.float64).max
        refused = {
            client: ReplyRejected("update too large", f"norm {norm:.4g}, the leaf's median is {median:.4g}")
            for client, norm in norms.items()
            if norm > limit
        }
        self.norms.extend(norm for client, norm in norms.items() if client not in refused)
        return refused
