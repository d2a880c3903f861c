"""Answers that an honest leaf server could have given, beside the honest one (`possible`)."""

import math

import numpy as np
from possible import LARGEST, MOST_LOSS, array_fault, evaluate_fault, is_between, is_whole

BOOK = ("train_loss", "train_seconds", "asked", "failures", "kept_model", "bytes", "answered", "calls")
MOST_STAMP = 2.0**53
STRATEGY, SUMMARY = "strategy.", "summary."


def trained_fault(honest, schema, asked, global_round, told):
    """Look at an answer to an order to train; `asked` and `schema` say what was asked for."""
    facts, leaf = told.facts, asked.leaf
    if facts.keys() != honest.facts.keys():
        return "facts"
    fault = book_fault(facts["book"], leaf.clients, schema.run.config.guard)
    if fault:
        return fault
    book = facts["book"]
    trained = [client for client, _ in book["train_seconds"]]
    losses = [client for client, _ in book["train_loss"]]
    named = set(losses) == (set(trained) if honest.facts["book"]["train_loss"] else set())
    if not is_whole(facts["counted"], len(trained), len(trained)) or not named:
        return "counted"
    if set(trained) & {row[0] for row in book["failures"] if row[1] != "memory lost"}:
        return "trained and failed"
    if {row[0] for row in book["asked"]} - set(leaf.clients) or (
        losses and not set(trained) <= {row[0] for row in book["asked"]}
    ):
        return "trained without being asked"
    moved, has_model = facts["moved"], "model" in told.states
    if type(moved) is not bool or moved != has_model or (moved and not trained):
        return "moved"
    if facts["version"] != honest.facts["version"] or type(facts["version"]) is not int:
        return "version"
    apart = facts.get("dispersion")
    if "dispersion" in facts and not (is_between(apart, 0, 1.7e308) if trained else apart is None):
        return "dispersion"
    fault = kept_fault(honest, facts["leaf"], leaf, schema.run.config.train, global_round)
    return (
        fault or folds_fault(honest, facts["folds"]) or states_fault(honest, told, schema, leaf, leaf.model)
    )


def kept_fault(honest, told, leaf, train, global_round):
    """Look at what a leaf keeps beside its model: norms, numbers of its strategy, the drift."""
    known = honest.facts["leaf"]
    if type(told) is not dict or told.keys() != known.keys():
        return "leaf"
    norms = told["norms"]
    if type(norms) is not list or len(norms) > leaf.norms.norms.maxlen:
        return "norms"
    if not all(is_between(norm, 0, math.inf) for norm in norms):
        return "norms"
    if "drift" in known:
        before, lr = leaf.drift.length, train.lr * train.lr_decay ** (global_round - 1)
        steps = [
            train.local_epochs * math.ceil(n / train.batch_size) for n in (1, *leaf.train_samples.values())
        ]
        grown = [
            k * lr / (1 - train.momentum) * (1 + e) for k, e in ((min(steps), -1e-9), (max(steps), 1e-9))
        ]
        if not is_between(told["drift"], before + grown[0], before + grown[1]):
            return f"drift {told['drift']!r:.50} after {before}"
    return numbers_fault(told["strategy"], known["strategy"])


def numbers_fault(told, known):
    """Look at the numbers of a strategy: those that there are, finite, truths where there are truths."""
    if type(told) is not dict or not told.keys() >= known.keys():
        return "strategy"
    for name, number in told.items():
        if (type(number) is bool) != (type(known.get(name, 0)) is bool):
            return f"strategy {name!r:.50}"
        if type(number) is not bool and number != known.get(name) and not is_between(number, -1e300, 1e300):
            return f"strategy {name!r:.50}"
    return None


def folds_fault(honest, told):
    """Look at the names of models that a leaf server has kept: some of those that an honest one names."""
    known = [list(row) for row in honest.facts["folds"]]
    fits = type(told) is list and all(list(row) in known for row in told)
    return None if fits and len({str(row) for row in told}) == len(told) else "folds"


def states_fault(honest, told, schema, leaf, start):
    """Look at models, control variates and summaries."""
    names = {name for name in told.states if not name.startswith((STRATEGY, SUMMARY))}
    if names - {"model"} != {n for n in honest.states if not n.startswith((STRATEGY, SUMMARY))} - {"model"}:
        return "states"
    if not {n for n in told.states if n.startswith(SUMMARY)} <= {f"{SUMMARY}{c}" for c in leaf.train_samples}:
        return "summaries"
    train, most = schema.run.config.train, max(leaf.train_samples.values())
    steps = train.local_epochs * math.ceil(most / train.batch_size)
    for name in told.states:
        if name.startswith(STRATEGY):
            fault = _finite_fault(told.states[name])
        elif name not in honest.states:
            fault = "that nobody asked for"
        else:
            base = start if name == "model" else None
            fault = array_fault(base, honest.states[name], told.states[name], steps, steps * train.batch_size)
        fault = fault or (name.startswith(SUMMARY) and _summary_fault(told.states[name], leaf, name))
        if fault:
            return f"{name}: {fault}"
    return None


def _finite_fault(state):
    """Look at arrays of a strategy, which may be of any name that it has."""
    floats = [array for array in state.values() if np.asarray(array).dtype in LARGEST]
    return None if all(np.isfinite(array).all() for array in floats) else "not finite"


def _summary_fault(state, leaf, name):
    """Look at the number of windows in the last array of a summary."""
    (windows,) = state[str(len(state) - 1)]
    most = leaf.train_samples[int(name.removeprefix(SUMMARY))]
    return None if 1 <= windows <= most and windows == int(windows) else f"{windows} windows"


def probed_fault(honest, schema, leaf, start, _, told):
    """Look at an answer to an order to probe."""
    if told.facts.keys() != honest.facts.keys():
        return "facts"
    book = told.facts["book"]
    fault = book_fault(book, leaf.clients, schema.run.config.guard)
    if fault or book["train_loss"] or book["train_seconds"] or book["kept_model"] or book["answered"]:
        return fault or "training"
    moved = told.facts["moved"]
    if type(moved) is not bool or moved != ("model" in told.states):
        return "moved"
    return states_fault(honest, told, schema, leaf, start)


def evaluated_fault(honest, schema, roles, splits, told):
    """Look at evaluations: rows of (client, role, split, sums, loss, windows, differences, moments)."""
    if told.facts.keys() != honest.facts.keys() or told.states:
        return "facts"
    book, rows = told.facts["book"], told.facts["evaluated"]
    fault = book_fault(book, roles, schema.run.config.guard)
    if fault or book["train_loss"] or book["train_seconds"] or book["kept_model"] or book["answered"]:
        return fault or "training"
    if type(rows) is not list or not all(type(row) in (list, tuple) and len(row) == 8 for row in rows):
        return "rows"
    if [tuple(row[:3]) for row in rows if type(row[0]) is not int]:
        return "clients"
    known = {tuple(row[:3]): row for row in honest.facts["evaluated"]}
    if len({str(row[:3]) for row in rows}) != len(rows) or not {str(tuple(r[:3])) for r in rows} <= set(
        map(str, known)
    ):
        return "others than were asked"
    failed = {row[0] for row in book["failures"]}
    there = {row[0] for row in rows}
    if there != {key[0] for key in known} - (failed - there):
        return "clients that are missing"
    for client in there:
        fault = evaluate_fault(*(_as_metrics(client, of) for of in (honest.facts["evaluated"], rows)))
        if fault:
            return f"client {client}: {fault}"
    return None


def _as_metrics(client, rows):
    """Evaluations of one client as a client's reply has them."""
    found = {}
    for who, role, split, sums, loss, windows, pair, moments in rows:
        if who == client:
            at = f"{role}/{split}"
            found |= {f"{at}/loss": loss, f"{at}/windows": windows}
            if type(sums) is dict and sums.keys() == {"confusion"}:
                found[f"{at}/sums/confusion"] = sums["confusion"]
            found |= {f"{at}/differences": pair} if pair is not None else {}
            found |= {f"{at}/moments": moments} if moments is not None else {}
    return found


def book_fault(told, clients, guard):
    """Look at a leaf server's book of one order."""
    if type(told) is not dict or told.keys() != set(BOOK):
        return "book"
    for name, width in (("train_loss", 2), ("train_seconds", 2), ("asked", 2), ("failures", 3)):
        if not are_rows(told[name], width) or len({str(row[0]) for row in told[name]}) != len(told[name]):
            return name
        if not all(is_number_of(row[0], clients) for row in told[name]):
            return f"{name}: of others"
    if not all(is_between(loss, 0, MOST_LOSS) for _, loss in told["train_loss"]):
        return "train_loss"
    if not all(is_between(s, 0, guard.client_timeout + 30) for _, s in told["train_seconds"]):
        return "train_seconds"
    if not all(is_whole(times, 1, 1) for _, times in told["asked"]):
        return "asked"
    for _, *words in told["failures"]:
        if not all(isinstance(word, str) and word.isprintable() and len(word) <= 300 for word in words):
            return "failures"
    if not is_whole(told["kept_model"], 0, 1):
        return "kept_model"
    if (
        type(told["bytes"]) is not list
        or len(told["bytes"]) != 2
        or not all(is_whole(b, 0, 2**53 - 1) for b in told["bytes"])
    ):
        return "bytes"
    if not is_whole(told["answered"], len(told["train_seconds"]), len(clients)):
        return "answered"
    calls = told["calls"]
    if (
        type(calls) is not list
        or len(calls) > len(clients) * (1 + guard.retries)
        or len({len(row) for row in calls}) > 1
    ):
        return "calls"
    values = [value for row in calls for value in row]
    fits = all(is_between(value, -MOST_STAMP, MOST_STAMP) for value in values)
    return None if fits and all(is_number_of(row[0], clients) for row in calls) else "calls"


def are_rows(value, width):
    """Tell whether a value is a list of rows of so many values."""
    return type(value) is list and all(type(row) in (list, tuple) and len(row) == width for row in value)


def is_number_of(value, clients):
    """Tell whether a value names one of some clients; as a row of numbers has it, 3.0 is 3."""
    return type(value) in (int, float) and value in set(clients)


LEAF_FAULTS = {"trained": trained_fault, "probed": probed_fault, "evaluated": evaluated_fault}
