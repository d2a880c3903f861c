"""Checks of restored state: a checkpoint with valid checksums may still hold impossible values.

A part accepts only arrays of the form it starts with, and numbers in their ranges. Missing and unread entries
are found by comparing the restored part's facts with the given ones (`refuse_unequal_facts`). Each function
raises a ValueError of one line with the value, the rule and the actual content.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedge.config.registers.option import shown
from fedge.states.averaging import State

MOST = 2**53  # of a whole number: exact in float64, and far from the end of int64


def checked_int(value: Any, label: str, least: int = 0, below: int = MOST) -> int:
    """A whole number, `least` ≤ value < `below`."""
    if type(value) is not int or not least <= value < below:
        allowed = f"at least {least}" if below >= MOST else f"in {least}..{below - 1}"
        raise ValueError(f"{label} must be a whole number {allowed}, but is {shown(value)}")
    return value


def checked_number(value: Any, label: str, least: float = -math.inf) -> float:
    """A finite number of at least `least`."""
    if type(value) not in (int, float) or not math.isfinite(value) or value < least:
        allowed = f" of at least {least:g}" if math.isfinite(least) else ""
        raise ValueError(f"{label} must be a finite number{allowed}, but is {shown(value)}")
    return float(value)


def checked_bool(value: Any, label: str) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise ValueError(f"{label} must be true or false, but is {shown(value)}")
    return value


def checked_choice(value: Any, label: str, choices: Iterable[str] | None = None) -> str:
    """A text, if given one of some."""
    if type(value) is not str or (choices is not None and value not in choices):
        allowed = "a text" if choices is None else f"one of {', '.join(choices)}"
        raise ValueError(f"{label} must be {allowed}, but is {shown(value)}")
    return value


def checked_list(value: Any, label: str, count: int | None = None, width: int | None = None) -> list[Any]:
    """A list, of `count` entries if given, each of `width` entries if given."""
    if type(value) is not list or (count is not None and len(value) != count):
        length = "" if count is None else f" of {count}"
        raise ValueError(f"{label} must be a list{length}, but is {shown(value)}")
    for entry in value if width is not None else ():
        checked_list(entry, label, width)
    return value


def checked_ints(
    value: Any, label: str, count: int | None = None, least: int = 0, below: int = MOST
) -> list[int]:
    """A list of whole numbers, as `checked_list` and `checked_int` have them."""
    return [checked_int(entry, label, least, below) for entry in checked_list(value, label, count)]


def group_labels(value: Any, label: str, count: int) -> np.ndarray:
    """Groups (S,) int64 of `count` servers, numbered by first appearance."""
    labels = checked_ints(value, label, count, below=max(count, 1))
    highest = -1
    for index in labels:
        if index > highest + 1:
            raise ValueError(f"{label} must be numbered by first appearance, but are {shown(value)}")
        highest = max(highest, index)
    return np.array(labels, dtype=np.int64)


def state(loaded: State, like: State, label: str) -> State:
    """A state with the entries, shapes and dtypes of another one, and finite numbers."""
    for name in like:
        if name not in loaded:
            raise ValueError(f"{label} must have the entry {shown(name)}, but has not")
    for name, array in loaded.items():
        if name not in like:
            raise ValueError(f"{label} must have no entry {shown(name)}, but has")
        if (array.shape, array.dtype) != (like[name].shape, like[name].dtype):
            raise ValueError(
                f"{label}, {name}, must be {like[name].dtype} {list(like[name].shape)}, but is {array.dtype} "
                f"{list(array.shape)}"
            )
    return finite(loaded, label)


def form(
    array: np.ndarray, label: str, dtype: type, shape: tuple[int, ...], least: int | None = None,
    below: int = MOST,
) -> np.ndarray:  # fmt: skip
    """An array of a dtype and shape, and in least ≤ values < `below` if given."""
    if (array.dtype, array.shape) != (np.dtype(dtype), shape):
        raise ValueError(
            f"{label} must be {np.dtype(dtype)} {list(shape)}, but is {array.dtype} {list(array.shape)}"
        )
    if least is not None and array.size:
        checked_int(int(array.min()), label, least, below)
        checked_int(int(array.max()), label, least, below)
    return array


def finite(loaded: State, label: str) -> State:
    """A state of finite numbers."""
    for name, array in loaded.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"{label}, {name}, must be finite, but is not")
    return loaded


def checked_facts(facts: Mapping[str, Any], names: Iterable[str]) -> Mapping[str, Any]:
    """Facts, all of whose names are known."""
    unknown = sorted(facts.keys() - set(names))
    if unknown:
        raise ValueError(f"{shown(unknown[0])} must not be there: this run has no such state")
    return facts


def refuse_unequal_facts(saved: Any, restored: Any, label: str = "") -> None:
    """Refuse facts not returned by a restored part: an entry too many, missing, or of another kind.

    Args:
        saved: facts in the checkpoint, as JSON.
        restored: facts of the part restored from them.
        label: name of the facts in errors.
    """
    _compare(saved, json.loads(json.dumps(restored)), label)


def _compare(saved: Any, restored: Any, label: str) -> None:
    """Raise ValueError for the first difference between facts."""
    if isinstance(saved, dict) and isinstance(restored, dict):
        for name in restored:
            if name not in saved:
                raise ValueError(f"{label}.{name}".strip(".") + " must be there, but is missing")
        for name, value in saved.items():
            path = f"{label}.{name}".strip(".")
            if name not in restored:
                raise ValueError(f"{shown(path)} must not be there: this run has no such state")
            _compare(value, restored[name], path)
    elif isinstance(saved, list) and isinstance(restored, list):
        if len(saved) != len(restored):
            raise ValueError(f"{label} must have {len(restored)} entries, but has {len(saved)}")
        for i, (one, other) in enumerate(zip(saved, restored, strict=True)):
            _compare(one, other, f"{label}[{i}]")
    elif not _same(saved, restored):
        raise ValueError(
            f"{label} must be a value of this run's, such as {shown(restored)}, but is {shown(saved)}"
        )


def _same(saved: Any, restored: Any) -> bool:
    """Whether two JSON values are equal; a whole number may have become a float."""
    if type(saved) in (int, float) and type(restored) in (int, float):
        return bool(saved == restored or (saved != saved and restored != restored))
    return type(saved) is type(restored) and bool(saved == restored)


def refuse_other_states(saved: Mapping[str, State], restored: Mapping[str, State]) -> None:
    """Refuse states not returned by restored parts, by their names and those of their entries."""
    for name in restored:
        if name not in saved:
            raise ValueError(f"state {name} must be there, but is missing")
    for name, entries in saved.items():
        if name not in restored:
            raise ValueError(f"state {shown(name)} must not be there: this run has no such state")
        if entries.keys() != restored[name].keys():
            differing = sorted(entries.keys() ^ restored[name].keys())[0]
            raise ValueError(f"state {name} must have this run's entries, but differs in {shown(differing)}")
