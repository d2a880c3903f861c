"""What a Flower strategy keeps from one round to the next, found by its kind and put into another one.

Server optimisers keep moments (arrays by name: FedAdam, FedYogi, FedAdagrad; a list of arrays: FedAvgM),
adaptive clipping keeps a norm (a number), and wrappers, such as Flower's own for privacy, keep a strategy.
Settings are numbers as well; they are kept too and put back as they were.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.serverapp.strategy import Strategy

from fedge.states.averaging import State

_SET_ANEW = ("current_arrays",)  # told to the strategy before every round
_LIST, _SCALAR = "[]", "()"  # end the names of lists of arrays and of NumPy's scalars


def states_of(strategy: Strategy) -> dict[str, State]:
    """Return all arrays that a strategy and those inside it keep, by attribute."""
    found: dict[str, State] = {}
    for name, value in _attributes(strategy):
        if isinstance(value, Strategy):
            found |= {f"{name}.{inner}": state for inner, state in states_of(value).items()}
        elif isinstance(value, np.generic):
            found[name + _SCALAR] = {"": np.asarray(value)}
        elif isinstance(value, Mapping) and _are_arrays(list(value.values())):
            found[name] = value
        elif isinstance(value, list) and _are_arrays(value):
            found[name + _LIST] = {str(number): array for number, array in enumerate(value)}
    return found


def numbers_of(strategy: Strategy) -> dict[str, float]:
    """Return all plain numbers that a strategy and those inside it keep, by attribute."""
    found: dict[str, float] = {}
    for name, value in _attributes(strategy):
        if isinstance(value, Strategy):
            found |= {f"{name}.{inner}": number for inner, number in numbers_of(value).items()}
        elif type(value) in (bool, int, float):
            found[name] = value
    return found


def put_back(strategy: Strategy, states: Mapping[str, State], numbers: Mapping[str, float]) -> None:
    """Let a fresh strategy of the same kind go on with what `states_of` and `numbers_of` gave."""
    for name, number in numbers.items():
        _set(strategy, name, number)
    for name, state in states.items():
        if name.endswith(_SCALAR):
            _set(strategy, name.removesuffix(_SCALAR), state[""][()])
        elif name.endswith(_LIST):
            _set(strategy, name.removesuffix(_LIST), list(state.values()))
        else:
            _set(strategy, name, dict(state))


def _attributes(strategy: Strategy) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in vars(strategy).items() if name not in _SET_ANEW]


def _are_arrays(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, np.ndarray) for value in values)


def _set(strategy: Any, name: str, value: Any) -> None:
    """Set an attribute, of an inner strategy if the name has dots."""
    *outer, last = name.split(".")
    for inner in outer:
        strategy = getattr(strategy, inner)
    setattr(strategy, last, value)
