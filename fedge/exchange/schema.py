"""Validation of replies, in one place; an invalid reply loses only itself.

A reply is read and checked completely before it becomes a Python object, so later code need not check again.
Checked are types, sizes, finite numbers and ranges, and facts known to the leaf: the number of steps for a
number of windows, non-negative variances, the range of counters, consistent counts of windows. Any error in
reading a reply counts as the client's failure.

The largest allowed entry of a model is √(max / 2²⁰) of its dtype (1.8e16 for float32), so the sum of a
million squares is finite. A larger one, though finite, would overflow the leaf's arithmetic.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from flwr.app import Message

from fedge.config.registers.option import shown
from fedge.exchange.algorithm import ReplyForm, other_extra
from fedge.exchange.evaluate import DESCRIBED, OWN, EvaluateReply, Evaluation, read_evaluate
from fedge.exchange.failure import rejection_failure, words_of
from fedge.exchange.train import TrainReply, read_train
from fedge.metrics.scores import counts_of
from fedge.states.averaging import State, batches
from fedge.tasks.configured import CLASSIFICATION
from fedge.tasks.task import Task
from fedge.training.passes import windows_seen

_LARGEST_LOSS = 1e39  # largest possible mean of float32 losses
LATE_S = 30.0  # tolerance for a client's work beyond its timeout
_SUMMABLE = 2**20
MOST_STEPS = 2**31

_Read = TypeVar("_Read")


class ReplyRejected(ValueError):
    """A refused reply, and the reason."""

    def __init__(self, kind: str, detail: str = "") -> None:
        self.failure = rejection_failure(kind, detail)
        super().__init__(str(self.failure))


@dataclass(frozen=True)
class TrainTask:
    """Training requested from a client, with all the leaf knows about it.

    Attributes:
        model: the model as sent, which determines entries, shapes and dtypes of the reply.
        samples: number of training windows dealt to the client, the most it can have used.
        epochs: passes over the windows.
        local_steps: number of steps in place of epochs; 0 for epochs.
        batch_size: windows per step; the last batch of an epoch may be smaller.
        timeout_s: seconds allowed to the client.
        variances: entries that must not be negative (BatchNorm's running variances), repeated if a step uses
            one several times.
        says_clipped: whether the client must report clipping of its update.
        least_loss: the smallest possible loss.
        form: form of its algorithm's arrays; None for the model alone, trained as the options say.
        keeps: whether the client must store a memory.
        carries: whether the reply carries the memory.
    """

    model: State
    samples: int
    epochs: int = 1
    batch_size: int = 1
    timeout_s: float = math.inf
    variances: Collection[str] = ()
    says_clipped: bool = False
    least_loss: float = 0.0
    form: ReplyForm | None = None
    keeps: bool = False
    carries: bool = False
    local_steps: int = 0

    def steps(self, samples: int) -> int:
        """Number of optimiser steps for a number of windows: `local_steps`, or epochs × ⌈n / batch⌉."""
        return self.local_steps or self.epochs * -(-samples // self.batch_size)

    def windows_trained(self, samples: int) -> int:
        """Number of windows passed through the model, counting repetitions."""
        return windows_seen(samples, self.batch_size, self.epochs, self.local_steps)


def admit_train(message: Message, task: TrainTask, folder: Path | None = None) -> TrainReply:
    """Read and check a client's reply to a train message.

    Args:
        message: the reply.
        task: the requested training.
        folder: folder in which the client may have put its model; None if models are not sent as files.

    Raises:
        ReplyRejected: the reply is not valid for the request.
    """

    def read() -> TrainReply:
        reply = read_train(message, folder)
        check_train(reply, task)
        return reply

    return _admit(read)


def admit_evaluations(
    message: Message,
    roles: Collection[str],
    windows: Mapping[str, int],
    classes: int,
    task: Task = CLASSIFICATION,
) -> EvaluateReply:
    """Read and check a client's reply to an evaluate message.

    Args:
        message: the reply.
        roles: roles of the models to evaluate.
        windows: split → number of windows of the client.
        classes: number of classes, which is the model's number of outputs.
        task: task of the run.

    Raises:
        ReplyRejected: the reply is not valid for the request.
    """

    def read() -> EvaluateReply:
        evaluations = read_evaluate(message, task, classes)
        check_evaluate_reply(evaluations, roles, windows, classes, task)
        return evaluations

    return _admit(read)


def check_evaluate_reply(
    evaluations: EvaluateReply, roles: Collection[str], windows: Mapping[str, int], classes: int, task: Task
) -> None:
    """Raise ReplyRejected unless evaluations are as requested; arguments as for `admit_evaluations`."""
    check_evaluations(evaluations, roles, windows)
    for (role, split), evaluation in evaluations.items():
        place = f"{role} model, {split} windows"
        check_evaluated_loss(evaluation.loss, place, task.least_loss)
        check_moments(evaluation.moments, place, role == DESCRIBED, classes)
    on_val = {role: evaluation for (role, split), evaluation in evaluations.items() if split == "val"}
    check_differences(on_val, OWN)


def _admit(read: Callable[[], _Read]) -> _Read:
    """Result of `read`; on any exception, the reply is refused."""
    try:
        return read()
    except ReplyRejected:
        raise
    except Exception as error:  # a client can put anything into a message
        raise ReplyRejected("not readable", words_of(error)[:200]) from None


def check_train(reply: TrainReply, task: TrainTask) -> None:
    """Raise ReplyRejected unless a train reply is valid for the requested training."""
    if type(reply.samples) is not int or not 0 < reply.samples <= task.samples:
        raise ReplyRejected(
            "samples out of range", f"{shown(reply.samples)}, but 1 to {task.samples} were given"
        )
    steps, least_loss = task.steps(reply.samples), smallest_allowed_loss(task.least_loss, task.form)
    if task.form is not None and not task.form.plain:
        steps = _steps_of_algorithm(reply)
    if type(reply.steps) is not int or reply.steps != steps:
        raise ReplyRejected(
            "steps out of range", f"{shown(reply.steps)}, but {reply.samples} windows take {steps}"
        )
    check_loss(reply.loss, least_loss)
    longest_s = task.timeout_s + LATE_S
    if not 0 <= reply.seconds <= longest_s:
        raise ReplyRejected("seconds out of range", f"{shown(reply.seconds)}, but there were {longest_s:g}")
    if task.says_clipped and reply.clipped is None:
        raise ReplyRejected("other entries", "whether the update was clipped is missing")
    _check_extra_arrays(reply, task)
    model, most, windows = task.model, steps, task.windows_trained(reply.samples)
    if task.form is not None and not task.form.plain:
        most = MOST_STEPS if task.form.many_passes else steps
        model, windows = {name: model[name] for name in task.form.entries}, most * task.batch_size
    check_form(reply.state, model)
    check_values(reply.state, model, task.variances, most, windows=windows)


def smallest_allowed_loss(least: float, form: ReplyForm | None) -> float:
    """Smallest mean training loss allowed; a user's algorithm may report any number.

    Args:
        least: smallest loss of the task.
        form: form of the algorithm's arrays; None for the model alone.
    """
    return least if form is None or form.plain else -_LARGEST_LOSS


def check_loss(loss: float, least: float = 0.0) -> None:
    """Raise ReplyRejected unless a mean training loss is finite and at least `least`."""
    if not _is_number(loss) or loss in (math.inf, -math.inf):
        raise ReplyRejected("loss not finite", shown(loss))
    if not max(least, -_LARGEST_LOSS) <= loss <= _LARGEST_LOSS:
        raise ReplyRejected("loss out of range", f"{shown(loss)}, but a loss is {least:g} or more")


def _steps_of_algorithm(reply: TrainReply) -> int:
    """Number of steps in a reply, which an algorithm may choose."""
    if type(reply.steps) is not int or not 1 <= reply.steps <= MOST_STEPS:
        raise ReplyRejected("steps out of range", f"{shown(reply.steps)}, but 1 to {MOST_STEPS} are possible")
    return reply.steps


def _check_extra_arrays(reply: TrainReply, task: TrainTask) -> None:
    """Raise ReplyRejected unless the arrays beside the model have the algorithm's form."""
    weight = reply.weight
    if weight is not None and (task.form is None or task.form.plain or not 0 < weight <= reply.samples):
        raise ReplyRejected("weight out of range", f"{shown(weight)} of {reply.samples} windows")
    differs = other_extra(reply.extra, {} if task.form is None else task.form.arrays)
    if differs:
        raise ReplyRejected("other entries", f"beside the model: {differs}"[:200])
    for name, array in reply.extra.items():
        if array.dtype.kind == "f":  # integers: of models beside the model
            _check_size(name, array.reshape(-1))
        _check_range(name, array, task)
    keeps, carries = (task.keeps, False) if not task.carries else (False, task.keeps)
    if (reply.kept is not None) != keeps or (reply.memory is not None) != carries:
        raise ReplyRejected("other entries", "a memory is missing, or was not requested")


def _check_range(name: str, array: np.ndarray, task: TrainTask) -> None:
    """Raise ReplyRejected unless numbers beside the model are in the algorithm's declared range."""
    assert task.form is not None
    head, _, inner = name.partition("/")
    least, most = task.form.within.get(head, (-math.inf, math.inf))
    if head in task.form.beside_models and inner in task.variances:
        least = max(least, 0.0)
    if array.size and not (least <= array.min() and array.max() <= most):
        raise ReplyRejected(
            "beside out of range", f"{name!r}: {array.min():g} to {array.max():g} of {least:g} to {most:g}"
        )


def _is_number(value: float) -> bool:
    """Whether a number is not NaN; whole numbers of any size are numbers."""
    return value == value


def check_form(state: State, model: State) -> None:
    """Raise ReplyRejected unless a state has the entries, shapes and dtypes of a model."""
    if state.keys() != model.keys():
        raise ReplyRejected("other entries", ", ".join(sorted(map(str, state.keys() ^ model.keys()))[:3]))
    for name, expected in model.items():
        array = state[name]
        if array.shape != expected.shape:
            raise ReplyRejected("other shape", f"entry {name!r}: {array.shape} instead of {expected.shape}")
        if array.dtype != expected.dtype:
            raise ReplyRejected("other dtype", f"entry {name!r}: {array.dtype} instead of {expected.dtype}")


def check_values(
    state: State, model: State, variances: Collection[str], steps: int, windows: int | None = None
) -> None:
    """Raise ReplyRejected unless all values of a state are possible after `steps` steps from a model.

    An integer entry beside a variance counts the calls of its layer: a step can raise it by one for each time
    the variance is named, and nothing can lower it. Any other integer belongs to a user's own layer, which
    may count windows or point into a ring buffer: it lies between 0 (or the sent number, if less) and the
    sent number plus the number of windows seen.

    Args:
        state: a state with the entries, shapes and dtypes of `model`.
        model: the starting model.
        variances: entries of the whole model that must not be negative, repeated if a step uses one several
            times; those missing in the state are skipped.
        steps: number of steps taken.
        windows: number of windows seen, counting repetitions; None for one per step.
    """
    calls = Counter(name.rpartition(".")[0] for name in variances)  # of layers
    num_windows = steps if windows is None else windows
    for batch in batches(state):
        for name, span in batch.items():
            part = state[name].reshape(-1)[span]
            if part.dtype.kind in "fc":
                _check_size(name, part)
            elif part.dtype.kind in "iu":
                sent, per_step = model[name].reshape(-1)[span], calls[name.rpartition(".")[0]]
                if not _is_possible_count(
                    part, sent, steps * per_step if per_step else num_windows, may_fall=not per_step
                ):
                    fell = (
                        f" fell from {sent.max()} to {part.min()}" if per_step and (part < sent).any() else ""
                    )
                    raise ReplyRejected("count out of range", f"entry {name!r}{fell} after {steps} steps")
    for name in variances:  # an algorithm may send some of a layer's entries alone
        if name in state and (state[name] < 0).any():
            raise ReplyRejected("variance out of range", f"entry {name!r}: {state[name].min():g}")


def check_sizes(state: State) -> None:
    """Raise ReplyRejected unless all numbers of a state are finite and can be squared and summed."""
    for batch in batches(state):
        for name, span in batch.items():
            part = state[name].reshape(-1)[span]
            if part.dtype.kind in "fc":
                _check_size(name, part)


@cache
def _largest(dtype: np.dtype) -> float:
    """Largest allowed number of a dtype."""
    return math.sqrt(float(np.finfo(dtype).max) / _SUMMABLE)


def _is_possible_count(part: np.ndarray, sent: np.ndarray, most: int, *, may_fall: bool) -> bool:
    """Whether integers rose by at most `most`; with `may_fall`, they may fall, but not below 0."""
    risen = part.astype(np.float64) - sent
    least = -np.maximum(sent.astype(np.float64), 0) if may_fall else 0
    return bool(((risen >= least) & (risen <= most)).all())


def _check_size(name: str, part: np.ndarray) -> None:
    """Raise ReplyRejected unless a flat part of an entry is finite and small enough to be squared and summed.

    The sum of squares, computed at memory speed, decides nearly always; only if it is too large, each number
    is examined.
    """
    limit = _largest(part.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        if part.dtype in (np.float32, np.float64) and np.dot(part, part) <= limit**2:
            return
        if not np.isfinite(part).all():
            raise ReplyRejected("not finite", f"entry {name!r}")
        largest = float(np.abs(part).max()) if part.size else 0.0
    if part.dtype != np.float16 and largest > limit:  # any finite float16 is small for the leaf's arithmetic
        raise ReplyRejected("too large", f"entry {name!r}: {largest:.4g}")


def check_evaluations(evaluations: EvaluateReply, roles: Iterable[str], windows: Mapping[str, int]) -> None:
    """Raise ReplyRejected unless an evaluate reply is as requested.

    Args:
        evaluations: (model role, split) → evaluation, with sums in the task's form.
        roles: roles of the models to evaluate.
        windows: split → number of windows of the client.
    """
    expected = {(role, split) for role in roles for split in windows}
    if evaluations.keys() != expected:
        differing = sorted(f"{role} {split}" for role, split in evaluations.keys() ^ expected)
        raise ReplyRejected("other entries", ", ".join(differing))
    for (role, split), evaluation in evaluations.items():
        place, count = f"{role} model, {split} windows", windows[split]
        if evaluation.windows != count:
            raise ReplyRejected("other number of windows", f"{place}: {evaluation.windows} of {count}")
        problem = evaluation.task.impossible(evaluation.sums, count)
        if problem is not None:
            raise ReplyRejected(problem[0], f"{place}: {problem[1]}")


def check_moments(moments: np.ndarray | None, place: str, requested: bool, classes: int) -> None:
    """Raise ReplyRejected unless a requested description (numbers,) of windows is present.

    Args:
        moments: the description, or None.
        place: its place, for the message.
        requested: whether it was requested.
        classes: number of classes.
    """
    if (moments is not None) != requested:
        raise ReplyRejected("other entries", f"{place}: a description is missing, or was not requested")
    if moments is None:
        return
    if len(moments) != 2 * (classes + 1) * classes:
        raise ReplyRejected("other shape", f"{place}: a description of {len(moments)} numbers")
    if not (np.abs(moments) <= _LARGEST_LOSS).all():
        raise ReplyRejected("description not finite", place)


def check_differences(on_val: Mapping[str, Evaluation], own_role: str) -> None:
    """Raise ReplyRejected unless the gains over the own model are possible.

    For N windows, the square of a sum is at most N times the sum of squares (Cauchy-Schwarz). For accuracy,
    gains are counts: if the own model is right on `a` windows, b of these are wrong in the other model, and c
    are right only in the other, then b ≤ a, c ≤ N − a, and the other model is right on a + c − b windows.

    Args:
        on_val: model role → evaluation on validation windows, after `check_evaluations`.
        own_role: role of the own model; if it was not evaluated, no comparison is possible.
    """
    for role, evaluation in on_val.items():
        pair = evaluation.differences
        if (pair is not None) != (own_role in on_val and role != own_role):
            raise ReplyRejected("other entries", f"{role} beside {own_role}: {pair}")
        if pair is None:
            continue
        total, squares = pair
        if not (abs(total) <= _LARGEST_LOSS and 0 <= squares <= _LARGEST_LOSS**2):
            raise ReplyRejected(
                "differences out of range", f"{role} beside {own_role}: {total:g}, {squares:g}"
            )
        if total**2 > evaluation.windows * squares * (1 + 1e-9):
            raise ReplyRejected(
                "differences do not add up", f"{role} beside {own_role}: {total:g}, {squares:g}"
            )
        own_confusion, confusion = on_val[own_role].confusion, evaluation.confusion
        if own_confusion is not None and confusion is not None:
            _check_counts(
                role,
                own_role,
                pair,
                int(np.trace(own_confusion)),
                int(np.trace(confusion)),
                evaluation.windows,
            )


def _check_counts(
    role: str, own_role: str, pair: tuple[float, float], right_own: int, right_this: int, windows: int
) -> None:
    """Raise ReplyRejected unless gains in accuracy are consistent counts."""
    only_own, only_this = counts_of(pair)
    fits = 0 <= only_own <= right_own and 0 <= only_this <= windows - right_own
    if (
        not fits
        or (only_this - only_own, only_this + only_own) != pair
        or only_own - only_this != right_own - right_this
    ):
        raise ReplyRejected(
            "counts do not add up",
            f"{role} beside {own_role}: {only_own} and {only_this}, right are {right_this} and {right_own}",
        )


def check_evaluated_loss(loss: float, place: str, least: float = 0.0) -> None:
    """Raise ReplyRejected unless a mean loss is at least `least`, or a diverged model's.

    Args:
        loss: infinite or NaN if the model has diverged; this is recorded, and the evaluation counts.
        place: its place, for the message.
        least: smallest possible loss.
    """
    if _is_number(loss) and loss != math.inf and not max(least, -_LARGEST_LOSS) <= loss <= _LARGEST_LOSS:
        raise ReplyRejected("loss out of range", f"{place}: {shown(loss)}, but a loss is {least:g} or more")


def not_finite_losses(losses: Mapping[tuple[str, str], float]) -> Sequence[str]:
    """Descriptions of infinite or NaN losses in a reply, from diverged models."""
    return [
        f"{role} model, {split} windows" for (role, split), loss in losses.items() if not math.isfinite(loss)
    ]
