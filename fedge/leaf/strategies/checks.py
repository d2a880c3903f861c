"""Checks of a leaf's replies against each other: those fit for averaging.

`fedge.exchange.schema` has checked each reply by itself. The size of an update is compared with the
median of the leaf's recent ones, which a minority of clients cannot move (clipping to a running median:
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
    """The name of an entry with an infinity or a NaN, or None.

    The sum of squares is finite only if all numbers are, and BLAS computes the sum at the speed of memory;
    only otherwise (1e30 squared is too much for float32) each number is examined.
    """
    for batch in batches(state):
        for name, at in batch.items():
            entry = state[name]
            if not np.issubdtype(entry.dtype, np.inexact):
                continue
            part = entry.reshape(-1)[at]
            with np.errstate(over="ignore", invalid="ignore"):
                quick = part.dtype in (np.float32, np.float64) and np.isfinite(np.dot(part, part))
            if not quick and not np.isfinite(part).all():
                return name
    return None


def refuse_impossible(state: State, variances: Iterable[str] = (), of: str = "") -> None:
    """Raise FloatingPointError unless a model's numbers are finite, and its variances not negative.

    Strategies and methods' parts may step beyond the models that came in.

    Args:
        state: a model made of others.
        variances: non-negative entries; those that it lacks are passed over.
        of: owner of the entry in the message, as " of a group's model".
    """
    name = first_not_finite(state)
    if name is not None:
        raise FloatingPointError(f"entry {name!r}{of} would not be finite")
    for name in variances:
        if name in state and (state[name] < 0).any():
            raise FloatingPointError(f"entry {name!r}{of}, a variance, would be negative")


def finite_mean(brought: Iterable[Contribution]) -> tuple[State | None, dict[int, ReplyRejected]]:
    """The weighted mean of the models whose values are all finite, and the children with others.

    A sum is finite only if its terms are, so the mean suffices; only if the mean is not finite, each model is
    examined. So the check costs one part in K.

    Args:
        brought: by children; names, shapes and dtypes of their models agree, weights are positive.

    Returns:
        (mean, child → why its model does not count); the mean is None when no model is left.
    """
    given = list(brought)
    refused: dict[int, ReplyRejected] = {}
    mean = _mean(given)
    if mean is not None and first_not_finite(mean) is not None:
        for each in given:
            name = first_not_finite(each.state)
            if name is not None:
                refused[each.child] = ReplyRejected("not finite", f"entry {name!r}")
        mean = _mean([each for each in given if each.child not in refused])
    return mean, refused


def _mean(given: Sequence[Contribution]) -> State | None:
    """The weighted mean, or None of nothing."""
    with np.errstate(invalid="ignore"):  # infinity minus infinity is about to be found
        return mean_of(given) if given else None


class NormHistory:
    """The norms of a leaf's recent updates, and which new ones are too far above their median.

    Attributes:
        norms: of the accepted updates, oldest first; those of the last 10 leaf rounds.
    """

    def __init__(self, num_clients: int) -> None:
        """Start with nothing seen of a leaf of `num_clients`."""
        self.norms: deque[float] = deque(maxlen=_HISTORY_ROUNDS * num_clients)

    def too_large(self, norms: Mapping[int, float], factor: float) -> dict[int, ReplyRejected]:
        """The clients with an update above `factor` × median; the others' are recorded.

        The median is over this round's updates and the recent ones, independent of the order of the replies,
        and the first round has one too.

        Args:
            norms: client → norm of its update.
            factor: how many times the median an update may be; 0 lets all pass and keeps nothing.
        """
        if factor == 0:
            return {}
        known = [norm for norm in [*self.norms, *norms.values()] if np.isfinite(norm)]
        median = float(np.median(known)) if known else 0.0
        limit = factor * median if median > 0 else np.finfo(np.float64).max
        refused = {
            client: ReplyRejected("update too large", f"norm {norm:.4g}, the leaf's median is {median:.4g}")
            for client, norm in norms.items()
            if norm > limit
        }
        self.norms.extend(norm for client, norm in norms.items() if client not in refused)
        return refused
