"""Lies that fit together but for one thing, so that a single check stands in their way: drawn at random.

Lies of `lies` and `spoilt` change one value each, which often fails at the first check of all.
"""

import copy
import json

import numpy as np

from fedge.link.frames import Packet


def sly_account(rng, record):
    """A first answer whose account is whole, but of another kind."""
    told = json.loads(record["told"])
    how = rng.integers(8)
    if how == 0:
        told["y_dtype"] = str(rng.choice(["bool", "float64", ""]))
        told["counts"] = {split: [sum(counts)] for split, counts in told["counts"].items()}
    elif how == 1:
        told["y_shape"], told["y_dtype"] = [0], "int64"
    elif how == 2:
        told["input_shape"][0] += int(rng.choice([-1, 1]))
    elif how == 3:
        told["about"] = {"x": "y" * 30_000}
    elif how == 4:
        told["counts"][str(rng.choice(["train", "val", "test"]))].append(0)
    elif how == 5:
        told["classes"].append("another")
    elif how == 6:
        told["channels"].pop()
    else:
        for name in ("mean", "spread"):
            told["sums"][name][0] = str(told["sums"][name][0])
    return {**record, "told": json.dumps(told)}


def sly_answer(rng, answer, _):
    """An answer of a leaf server whose facts agree but for one."""
    facts, states = copy.deepcopy(dict(answer.facts)), dict(answer.states)
    lies = [_of_book, _of_states, *(lie for name, lie in _OF_FACTS.items() if name in facts)]
    lies[int(rng.integers(len(lies)))](rng, facts, states)
    return Packet(answer.kind, facts, states), []


def _of_book(rng, facts, _):
    """Failures that cannot be, training that nobody asked for, rows twice."""
    book, how = facts["book"], rng.integers(6)
    rows = book["train_loss"] or book["train_seconds"] or [[client, 1.0] for client, *_ in book["calls"]]
    client = rows[0][0] if rows else 0
    if how == 0:
        book["failures"] = [[client, "exception", str(rng.choice(["", "\x1b[2J", "x" * 400]))]]
    elif how == 1:
        book["failures"] = [[client, "exception", ""]] * int(rng.integers(1, 3))
    elif how == 2:
        book["train_loss"], book["train_seconds"] = [[client, 0.5]], [[client, 0.5]]
    elif how == 3 and book["train_loss"]:
        for name in ("train_loss", "train_seconds"):
            book[name][-1] = list(book[name][0])
    elif how == 4:
        book["calls"] = [*book["calls"], [10**6, *book["calls"][0][1:]]] if book["calls"] else []
    else:
        facts["book"] = list(book.items())


def _of_states(rng, _, states):
    """States that nobody asked for."""
    name = str(rng.choice(["summary.0", "summary.99", "told", "x", "model"]))
    states[name] = next(iter(states.values())) if states else {"w": np.zeros(3, np.float32)}


def _of_counted(rng, facts, states):
    """More or fewer than are named; or nobody, and yet the model has moved."""
    if rng.random() < 0.5:
        facts["counted"] += int(rng.choice([-1, 1]))
        return
    facts["counted"], facts["book"]["train_loss"], facts["book"]["train_seconds"] = 0, [], []
    if facts.get("dispersion") is not None:
        facts["dispersion"] = None


def _of_moved(rng, facts, states):
    """Moved without a model, or not with one; or as it were a number."""
    facts["moved"] = int(facts["moved"]) if rng.random() < 0.5 else not facts["moved"]


def _of_dispersion(rng, facts, _):
    facts["dispersion"] = [None, -1.0, float("nan"), "1"][rng.integers(4)]


def _of_folds(rng, facts, _):
    """Models kept under other names, for others, or that nobody asked for."""
    folds = facts["folds"] = [list(row) for row in facts["folds"]] or [[0, "fold-1-0"]]
    folds[0] = [[folds[0][0], "../../x"], [10**6, folds[0][1]], [folds[0][0], 3]][rng.integers(3)]


def _of_evaluated(rng, facts, _):
    """A row twice, also in place of another; one that is missing, of another client, role or split."""
    rows = facts["evaluated"] = [list(row) for row in facts["evaluated"]]
    how = rng.integers(4)
    if how == 0:
        if rng.random() < 0.5 and len(rows) > 1:
            rows.pop()
        rows.append(list(rows[0]))
    elif how == 1:
        client = rows[0][0]
        rows[:] = [row for row in rows if row[0] != client]
    else:
        rows[0][int(how) - 2] = [10**6, "another"][int(how) - 2]


def _of_leaf(rng, facts, _):
    facts["leaf"] = list(facts["leaf"].items()) if rng.random() < 0.5 else {**facts["leaf"], "more": 1}


_OF_FACTS = {
    "counted": _of_counted, "moved": _of_moved, "dispersion": _of_dispersion, "folds": _of_folds,
    "evaluated": _of_evaluated, "leaf": _of_leaf,
}  # fmt: skip
