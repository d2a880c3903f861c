"""The one boundary for replies, with one schema: an invalid reply loses only itself.

A reply is read, checked whole and only then a Python object; nothing is read before, and nothing needs a
second check. Types, sizes, finite numbers and ranges; and facts better known to the leaf than the client: the
steps for a number of windows, non-negative variances, the range of counters, consistent counts of windows.
Every error in reading a reply counts against its client.

How large a number may be: an entry of a model at most √(max / 2²⁰) of its dtype (1.8e16 for float32), so a
million of its squares still have a finite sum. Beyond, a finite model makes the leaf's arithmetic infinite.
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
from fedge.exchange.failure import rejected, words_of
from fedge.exchange.train import TrainReply, read_train
from fedge.metrics.scores import counts_of
from fedge.states.averaging import State, batches
from fedge.tasks.chosen import CLASSIFICATION
from fedge.tasks.task import Task
from fedge.training.passes import windows_seen

_LARGEST_LOSS = 1e39  # no mean loss of float32 numbers is larger
LATE_S = 30.0  # tolerance for a client's work beyond its time
_SUMMABLE = 2**20
MOST_STEPS = 2**31

_Read = TypeVar("_Read")


class ReplyRejected(ValueError):
    """A refused reply, and the reason."""

    def __init__(self, kind: str, detail: str = "") -> None:
        self.failure = rejected(kind, detail)
        super().__init__(str(self.failure))


@dataclass(frozen=True)
class TrainTask:
    """Training asked of a client, and the leaf's knowledge of it.

    Attributes:
        model: as sent: the required entries, shapes and dtypes of a reply.
        samples: the client's dealt training windows; fewer may have been used, not more.
        epochs: passes over them.
        local_steps: in place of epochs; 0 for epochs.
        batch_size: windows per step; the last of an epoch may be smaller.
        timeout_s: seconds allowed to the client.
        variances: non-negative entries of the model (BatchNorm's running variances), each as often as a step
            uses it.
        says_clipped: whether the client must report clipping of its update.
        least_loss: the smallest possible.
        form: of its algorithm's arrays; None for the model alone, trained for as many steps as options say.
        keeps: whether a kept memory is required.
        carries: whether the memory goes to the server, in place of a file.
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
        """The optimiser steps for a number of windows: epochs × ⌈n / batch⌉, or as asked."""
        return self.local_steps or self.epochs * -(-samples // self.batch_size)

    def seen(self, samples: int) -> int:
        """Windows passing through the model, with repetition."""
        return windows_seen(samples, self.batch_size, self.epochs, self.local_steps)


def admit_train(message: Message, task: TrainTask, folder: Path | None = None) -> TrainReply:
    """A client's answer to a train message.

    Args:
        message: the answer.
        task: of the question.
        folder: where the client may have put its model as a file; None: nowhere.

    Raises:
        ReplyRejected: not an answer to the question.
    """

    def read() -> TrainReply:
        reply = read_train(message, folder)
        check_train(reply, task)
        return reply

    return _admitted(read)


def admit_evaluations(
    message: Message,
    roles: Collection[str],
    windows: Mapping[str, int],
    classes: int,
    task: Task = CLASSIFICATION,
) -> EvaluateReply:
    """A client's answer to an evaluate message.

    Args:
        message: the answer.
        roles: the models for the client's evaluation.
        windows: split → windows of the client.
        classes: of the data, as many as a model has outputs.
        task: of the run.

    Raises:
        ReplyRejected: not an answer to the question.
    """

    def read() -> EvaluateReply:
        evaluations = read_evaluate(message, task, classes)
        check_evaluate_reply(evaluations, roles, windows, classes, task)
        return evaluations

    return _admitted(read)


def check_evaluate_reply(
    evaluations: EvaluateReply, roles: Collection[str], windows: Mapping[str, int], classes: int, task: Task
) -> None:
    """Raise ReplyRejected unless evaluations answer the question; arguments as of `admit_evaluations`."""
    check_evaluations(evaluations, roles, windows)
    for (role, split), evaluation in evaluations.items():
        where = f"{role} model, {split} windows"
        check_evaluated_loss(evaluation.loss, where, task.least_loss)
        check_moments(evaluation.moments, where, role == DESCRIBED, classes)
    on_val = {role: evaluation for (role, split), evaluation in evaluations.items() if split == "val"}
    check_differences(on_val, OWN)


def _admitted(read: Callable[[], _Read]) -> _Read:
    """Result of `read`; on any exception, the reply is refused."""
    try:
        return read()
    except ReplyRejected:
        raise
    except Exception as error:  # a client can put anything into a message
        raise ReplyRejected("not readable", words_of(error)[:200]) from None


def check_train(reply: TrainReply, task: TrainTask) -> None:
    """Raise ReplyRejected unless a train reply answers its leaf's question."""
    if type(reply.samples) is not int or not 0 < reply.samples <= task.samples:
        raise ReplyRejected(
            "samples out of range", f"{shown(reply.samples)}, but 1 to {task.samples} were given"
        )
    steps, least_loss = task.steps(reply.samples), least_told(task.least_loss, task.form)
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
    _check_beside(reply, task)
    model, most, windows = task.model, steps, task.seen(reply.samples)
    if task.form is not None and not task.form.plain:
        most = MOST_STEPS if task.form.many_passes else steps
        model, windows = {name: model[name] for name in task.form.entries}, most * task.batch_size
    check_form(reply.state, model)
    check_values(reply.state, model, task.variances, most, windows=windows)


def least_told(least: float, form: ReplyForm | None) -> float:
    """The least mean training loss allowed to a client: any number is an algorithm's of a user's own.

    Args:
        least: of the task.
        form: of the algorithm's arrays; None for the model alone.
    """
    return least if form is None or form.plain else -_LARGEST_LOSS


def check_loss(loss: float, least: float = 0.0) -> None:
    """Raise ReplyRejected unless a mean training loss is finite, and no smaller than can be."""
    if not _is_number(loss) or loss in (math.inf, -math.inf):
        raise ReplyRejected("loss not finite", shown(loss))
    if not max(least, -_LARGEST_LOSS) <= loss <= _LARGEST_LOSS:
        raise ReplyRejected("loss out of range", f"{shown(loss)}, but a loss is {least:g} or more")


def _steps_of_algorithm(reply: TrainReply) -> int:
    """The steps of a reply, any number for an algorithm."""
    if type(reply.steps) is not int or not 1 <= reply.steps <= MOST_STEPS:
        raise ReplyRejected("steps out of range", f"{shown(reply.steps)}, but 1 to {MOST_STEPS} are possible")
    return reply.steps


def _check_beside(reply: TrainReply, task: TrainTask) -> None:
    """Raise ReplyRejected unless the arrays beside the model are the algorithm's."""
    weight = reply.weight
    if weight is not None and (task.form is None or task.form.plain or not 0 < weight <= reply.samples):
        raise ReplyRejected("weight out of range", f"{shown(weight)} of {reply.samples} windows")
    differs = other_extra(reply.extra, {} if task.form is None else task.form.arrays)
    if differs:
        raise ReplyRejected("other entries", f"beside the model: {differs}"[:200])
    for name, array in reply.extra.items():
        _check_size(name, array.reshape(-1))
        _check_range(name, array, task)
    keeps, carries = (task.keeps, False) if not task.carries else (False, task.keeps)
    if (reply.kept is not None) != keeps or (reply.memory is not None) != carries:
        raise ReplyRejected("other entries", "a memory is missing, or was not requested")


def _check_range(name: str, array: np.ndarray, task: TrainTask) -> None:
    """Raise ReplyRejected unless numbers beside the model are of the algorithm's declared form."""
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
    for name, wanted in model.items():
        array = state[name]
        if array.shape != wanted.shape:
            raise ReplyRejected("other shape", f"entry {name!r}: {array.shape} instead of {wanted.shape}")
        if array.dtype != wanted.dtype:
            raise ReplyRejected("other dtype", f"entry {name!r}: {array.dtype} instead of {wanted.dtype}")


def check_values(
    state: State, model: State, variances: Collection[str], steps: int, windows: int | None = None
) -> None:
    """Raise ReplyRejected unless all values of a state are possible after `steps` steps from a model.

    A whole number beside a variance counts the calls of its layer: each step can raise it by one for each
    time that the variance is named, and none can lower it. Any other one is of a layer of the user's own,
    which may count windows or point into a ring of them: from 0 (or the sent number, if less) to the sent
    number plus the windows seen.

    Args:
        state: with the entries, shapes and dtypes of `model`.
        model: from which the steps were taken.
        variances: non-negative entries of the whole model, each as often as a step uses it; those that the
            state lacks are passed over.
        steps: taken.
        windows: seen, with repetition; None: one a step.
    """
    calls = Counter(name.rpartition(".")[0] for name in variances)  # of layers
    seen = steps if windows is None else windows
    for batch in batches(state):
        for name, at in batch.items():
            part = state[name].reshape(-1)[at]
            if part.dtype.kind in "fc":
                _check_size(name, part)
            elif part.dtype.kind in "iu":
                sent, often = model[name].reshape(-1)[at], calls[name.rpartition(".")[0]]
                if not _can_be(part, sent, steps * often if often else seen, may_fall=not often):
                    raise ReplyRejected("count out of range", f"entry {name!r} after {steps} steps")
    for name in variances:  # an algorithm may send some of a layer's entries alone
        if name in state and (state[name] < 0).any():
            raise ReplyRejected("variance out of range", f"entry {name!r}: {state[name].min():g}")


def check_sizes(state: State) -> None:
    """Raise ReplyRejected unless all numbers of a state are finite and can be squared and summed."""
    for batch in batches(state):
        for name, at in batch.items():
            part = state[name].reshape(-1)[at]
            if part.dtype.kind in "fc":
                _check_size(name, part)


@cache
def _largest(dtype: np.dtype) -> float:
    """How large a number of a dtype may be."""
    return math.sqrt(float(np.finfo(dtype).max) / _SUMMABLE)


def _can_be(part: np.ndarray, sent: np.ndarray, most: int, *, may_fall: bool) -> bool:
    """Whether whole numbers have risen by at most `most`, and fallen no further than to 0 if at all."""
    risen = part.astype(np.float64) - sent
    least = -np.maximum(sent.astype(np.float64), 0) if may_fall else 0
    return bool(((risen >= least) & (risen <= most)).all())


def _check_size(name: str, part: np.ndarray) -> None:
    """Raise ReplyRejected unless a flat part of an entry is finite and small enough to be squared and summed.

    The sum of squares decides at the speed of memory for nearly all; only if the sum is too large, each
    number is examined.
    """
    limit = _largest(part.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        if part.dtype in (np.float32, np.float64) and np.dot(part, part) <= limit**2:
            return
        if not np.isfinite(part).all():
            raise ReplyRejected("not finite", f"entry {name!r}")
        largest = float(np.abs(part).max()) if part.size else 0.0
    if part.dtype != np.float16 and largest > limit:  # a finite float16 is small for everybody else
        raise ReplyRejected("too large", f"entry {name!r}: {largest:.4g}")


def check_evaluations(evaluations: EvaluateReply, roles: Iterable[str], windows: Mapping[str, int]) -> None:
    """Raise ReplyRejected unless an evaluate reply answers the question.

    Args:
        evaluations: (model role, split) → evaluation, its sums of the task's form.
        roles: the models for the client's evaluation.
        windows: split → windows of the client.
    """
    wanted = {(role, split) for role in roles for split in windows}
    if evaluations.keys() != wanted:
        odd = sorted(f"{role} {split}" for role, split in evaluations.keys() ^ wanted)
        raise ReplyRejected("other entries", ", ".join(odd))
    for (role, split), evaluation in evaluations.items():
        where, count = f"{role} model, {split} windows", windows[split]
        if evaluation.windows != count:
            raise ReplyRejected("other number of windows", f"{where}: {evaluation.windows} of {count}")
        wrong = evaluation.task.impossible(evaluation.sums, count)
        if wrong is not None:
            raise ReplyRejected(wrong[0], f"{where}: {wrong[1]}")


def check_moments(moments: np.ndarray | None, where: str, asked: bool, classes: int) -> None:
    """Raise ReplyRejected unless a requested description (numbers,) of windows is present.

    Args:
        moments: the description, or None.
        where: in words.
        asked: whether requested.
        classes: of the data.
    """
    if (moments is not None) != asked:
        raise ReplyRejected("other entries", f"{where}: a description is missing, or was not requested")
    if moments is None:
        return
    if len(moments) != 2 * (classes + 1) * classes:
        raise ReplyRejected("other shape", f"{where}: a description of {len(moments)} numbers")
    if not (np.abs(moments) <= _LARGEST_LOSS).all():
        raise ReplyRejected("description not finite", where)


def check_differences(on_val: Mapping[str, Evaluation], own: str) -> None:
    """Raise ReplyRejected unless windows' gains over the own model are possible.

    Of N windows, the square of a sum is at most N times the sum of squares (Cauchy and Schwarz). Of right and
    wrong they are counts: with `a` windows right in the own model, b of them wrong in another one, and c
    right in the other only, b ≤ a, c ≤ N − a, and c − b is its count right beyond a.

    Args:
        on_val: model role → evaluation on validation windows, as `check_evaluations` lets through.
        own: role of the own model; without a question about it, no comparison is possible.
    """
    for role, evaluation in on_val.items():
        pair = evaluation.differences
        if (pair is not None) != (own in on_val and role != own):
            raise ReplyRejected("other entries", f"{role} beside {own}: {pair}")
        if pair is None:
            continue
        total, squares = pair
        if not (abs(total) <= _LARGEST_LOSS and 0 <= squares <= _LARGEST_LOSS**2):
            raise ReplyRejected("differences out of range", f"{role} beside {own}: {total:g}, {squares:g}")
        if total**2 > evaluation.windows * squares * (1 + 1e-9):
            raise ReplyRejected("differences do not add up", f"{role} beside {own}: {total:g}, {squares:g}")
        mine, this = on_val[own].confusion, evaluation.confusion
        if mine is not None and this is not None:
            _check_counts(role, own, pair, int(np.trace(mine)), int(np.trace(this)), evaluation.windows)


def _check_counts(
    role: str, own: str, pair: tuple[float, float], right_own: int, right_this: int, windows: int
) -> None:
    """Raise ReplyRejected unless differences of right and wrong are consistent counts."""
    only_own, only_this = counts_of(pair)
    fits = 0 <= only_own <= right_own and 0 <= only_this <= windows - right_own
    if (
        not fits
        or (only_this - only_own, only_this + only_own) != pair
        or only_own - only_this != right_own - right_this
    ):
        raise ReplyRejected(
            "counts do not add up",
            f"{role} beside {own}: {only_own} and {only_this}, right are {right_this} and {right_own}",
        )


def check_evaluated_loss(loss: float, where: str, least: float = 0.0) -> None:
    """Raise ReplyRejected unless a mean loss can be one: at least the task's least, or of a diverged model.

    Args:
        loss: infinite or NaN where the model has diverged; noted, and the evaluation counts.
        where: for the message.
        least: the smallest possible.
    """
    if _is_number(loss) and loss != math.inf and not max(least, -_LARGEST_LOSS) <= loss <= _LARGEST_LOSS:
        raise ReplyRejected("loss out of range", f"{where}: {shown(loss)}, but a loss is {least:g} or more")


def not_finite_losses(losses: Mapping[tuple[str, str], float]) -> Sequence[str]:
    """Words on the losses of a reply: a diverged model is still evaluated."""
    return [
        f"{role} model, {split} windows" for (role, split), loss in losses.items() if not math.isfinite(loss)
    ]
