"""Is a client's reply fit to count? Checked whole, one reply at a time, before anything is averaged.

One entry that is not a number would be averaged into the leaf's model and stay there for ever; a reply with
other shapes would end the run. So a reply that is not what the leaf asked for is refused as a whole: it loses
only itself, and everybody learns why. Pure functions on arrays.

The size of an update is evaluated against the median of the leaf's recent ones, which a minority of clients
cannot move (clipping to a running median: Karimireddy et al. 2021, "Learning from History").
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedge.exchange.failure import rejected
from fedge.states.averaging import State, batches, weighted_mean

_HISTORY_ROUNDS = 10  # leaf rounds that the running median looks back on


class ReplyRejected(ValueError):
    """A reply that does not count, and why."""

    def __init__(self, kind: str, detail: str = "") -> None:
        self.failure = rejected(kind, detail)
        super().__init__(str(self.failure))


def check_train(state: State, model: State, samples: int, expected: int, steps: int, loss: float) -> None:
    """Raise ReplyRejected unless a train reply has the form that its leaf asked for.

    Whether all of its values are finite is left to `finite_mean`.

    Args:
        state: what the client trained.
        model: its leaf's model: the entries, shapes and dtypes that a reply must have.
        samples: training windows that the client claims; its weight.
        expected: training windows that it was given; it may have used fewer, but not more.
        steps: optimiser steps that it claims.
        loss: its mean training loss.
    """
    if type(samples) is not int or not 0 < samples <= expected:
        raise ReplyRejected("samples out of range", f"{samples!r}, but 1 to {expected} were given")
    if type(steps) is not int or steps < 1:
        raise ReplyRejected("steps out of range", f"{steps!r}, but a client takes at least 1")
    if not np.isfinite(loss):
        raise ReplyRejected("loss not finite", repr(loss))
    if state.keys() != model.keys():
        raise ReplyRejected("other entries", ", ".join(sorted(map(str, state.keys() ^ model.keys()))[:3]))
    for name, wanted in model.items():
        array = state[name]
        if array.shape != wanted.shape:
            raise ReplyRejected("other shape", f"entry {name!r}: {array.shape} instead of {wanted.shape}")
        if array.dtype != wanted.dtype:
            raise ReplyRejected("other dtype", f"entry {name!r}: {array.dtype} instead of {wanted.dtype}")


def first_not_finite(state: State) -> str | None:
    """Return the name of an entry that holds an infinity or a NaN, or None.

    The sum of squares is finite only if all numbers are, and BLAS has it at the speed of memory; only where
    it is not (1e30 squared is too much for float32) each number is looked at.
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


def finite_mean(
    states: Mapping[int, State], weights: Mapping[int, float]
) -> tuple[State | None, dict[int, ReplyRejected]]:
    """Return the weighted mean of those states all of whose values are finite, and the clients of the others.

    A sum is finite only if its terms are, so it is enough to look at the mean; only where that is not finite,
    each state is looked through. So the check costs one part in K.

    Args:
        states: client → what it trained; names, shapes and dtypes agree.
        weights: client → positive number.

    Returns:
        (mean, client → why it does not count); the mean is None when no state is left.
    """
    refused: dict[int, ReplyRejected] = {}
    mean = _mean(states, weights)
    if mean is not None and first_not_finite(mean) is not None:
        for client, state in states.items():
            name = first_not_finite(state)
            if name is not None:
                refused[client] = ReplyRejected("not finite", f"entry {name!r}")
        mean = _mean({c: state for c, state in states.items() if c not in refused}, weights)
    return mean, refused


def _mean(states: Mapping[int, State], weights: Mapping[int, float]) -> State | None:
    """Return the weighted mean, or None of nothing."""
    with np.errstate(invalid="ignore"):  # infinity minus infinity is about to be found
        return weighted_mean(list(states.values()), [weights[c] for c in states]) if states else None


class NormHistory:
    """The norms of a leaf's recent updates, and which new ones are too far above their median.

    Attributes:
        norms: of the updates that counted, oldest first; those of the last 10 leaf rounds.
    """

    def __init__(self, num_clients: int) -> None:
        """Start with nothing seen of a leaf of `num_clients`."""
        self.norms: deque[float] = deque(maxlen=_HISTORY_ROUNDS * num_clients)

    def too_large(self, norms: Mapping[int, float], factor: float) -> dict[int, ReplyRejected]:
        """Return the clients whose update is above `factor` × median, and take in those of the others.

        The median is over this round's updates and the recent ones, so it does not depend on the order of
        the replies, and the first round has one too.

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


def check_evaluations(
    confusions: Mapping[tuple[str, str], np.ndarray],
    roles: Iterable[str],
    windows: Mapping[str, int],
    classes: int,
) -> None:
    """Raise ReplyRejected unless an evaluate reply says what was asked.

    Args:
        confusions: (model role, split) → confusion matrix, (classes, classes) int64.
        roles: the models that the client was to evaluate.
        windows: split → windows of the client.
        classes: of the run.
    """
    wanted = {(role, split) for role in roles for split in windows}
    if confusions.keys() != wanted:
        odd = sorted(f"{role} {split}" for role, split in confusions.keys() ^ wanted)
        raise ReplyRejected("other entries", ", ".join(odd))
    for (role, split), confusion in confusions.items():
        where = f"{role} model, {split} windows"
        if confusion.shape != (classes, classes):
            raise ReplyRejected("other shape", f"{where}: {confusion.shape} for {classes} classes")
        if ((confusion < 0) | (confusion > windows[split])).any():
            raise ReplyRejected("count out of range", f"{where}: {confusion.min()} to {confusion.max()}")
        if int(confusion.sum()) != windows[split]:
            counted = int(confusion.sum())
            raise ReplyRejected("other number of windows", f"{where}: {counted} of {windows[split]}")


def check_only_one_right(
    counts: Mapping[str, tuple[int, int] | None], confusions: Mapping[str, np.ndarray], own: str
) -> None:
    """Raise ReplyRejected unless the counts of windows that only one of two models has right add up.

    Of N windows, of which the own model has `a` right and another one `b`: only the own has at most `a`, only
    the other one at most N − a, and their difference is a − b.

    Args:
        counts: model role → (only the own model is right, only this one is), on validation windows.
        confusions: model role → confusion matrix (classes, classes) int64 on validation windows, as
            `check_evaluations` lets through.
        own: role of the own model; where it was not asked about, nobody can count.
    """
    for role, pair in counts.items():
        if (pair is not None) != (own in confusions and role != own):
            raise ReplyRejected("other entries", f"{role} beside {own}: {pair}")
        if pair is None:
            continue
        only_own, only_this = pair
        right_own, right_this = int(np.trace(confusions[own])), int(np.trace(confusions[role]))
        windows = int(confusions[own].sum())
        fits = 0 <= only_own <= right_own and 0 <= only_this <= windows - right_own
        if not fits or only_own - only_this != right_own - right_this:
            raise ReplyRejected(
                "counts do not add up",
                f"{role} beside {own}: {only_own} and {only_this}, right are {right_this} and {right_own}",
            )


def not_finite_losses(losses: Mapping[tuple[str, str], float]) -> Sequence[str]:
    """Return what is to be said of the losses of a reply: a model can diverge and still be evaluated."""
    return [
        f"{role} model, {split} windows" for (role, split), loss in losses.items() if not np.isfinite(loss)
    ]
