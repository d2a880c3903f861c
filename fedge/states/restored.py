"""Checks of restored state: a checkpoint with valid checksums may still hold impossible values.

A part accepts only arrays of the form that it starts with, and numbers in their ranges. Missing entries, and
entries that nobody reads, are found by comparing the restored part's facts with the given ones
(`refuse_unlike`). Each function raises a ValueError of one line with the value, the rule and the actual
content.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fedge.config.registers.option import shown
from fedge.states.averaging import State

MOST = 2**53  # of a whole number: exact in float64, and far from the end of int64


def whole(value: Any, what: str, least: int = 0, below: int = MOST) -> int:
    """A whole number, `least` ≤ value < `below`."""
    if type(value) is not int or not least <= value < below:
        wide = f"at least {least}" if below >= MOST else f"in {least}..{below - 1}"
        raise ValueError(f"{what} must be a whole number {wide}, but is {shown(value)}")
    return value


def number(value: Any, what: str, least: float = -math.inf) -> float:
    """A finite number of at least `least`."""
    if type(value) not in (int, float) or not math.isfinite(value) or value < least:
        wide = f" of at least {least:g}" if math.isfinite(least) else ""
        raise ValueError(f"{what} must be a finite number{wide}, but is {shown(value)}")
    return float(value)


def flag(value: Any, what: str) -> bool:
    """True or false."""
    if type(value) is not bool:
        raise ValueError(f"{what} must be true or false, but is {shown(value)}")
    return value


def wording(value: Any, what: str, of: Iterable[str] | None = None) -> str:
    """A text, if given one of some."""
    if type(value) is not str or (of is not None and value not in of):
        wide = "a text" if of is None else f"one of {', '.join(of)}"
        raise ValueError(f"{what} must be {wide}, but is {shown(value)}")
    return value


def listed(value: Any, what: str, count: int | None = None, width: int | None = None) -> list[Any]:
    """A list, of `count` entries if given, each of `width` entries if given."""
    if type(value) is not list or (count is not None and len(value) != count):
        wide = "" if count is None else f" of {count}"
        raise ValueError(f"{what} must be a list{wide}, but is {shown(value)}")
    for each in value if width is not None else ():
        listed(each, what, width)
    return value


def wholes(value: Any, what: str, count: int | None = None, least: int = 0, below: int = MOST) -> list[int]:
    """A list of whole numbers, as `listed` and `whole` have them."""
    return [whole(each, what, least, below) for each in listed(value, what, count)]


def group_labels(value: Any, what: str, count: int) -> np.ndarray:
    """Groups (S,) int64 of `count` servers, numbered by first appearance."""
    found = wholes(value, what, count, below=max(count, 1))
    highest = -1
    for label in found:
        if label > highest + 1:
            raise ValueError(f"{what} must be numbered by first appearance, but are {shown(value)}")
        highest = max(highest, label)
    return np.array(found, dtype=np.int64)


def state(given: State, like: State, what: str) -> State:
    """A state with the entries, shapes and dtypes of another one, and finite numbers."""
    for name in like:
        if name not in given:
            raise ValueError(f"{what} must have the entry {shown(name)}, but has not")
    for name, array in given.items():
        if name not in like:
            raise ValueError(f"{what} must have no entry {shown(name)}, but has")
        if (array.shape, array.dtype) != (like[name].shape, like[name].dtype):
            raise ValueError(
                f"{what}, {name}, must be {like[name].dtype} {list(like[name].shape)}, but is {array.dtype} "
                f"{list(array.shape)}"
            )
    return finite(given, what)


def form(
    array: np.ndarray, what: str, dtype: type, shape: tuple[int, ...], least: int | None = None,
    below: int = MOST,
) -> np.ndarray:  # fmt: skip
    """An array of a dtype and shape, and in least ≤ values < `below` if given."""
    if (array.dtype, array.shape) != (np.dtype(dtype), shape):
        raise ValueError(
            f"{what} must be {np.dtype(dtype)} {list(shape)}, but is {array.dtype} {list(array.shape)}"
        )
    if least is not None and array.size:
        whole(int(array.min()), what, least, below)
        whole(int(array.max()), what, least, below)
    return array


def finite(given: State, what: str) -> State:
    """A state of finite numbers."""
    for name, array in given.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"{what}, {name}, must be finite, but is not")
    return given


def known_facts(given: Mapping[str, Any], names: Iterable[str]) -> Mapping[str, Any]:
    """Facts, all of whose names are known."""
    odd = sorted(given.keys() - set(names))
    if odd:
        raise ValueError(f"{shown(odd[0])} must not be there: this run has no such state")
    return given


def refuse_unlike(given: Any, back: Any, what: str = "") -> None:
    """Refuse facts that a restored part does not give back: an entry too many, missing, or of another kind.

    Args:
        given: facts in the checkpoint, as JSON.
        back: facts of the part restored from them.
        what: name of the facts in errors.
    """
    _compare(given, json.loads(json.dumps(back)), what)


def _compare(given: Any, back: Any, what: str) -> None:
    """Raise ValueError for the first difference between facts."""
    if isinstance(given, dict) and isinstance(back, dict):
        for name in back:
            if name not in given:
                raise ValueError(f"{what}.{name}".strip(".") + " must be there, but is missing")
        for name, value in given.items():
            where = f"{what}.{name}".strip(".")
            if name not in back:
                raise ValueError(f"{shown(where)} must not be there: this run has no such state")
            _compare(value, back[name], where)
    elif isinstance(given, list) and isinstance(back, list):
        if len(given) != len(back):
            raise ValueError(f"{what} must have {len(back)} entries, but has {len(given)}")
        for at, (one, other) in enumerate(zip(given, back, strict=True)):
            _compare(one, other, f"{what}[{at}]")
    elif not _same(given, back):
        raise ValueError(
            f"{what} must be a value of this run's, such as {shown(back)}, but is {shown(given)}"
        )


def _same(given: Any, back: Any) -> bool:
    """Whether two JSON values are equal; a whole number may have become a float."""
    if type(given) in (int, float) and type(back) in (int, float):
        return bool(given == back or (given != given and back != back))
    return type(given) is type(back) and bool(given == back)


def refuse_other_states(given: Mapping[str, State], back: Mapping[str, State]) -> None:
    """Refuse states that restored parts do not give back, by their names and those of their entries."""
    for name in back:
        if name not in given:
            raise ValueError(f"state {name} must be there, but is missing")
    for name, of in given.items():
        if name not in back:
            raise ValueError(f"state {shown(name)} must not be there: this run has no such state")
        if of.keys() != back[name].keys():
            odd = sorted(of.keys() ^ back[name].keys())[0]
            raise ValueError(f"state {name} must have this run's entries, but differs in {shown(odd)}")
