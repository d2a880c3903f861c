"""State of a Flower strategy between rounds, found by its kind and put into another one.

Server optimisers keep moments (arrays by name: FedAdam, FedYogi, FedAdagrad; a list of arrays: FedAvgM),
adaptive clipping keeps a norm (a number), and wrappers, such as Flower's own for privacy, keep a strategy.
Settings are numbers as well; they are kept too and put back as they were. How many nodes Flower is to wait
for is one of them: values from elsewhere must not ask for more than before, or a round would never begin.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.serverapp.strategy import FedAvg, Strategy

from fedge.states.averaging import State

_SET_ANEW = ("current_arrays",)  # told to the strategy before every round
_LIST, _SCALAR = "[]", "()"  # end the names of lists of arrays and of NumPy's scalars
_OF_NODES = frozenset(inspect.signature(FedAvg.__init__).parameters)  # numbers and shares of them
_LARGEST = 1e150  # of numbers kept: the square is finite


def states_of(strategy: Strategy) -> dict[str, State]:
    """All arrays of a strategy and its inner strategies, by attribute."""
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
    """All plain numbers of a strategy and its inner strategies, by attribute."""
    found: dict[str, float] = {}
    for name, value in _attributes(strategy):
        if isinstance(value, Strategy):
            found |= {f"{name}.{inner}": number for inner, number in numbers_of(value).items()}
        elif type(value) in (bool, int, float):
            found[name] = value
    return found


def restore_strategy(strategy: Strategy, states: Mapping[str, State], numbers: Mapping[str, float]) -> None:
    """Restore a fresh strategy of the same kind from `states_of` and `numbers_of`.

    Raises:
        ValueError: a number can be none of this strategy's, such as more nodes to wait for.
    """
    for name, number in numbers.items():
        _refuse_number(name, number, _kept(strategy, name))
        _set(strategy, name, number)
    for name, state in states.items():
        if name.endswith(_SCALAR):
            _set(strategy, name.removesuffix(_SCALAR), state[""][()])
        elif name.endswith(_LIST):
            _set(strategy, name.removesuffix(_LIST), list(state.values()))
        else:
            _set(strategy, name, dict(state))


def refuse_other(
    strategy: Strategy, states: Mapping[str, State], numbers: Mapping[str, Any], model: State
) -> None:
    """Raise ValueError unless such a strategy can hold these, as `restore_strategy` requires.

    No present value may be lost, and no unknown attribute may be added. Arrays are finite, as large as they
    were, or as an entry of the model; numbers are finite, or as they were.

    Args:
        strategy: before the call.
        states: as `states_of` gave them elsewhere.
        numbers: as `numbers_of` did.
        model: of the run's kind.
    """
    bare = {name.removesuffix(_LIST).removesuffix(_SCALAR) for name in states}
    known = {name.removesuffix(_LIST).removesuffix(_SCALAR) for name in states_of(strategy)}
    lost = (numbers_of(strategy).keys() | known) - bare - numbers.keys()
    if lost:
        raise ValueError(f"{sorted(lost)[0]!r} of {type(strategy).__name__} is missing")
    for name, number in numbers.items():
        _refuse_number(name, number, _kept(strategy, name))
    for name, state in states.items():
        _refuse_state(name, state, _kept(strategy, name.removesuffix(_LIST).removesuffix(_SCALAR)), model)


def _refuse_number(name: str, number: Any, before: Any) -> None:
    """Raise ValueError unless a number can stand where `before` stood."""
    fits = before is None or isinstance(before, (bool, int, float, np.generic))
    if type(number) not in (bool, int, float) or not fits or (type(before) is bool) != (type(number) is bool):
        raise ValueError(f"{name!r} cannot be {type(number).__name__}")
    if number != before and not abs(number) <= _LARGEST:
        raise ValueError(f"{name!r} is not finite")
    if name.rpartition(".")[2] in _OF_NODES and not 0 <= number <= max(before or 0, 1):
        raise ValueError(f"{name!r} cannot be {number:g}, more than {max(before or 0, 1):g}")


def _refuse_state(name: str, state: State, before: Any, model: State) -> None:
    """Raise ValueError unless arrays can stand where `before` stood."""
    shapes = {array.shape for array in model.values()}
    if name.removesuffix(_LIST).removesuffix(_SCALAR).rpartition(".")[2] in _OF_NODES:
        raise ValueError(f"{name!r} is a number")
    if name.endswith(_SCALAR):
        fits = (before is None or isinstance(before, (int, float, np.generic))) and list(state) == [""]
        shapes = {()}
    elif name.endswith(_LIST):
        fits = isinstance(before, list | None) and list(state) == [str(at) for at in range(len(state))]
        shapes |= {array.shape for array in before or ()} if fits else set()
    else:
        fits = isinstance(before, Mapping | None) and (not before or before.keys() == state.keys())
        fits = fits and all(array.shape == before[entry].shape for entry, array in state.items() if before)
        shapes |= {array.shape for array in before.values()} if fits and before else set()
    if not fits or not {array.shape for array in state.values()} <= shapes:
        raise ValueError(f"{name!r} has another form")
    for array in state.values():
        if array.dtype.kind not in "fiub" or not (np.abs(array.astype(np.float64)) <= _LARGEST).all():
            raise ValueError(f"{name!r} is not finite")


def _kept(strategy: Any, name: str) -> Any:
    """State of a strategy, or of an inner one, under its own name; None where there is none yet.

    Raises:
        ValueError: the name is none of an attribute.
    """
    *outer, last = name.split(".")
    for inner in outer:
        strategy = vars(strategy).get(inner)
        if not isinstance(strategy, Strategy):
            raise ValueError(f"{name!r} is nothing that a strategy keeps")
    of_class = getattr(type(strategy), last, None)  # methods and properties name no state
    if not last.isidentifier() or last.startswith("__") or hasattr(of_class, "__get__"):
        raise ValueError(f"{name!r} is nothing that a strategy keeps")
    return vars(strategy).get(last)


def _attributes(strategy: Strategy) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in vars(strategy).items() if name not in _SET_ANEW]


def _are_arrays(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, np.ndarray) for value in values)


def _set(strategy: Any, name: str, value: Any) -> None:
    """Set an existing attribute, of an inner strategy if the name has dots."""
    _kept(strategy, name)  # never one of a class, or of another object than a strategy
    *outer, last = name.split(".")
    for inner in outer:
        strategy = vars(strategy)[inner]
    vars(strategy)[last] = value
