"""Packets between cloud and leaf servers: states of leaves, books of rounds, evaluations.

If clients own their windows, the cloud first asks for descriptions (`TELL`). The cloud sends the state from
which a leaf round starts: the leaf's model, its control variate c_j and the one for its clients, and its
strategy's state. The answer contains the same after the round. Clients' models and their control variates c_i
stay at the leaf server. The cloud also gets the numbers for its tables and, if it groups leaves by updates, a
summary of each client's update (`fedge.clustering.likeness.sketch`).

A region in its own process, with all leaf servers below it, gets one order for all its rounds in a round of
its parent: its model and the leaves' states are sent once, and its model (or its leaves') and their states
are returned. All other orders to leaf servers of one process are sent in a bundle, as are their answers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fedge.config.registers.option import shown
from fedge.edge.packets.plain_json import FactError, text, whole_number
from fedge.exchange.evaluate import EvaluateReply, Evaluation
from fedge.exchange.failure import Failure
from fedge.rounds.measurements.book import RoundBook
from fedge.states.averaging import State
from fedge.states.named_states import states_under
from fedge.states.restore_checks import MOST
from fedge.tasks.task import Task
from fedge.timing.timeline import ExchangeTimes

TELL, BEGIN, TRAIN, PROBE, EVALUATE = "tell", "begin", "train", "probe", "evaluate"  # kinds of orders
REGION = "region"  # order for all leaf rounds of a region, to the region's process
BUNDLE = "bundle"  # orders to several leaf servers of one process (`fedge.edge.packets.bundles`)
OF_SEVERAL = (REGION, BUNDLE)
REASON = "reason"  # fact of the end of a run: why no round finished
LONGEST_REASON = 500  # characters
SUBTREE = "subtree"  # fact of a hello: name of the process running several leaf servers
DONE, FAILED, UNKNOWN = "done", "failed", "unknown-run"  # kinds of answers
MODEL = "model"
KERNELS = "kernels"  # fact of a leaf server: kernels of the native step
WAIT_S = "wait_s"  # fact of `TELL`: seconds to wait for clients' descriptions
HERE, SENT = "here", "sent"  # place of a model for evaluation at a leaf server
STRATEGY, SUMMARY = "strategy.", "summary."  # prefixes of states' names
EVALUATED = 8  # values of a row of evaluations
_PROCESS, _MOMENTS = 3, (1, 2, 5)  # columns of `fedge.timing.timeline.ExchangeTimes`: pushed, received, began
_PROCESSES = 10_000_000


# --- books ----------------------------------------------------------------------------------------------


def packed_book(book: RoundBook, now: float) -> dict[str, Any]:
    """A leaf server's record of one order, as JSON; times are relative to `now`."""
    return {
        "train_loss": list(book.train_loss.items()),
        "train_seconds": list(book.train_seconds.items()),
        "asked": list(book.asked.items()),
        "failures": [(client, failure.kind, failure.detail) for client, failure in book.failures.items()],
        "kept_model": sum(book.kept_model.values()),
        "bytes": [book.uplink_bytes, book.downlink_bytes],
        "answered": book.answered,
        "calls": [row for times in book.exchanges for row in _shift_times(times.rows, -now).tolist()],
    }


def add_to_book(book: RoundBook, leaf: int, record: Mapping[str, Any]) -> None:
    """Add a leaf server's record to the round's; times and failures are added elsewhere."""
    book.train_loss |= {int(client): float(loss) for client, loss in record["train_loss"]}
    for client, times in record["asked"]:
        book.note_asked(int(client), int(times))
    for client, seconds in record["train_seconds"]:
        book.note_seconds(int(client), float(seconds))
    if record["kept_model"]:
        book.note_kept_model(leaf, int(record["kept_model"]))
    book.asked_clients += len({int(client) for client, *_ in (*record["train_seconds"], *record["failures"])})
    book.answered += int(record["answered"])
    uplink, downlink = record["bytes"]
    book.uplink_bytes += int(uplink)
    book.downlink_bytes += int(downlink)


def add_calls(times: ExchangeTimes, leaf: int, record: Mapping[str, Any], now: float) -> None:
    """Record the times of a leaf's clients' work in an exchange, by the clock with time `now`.

    Leaf servers on several machines may use the same process numbers, so each gets its own range here.
    """
    rows = np.array(record["calls"], dtype=np.float64)
    if rows.size:
        rows = _shift_times(rows, now)
        rows[:, _PROCESS] += (leaf + 1) * _PROCESSES
        times.numbers.extend(rows.ravel().tolist())


def failures_of(record: Mapping[str, Any]) -> dict[int, Failure]:
    """Client → reason of its failure, from a leaf server's record."""
    return {int(client): Failure(str(kind), str(detail)) for client, kind, detail in record["failures"]}


def delayed_book(record: Mapping[str, Any], by_s: float) -> dict[str, Any]:
    """A leaf server's record (`packed_book`), packed some seconds ago, with its times adjusted."""
    calls = record["calls"]
    return {**record, "calls": _shift_times(np.array(calls, np.float64), -by_s).tolist() if calls else []}


def leaf_states(states: Mapping[str, State], leaf: int) -> dict[str, State]:
    """States of one leaf among those of a region."""
    return states_under(f"{leaf}/", states)


def region_states(states: Mapping[str, State], leaf: int) -> dict[str, State]:
    """States of one leaf, named for a region's packet, with its control under its own name."""
    return {f"{leaf}/{name}": state for name, state in states.items() if name != "told"}


def with_own_control(states: Mapping[str, State]) -> dict[str, State]:
    """States of a leaf whose clients get its control, with nothing from servers above."""
    own_states = {name: state for name, state in states.items() if name != "told"}
    return {**own_states, "told": own_states["control"]} if "control" in own_states else own_states


def _shift_times(rows: np.ndarray, by_s: float) -> np.ndarray:
    """Rows of an `ExchangeTimes` shifted to another clock."""
    shifted = rows.copy()
    shifted[:, _MOMENTS] += by_s
    return shifted


# --- summaries and folds -----------------------------------------------------------------------------------


def packed_summaries(summaries: Mapping[int, Sequence[np.ndarray]]) -> dict[str, State]:
    """Summaries (`fedge.clustering.likeness.updates.Updates.summaries`) as states; dtypes stay."""
    return {
        f"{SUMMARY}{client}": {str(kind): array for kind, array in enumerate(arrays)}
        for client, arrays in summaries.items()
    }


def summaries_of(states: Mapping[str, State]) -> dict[int, list[np.ndarray]]:
    """Client → summaries of its update, float64 arrays."""
    return {
        int(name.removeprefix(SUMMARY)): [state[str(kind)] for kind in range(len(state))]
        for name, state in states.items()
        if name.startswith(SUMMARY)
    }


# --- evaluations -------------------------------------------------------------------------------------------


def packed_evaluations(replies: Mapping[int, EvaluateReply]) -> list[Any]:
    """Clients' evaluations as JSON."""
    return [
        [
            client,
            role,
            split,
            {name: array.ravel().tolist() for name, array in evaluation.sums.items()},
            float(evaluation.loss),
            evaluation.windows,
            evaluation.differences,
            None if evaluation.moments is None else evaluation.moments.tolist(),
        ]
        for client, reply in replies.items()
        for (role, split), evaluation in reply.items()
    ]


def evaluations_of(table: Iterable[Any], task: Task, outputs: int) -> dict[int, EvaluateReply]:
    """Client → its evaluations.

    Args:
        table: result of `packed_evaluations`.
        task: task of the run.
        outputs: outputs of the run's models.

    Raises:
        FactError: a value has another type, or there are too many or too few.
    """
    form = task.form(outputs)
    replies: dict[int, EvaluateReply] = {}
    for client, role, split, sums, loss, windows, pair, moments in table:
        if sums.keys() != form.keys() or type(loss) not in (int, float):
            raise FactError("evaluated", "other sums, or no loss")
        evaluation = Evaluation(
            {name: _array(sums[name], zeros).reshape(zeros.shape) for name, zeros in form.items()},
            float(loss),
            whole_number(windows, 0, MOST - 1, "windows"),
            None if pair is None else tuple(_array(pair, np.zeros(2)).tolist()),
            None if moments is None else _array(moments, np.zeros(len(moments))),
            task,
        )
        replies.setdefault(whole_number(client, 0, MOST - 1, "client"), {})[
            text(role, 200, "role"), split
        ] = evaluation
    return replies


def _array(values: Any, like: np.ndarray) -> np.ndarray:
    """A list of numbers as a flat array with the size and dtype of another array."""
    kinds: set[type] = {int} if like.dtype == np.int64 else {int, float}
    if not isinstance(values, list) or not set(map(type, values)) <= kinds or len(values) != like.size:
        raise FactError("evaluated", f"{shown(values)} must be {like.size} numbers")
    return np.array(values, dtype=like.dtype)
