"""Forged states of a checkpoint: what no run can have kept, one change at a time, with sums that fit."""

import copy
import math
from collections.abc import Iterator

import numpy as np

ODD = (None, "x", [], {}, math.nan, -5, 10**30)


def forged_facts(facts) -> Iterator[tuple[str, object]]:
    """(what, facts) with one of them missing, of another kind, out of its range, or one too many."""
    for at in _paths(facts):
        name, value = ".".join(map(str, at)), facts
        if name == "form":  # of another version, in other words
            continue
        for key in at:
            value = value[key]
        yield f"{name} missing", _changed(facts, at, lambda holder, key: holder.pop(key))
        for odd in ODD:
            if not (type(odd) is type(value) and odd == value) and not (odd is None and _may_be_none(name)):
                yield f"{name} = {odd!r}", _changed(facts, at, _put(odd))
        if isinstance(value, dict):
            yield f"{name} and one more", _changed(facts, at, _put({**value, "zz": 0}))
        if isinstance(value, list) and value and not name.endswith(".buffer"):  # as many wait as a rule likes
            yield f"{name} and one more", _changed(facts, at, _put([*value, value[0]]))


def _may_be_none(name):
    """Whether nothing is a value that a run may have kept there."""
    return name.rpartition(".")[2] in {"labels", "candidate", "taken", "joules", "groups"}


def _put(value):
    """A change that puts a value in place."""
    return lambda holder, key: holder.__setitem__(key, value)


def _paths(facts, at=()):
    """Places in facts; of a list the first and the last one."""
    if at:
        yield at
    if isinstance(facts, dict):
        for key in facts:
            yield from _paths(facts[key], (*at, key))
    elif isinstance(facts, list):
        for key in sorted({0, len(facts) - 1}) if facts else ():
            yield from _paths(facts[key], (*at, key))


def _changed(facts, at, change):
    """Facts with a change at a place."""
    made = copy.deepcopy(facts)
    holder = made
    for key in at[:-1]:
        holder = holder[key]
    change(holder, at[-1])
    return made


def forged_groups(groups) -> Iterator[tuple[str, dict]]:
    """(what, groups) with a state or an entry missing, one too many, or of another form, or not finite."""
    for group, states in groups.items():
        for name, state in states.items():
            if group != "clients" and _must_be_there(name):  # a client that has not trained has none
                yield (
                    f"{group} {name} missing",
                    _with(groups, group, {n: s for n, s in states.items() if n != name}),
                )
            yield f"{group} {name} twice", _with(groups, group, {**states, f"{name}zz": state})
            for entry, array in state.items():
                where = f"{group} {name} {entry}"
                rest = {n: a for n, a in state.items() if n != entry}
                yield f"{where} missing", _with(groups, group, {**states, name: rest})
                yield f"{where} and one more", _with(groups, group, {**states, name: {**state, "zz": array}})
                for how, odd in _odd(array):
                    yield f"{where} {how}", _with(groups, group, {**states, name: {**state, entry: odd}})


def _must_be_there(name):
    """Whether a run of any age has such a state: moments and remembered updates come with time."""
    return not any(part in name for part in ("strategy", "likeness", "method", "recent", "correction"))


def _odd(array):
    """(how, array) of another form, or with a number that is none."""
    flat = np.ravel(array)
    yield "longer", np.concatenate([flat, flat[:1]])
    yield "flat", array.reshape(1, -1)
    yield "of another dtype", array.astype(np.int16)
    if array.dtype.kind == "f" and array.size:
        yield (
            "not finite",
            np.where(np.arange(array.size).reshape(array.shape) == 0, np.inf, array).astype(array.dtype),
        )


def _with(groups, group, states):
    """Groups with other states in one of them."""
    return {**groups, group: states}
