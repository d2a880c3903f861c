"""Arrays, numbers and states by name as one state, for files and messages, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedge.config.registers.option import shown
from fedge.states.averaging import State

Value = Any
"""An array, a number, or a state (name → array)."""
Memory = dict[str, Any]
"""Name → array, number, or state (name → array)."""

_Form = tuple[tuple[int, ...], str]  # shape and dtype
_SEPARATOR = "/"
_KINDS = "fiub"  # of dtypes in a file


def packed(values: Mapping[str, Value], label: str) -> State:
    """Arrays, numbers and states as one state: states under "name/entry", numbers without axes.

    A number is stored in the type of the Python number returned by `unpacked`. Otherwise a NumPy number, such
    as a norm in float32, would change its dtype from one round to the next.

    Args:
        values: values by name.
        label: name of the values in errors.

    Raises:
        TypeError: one is none of these.
        FloatingPointError: one is not finite.

    >>> packed({"v": {"w": np.zeros(2)}, "alpha": 0.5}, "memory")
    {'v/w': array([0., 0.]), 'alpha': array(0.5)}
    >>> packed({"norm": np.float32(2)}, "memory")["norm"].dtype
    dtype('float64')
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{label} must be a mapping of arrays and numbers by name, but is {shown(values)}")
    flat: dict[str, np.ndarray] = {}
    for name, value in values.items():
        if type(name) is not str or not name or _SEPARATOR in name:
            raise TypeError(f"{label} must have names without '/', but has {shown(name)}")
        if isinstance(value, Mapping):
            flat.update({f"{name}{_SEPARATOR}{inner}": _array(a, label, name) for inner, a in value.items()})
        else:
            array = _array(value, label, name)
            flat[name] = np.array(array.item()) if array.shape == () else array
    return flat


def states_under(prefix: str, states: Mapping[str, State]) -> dict[str, State]:
    """The states with a prefix in their names, without the prefix.

    >>> states_under("a.", {"a.w": {}, "b.w": {}})
    {'w': {}}
    """
    return {name.removeprefix(prefix): s for name, s in states.items() if name.startswith(prefix)}


def _array(value: object, label: str, name: str) -> np.ndarray:
    """A value as an array of numbers, all of them finite."""
    array = np.array(value) if isinstance(value, (np.ndarray, np.generic, bool, int, float)) else None
    if array is None or array.dtype.kind not in _KINDS:
        raise TypeError(f"{label} {name!r} must be an array or a number, but is {shown(value)}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise FloatingPointError(f"{label} {name!r} is not finite")
    return array


def arrays_by_name(values: object, label: str) -> State:
    """A state made by a user's code, unchanged.

    Args:
        values: values by name.
        label: name of the values in errors.

    Raises:
        TypeError: it is no mapping of NumPy arrays.

    >>> arrays_by_name(None, "the model")
    Traceback (most recent call last):
    TypeError: the model must be NumPy arrays by name, but is None
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"{label} must be NumPy arrays by name, but is {shown(values)}")
    for name, array in values.items():
        if type(name) is not str or not isinstance(array, (np.ndarray, np.generic)):
            raise TypeError(f"{label} must be NumPy arrays by name, but has {shown(array)} for {shown(name)}")
    return dict(values)


def copy_if_view(array: np.ndarray) -> np.ndarray:
    """An array, copied if it is a view through which its owner could change it.

    The arrays of a network's state dict are such views: the network trains another client while a server in
    the same process still holds them.

    >>> weights = np.zeros(2)
    >>> copy_if_view(weights) is weights, np.shares_memory(copy_if_view(weights[:]), weights)
    (True, False)
    """
    return array.copy() if array.flags.writeable and not array.flags.owndata else array


def read_only(state: State) -> State:
    """Views of a state's arrays for a user's code, which cannot write to them.

    Mappings other than dictionaries are unchanged: mapped files are read-only, and entries computed on access
    are not kept.
    """
    if not isinstance(state, dict):
        return state
    views = {name: np.asarray(array).view() for name, array in state.items()}
    for view in views.values():
        view.flags.writeable = False
    return views


def unpacked(state: Mapping[str, np.ndarray]) -> Memory:
    """Inverse of `packed`, with copied arrays.

    >>> unpacked({"v/w": np.zeros(2), "alpha": np.array(0.5)})
    {'v': {'w': array([0., 0.])}, 'alpha': 0.5}
    """
    values: Memory = {}
    for name, array in state.items():
        head, separator, inner = name.partition(_SEPARATOR)
        if separator:
            inner_state = values.setdefault(head, {})
            assert isinstance(inner_state, dict)
            inner_state[inner] = np.array(array)
        else:
            values[name] = array.item() if array.shape == () else np.array(array)
    return values


def form_of(state: Mapping[str, np.ndarray]) -> dict[str, _Form]:
    """Name → shape and dtype."""
    return {name: (tuple(array.shape), array.dtype.str) for name, array in state.items()}


def first_difference(before: State, after: State, prefix: str = "") -> str:
    """The first difference of form between two states in words; "" for none.

    Args:
        before: the earlier state.
        after: the later state.
        prefix: prefix of the compared state's names in `after`.
    """
    old_form, new_form = form_of(before), form_of(after)
    if prefix:
        new_form = {name.removeprefix(f"{prefix}{_SEPARATOR}"): form for name, form in new_form.items()}
    return form_difference(old_form, new_form)


def form_difference(old: Mapping[str, _Form], new: Mapping[str, _Form]) -> str:
    """The first difference between two forms in words; "" for none.

    >>> form_difference({"at": ((2,), "<f4")}, {})
    "'at' was float32 (2,) and became absent"
    """
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            return f"{name!r} was {words_of_form(old.get(name))} and became {words_of_form(new.get(name))}"
    return ""


def words_of_form(form: _Form | None) -> str:
    """A form in words.

    >>> words_of_form(((3,), "<f8")), words_of_form(None)
    ('float64 (3,)', 'absent')
    """
    return "absent" if form is None else f"{np.dtype(form[1])} {form[0]}"
