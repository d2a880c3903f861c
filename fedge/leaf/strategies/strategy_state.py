"""Saving and restoring the state of a Flower strategy between rounds.

Server optimisers keep moments (arrays by name: FedAdam, FedYogi, FedAdagrad; a list of arrays: FedAvgM),
adaptive clipping keeps a norm (a number), and wrappers, such as Flower's for privacy, keep a strategy. A
user's strategy may also keep single arrays, Flower's records, text, and lists and tables of numbers. If a
round changes an attribute of another type, a checkpoint would lose it, so it is refused before the run
(`unsaved_attribute`).

Settings are numbers, too, so they are saved and restored with the rest. In Flower's and Fedge's strategies
they must equal those at construction; in a user's strategy they may change. The minimum number of nodes must
not increase, because a round would then wait forever.
"""

import inspect
import json
import pickle
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedYogi, Strategy

from fedge.config.registers.option import shown
from fedge.states.averaging import State
from fedge.states.records import from_record, to_record

_SET_EACH_ROUND = ("current_arrays",)  # set on the strategy before every round
_OF_ROUND = frozenset({"client_learning_rate"})  # set before every round, too
_LIST, _SINGLE, _RECORD = "[]", "()", "{}"  # suffixes of names: lists of arrays, single arrays, records
_OF_NODES = frozenset(inspect.signature(FedAvg.__init__).parameters)  # node counts, record keys
_LARGEST = 1e150  # largest number saved: its square is finite
_LONGEST = 2**20  # characters of text, lists and tables saved as JSON
_KINDS = "fiub"  # dtype kinds of saved arrays
_PACKAGES = frozenset({"flwr", "fedge"})  # packages whose strategies never change their constructor arguments


@runtime_checkable
class ChecksItsNumbers(Protocol):
    """Strategies checking restored numbers beyond their form and size."""

    def refuse_numbers(self, numbers: Mapping[str, Any]) -> None:
        """Raise ValueError for numbers (by attribute) that no sequence of rounds can produce."""


def at_least_1d(array: np.ndarray) -> np.ndarray:
    """An entry of a model for strategies: a 0-d array as (1,).

    NumPy arithmetic turns 0-d arrays into scalars, which Flower's records do not accept.
    """
    return array if array.ndim else array.reshape(1)


def states_of(strategy: Strategy) -> dict[str, State]:
    """All arrays of a strategy and its inner strategies, by attribute."""
    states: dict[str, State] = {}
    for name, value in _attributes(strategy):
        if isinstance(value, Strategy):
            states |= {f"{name}.{inner}": state for inner, state in states_of(value).items()}
        else:
            states |= _as_state(name, value)
    return states


def _as_state(name: str, value: Any) -> dict[str, State]:
    """An attribute with arrays, under its name plus the suffix of its type; empty for other attributes."""
    if isinstance(value, ArrayRecord):
        value, name = dict(from_record(value)), name + _RECORD
    if isinstance(value, (np.generic, np.ndarray)) and value.dtype.kind in _KINDS:
        return {name + _SINGLE: {"": np.asarray(value)}}
    if (
        isinstance(value, Mapping)
        and _are_arrays(list(value.values()))
        and all(type(k) is str for k in value)
    ):
        return {name: value}
    if isinstance(value, list) and _are_arrays(value):
        return {name + _LIST: {str(number): array for number, array in enumerate(value)}}
    return {}


def numbers_of(strategy: Strategy) -> dict[str, Any]:
    """All numbers, texts, lists and tables of a strategy and its inner strategies, by attribute."""
    numbers: dict[str, Any] = {}
    for name, value in _attributes(strategy):
        if isinstance(value, Strategy):
            numbers |= {f"{name}.{inner}": number for inner, number in numbers_of(value).items()}
        elif type(value) in (bool, int, float) or (name not in _OF_NODES and _is_json(value)):
            numbers[name] = value
    return numbers


def _is_json(value: Any) -> bool:
    """Whether a value is text, a list or a table, and unchanged by a round trip through JSON."""
    if type(value) not in (str, list, dict):
        return False
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError, RecursionError):
        return False


def contents_of(strategy: Strategy) -> dict[str, Any]:
    """Content of every attribute of a strategy and its inner strategies, for `unsaved_attribute`."""
    contents: dict[str, Any] = {}
    for name, value in _attributes(strategy):
        if isinstance(value, Strategy):
            contents |= {f"{name}.{inner}": content for inner, content in contents_of(value).items()}
            continue
        try:
            contents[name] = pickle.dumps(value)
        except Exception:  # such as a local function, whose content cannot be compared
            contents[name] = None
    return contents


def unsaved_attribute(strategy: Strategy, before: Mapping[str, Any]) -> str:
    """The first attribute changed since `contents_of` and not saved in checkpoints; "" if none."""
    saved = set(map(_attribute_name, states_of(strategy))) | numbers_of(strategy).keys()
    current = contents_of(strategy)
    return next(
        (name for name in sorted(current) if current[name] != before.get(name) and name not in saved), ""
    )


def restore_strategy(strategy: Strategy, states: Mapping[str, State], numbers: Mapping[str, Any]) -> None:
    """Restore the results of `states_of` and `numbers_of` into a new strategy of the same class.

    Raises:
        ValueError: a number is impossible for this strategy, such as a larger minimum number of nodes.
    """
    for name, number in numbers.items():
        _refuse_number(name, number, _current_value(strategy, name))
    _refuse_by_strategy(strategy, numbers)
    for name, number in numbers.items():
        _set(strategy, name, number)
    for name, state in states.items():
        if name.endswith(_SINGLE):
            _set(strategy, name.removesuffix(_SINGLE), _writable(state[""])[()])
        elif name.endswith(_LIST):
            _set(strategy, name.removesuffix(_LIST), [_writable(array) for array in state.values()])
        elif name.endswith(_RECORD):
            _set(strategy, name.removesuffix(_RECORD), to_record(state))
        else:
            _set(strategy, name, {entry: _writable(array) for entry, array in state.items()})


def _writable(array: np.ndarray) -> np.ndarray:
    """An array for a strategy to change in place: itself, or a copy if it is read only."""
    return array if array.flags.writeable else array.copy()


def refuse_incompatible_state(
    strategy: Strategy, states: Mapping[str, State], numbers: Mapping[str, Any], model: State
) -> None:
    """Raise ValueError unless a strategy can hold these states and numbers, as `restore_strategy` requires.

    No value may be missing, and no unknown attribute may be added. Arrays must be finite, and as large as
    before or as an entry of the model; numbers must be finite or unchanged.

    Args:
        strategy: the strategy before it is restored.
        states: result of `states_of` in another process.
        numbers: result of `numbers_of` in another process.
        model: a model of the run.
    """
    restored, expected = set(map(_attribute_name, states)), set(map(_attribute_name, states_of(strategy)))
    missing = (numbers_of(strategy).keys() | expected) - restored - numbers.keys()
    if missing:
        raise ValueError(f"{sorted(missing)[0]!r} of {type(strategy).__name__} is missing")
    for name, number in numbers.items():
        _refuse_number(name, number, _current_value(strategy, name))
        _refuse_setting(strategy, name, number)
    _refuse_by_strategy(strategy, numbers)
    for name, state in states.items():
        _refuse_state(name, state, _current_value(strategy, _attribute_name(name)), model)
        _refuse_setting(strategy, _attribute_name(name), None)
    _refuse_moments(strategy, states, model)


def _refuse_by_strategy(strategy: Strategy, numbers: Mapping[str, Any]) -> None:
    """Raise ValueError for numbers ruled out by the strategy itself (`ChecksItsNumbers`)."""
    if isinstance(strategy, ChecksItsNumbers):
        strategy.refuse_numbers(numbers)


def _refuse_setting(strategy: Strategy, name: str, value: Any) -> None:
    """Raise ValueError for a changed setting or an unknown attribute of Flower's or Fedge's classes."""
    holder, last = _holder(strategy, name)
    settings = _settings_of(type(holder))
    if settings is None:
        return
    if last not in vars(holder):
        raise ValueError(f"{name!r} is nothing that {type(holder).__name__} keeps")
    if last in settings and value != vars(holder)[last]:
        raise ValueError(f"{name!r} must be {shown(vars(holder)[last])}, but is {shown(value)}")


@lru_cache
def _settings_of(kind: type[Strategy]) -> frozenset[str] | None:
    """Parameters of Flower's and Fedge's classes, except numbers of nodes; None for any other class."""
    if kind.__module__.partition(".")[0] not in _PACKAGES:
        return None
    initialisers = [vars(base)["__init__"] for base in kind.__mro__[:-1] if "__init__" in vars(base)]
    return (
        frozenset(name for init in initialisers for name in inspect.signature(init).parameters)
        - _OF_NODES
        - _OF_ROUND
    )


def _refuse_moments(strategy: Strategy, states: Mapping[str, State], model: State, prefix: str = "") -> None:
    """Raise ValueError for moments of Flower's server optimisers that do not fit one model."""
    for name, value in _attributes(strategy):
        if isinstance(value, Strategy):
            _refuse_moments(value, states, model, f"{prefix}{name}.")
    if isinstance(strategy, FedAdagrad | FedAdam | FedYogi):
        first, second = (states.get(f"{prefix}{name}", {}) for name in ("m_t", "v_t"))
        forms = [{name: array.shape for name, array in state.items()} for state in (first, second)]
        model_shapes = {name: at_least_1d(array).shape for name, array in model.items()}
        kinds = {array.dtype.kind for state in (first, second) for array in state.values()}
        if forms[0] != forms[1] or not forms[0].items() <= model_shapes.items() or not kinds <= {"f"}:
            raise ValueError("'m_t' and 'v_t' must both be floats of the model's entries")
        if any((array < 0).any() for array in second.values()):
            raise ValueError("'v_t', a mean of squares, must not be negative")


def _attribute_name(name: str) -> str:
    """The name of an attribute, without the suffix of its type."""
    return name[:-2] if name.endswith((_LIST, _SINGLE, _RECORD)) else name


def _refuse_number(name: str, number: Any, current: Any) -> None:
    """Raise ValueError unless a number, a text, a list or a table can replace `current`."""
    if type(number) in (str, list, dict) and name.rpartition(".")[2] not in _OF_NODES:
        if not isinstance(current, type(number) | None):
            raise ValueError(f"{name!r} cannot be {type(number).__name__}")
        if number != current:
            _refuse_json(name, number)
        return
    fits = current is None or isinstance(current, (bool, int, float, np.generic))
    if (
        type(number) not in (bool, int, float)
        or not fits
        or (type(current) is bool) != (type(number) is bool)
    ):
        raise ValueError(f"{name!r} cannot be {type(number).__name__}")
    if number != current and not abs(number) <= _LARGEST:
        raise ValueError(f"{name!r} is not finite")
    if name.rpartition(".")[2] in _OF_NODES and not 0 <= number <= max(current or 0, 1):
        raise ValueError(f"{name!r} cannot be {number:g}, more than {max(current or 0, 1):g}")


def _refuse_json(name: str, value: Any) -> None:
    """Raise ValueError for a text, list or table that is too long or has infinite or NaN numbers."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{name!r} is not finite, or cannot be written as JSON") from error
    if len(text) > _LONGEST:
        raise ValueError(f"{name!r} is longer than {_LONGEST} characters")


def _refuse_state(name: str, state: State, current: Any, model: State) -> None:
    """Raise ValueError unless arrays can replace `current`."""
    shapes = {
        form.shape for array in model.values() for form in (array, at_least_1d(array))
    }  # as sent, as seen
    if _attribute_name(name).rpartition(".")[2] in _OF_NODES:
        raise ValueError(f"{name!r} is a number")
    if name.endswith(_SINGLE):
        fits = current is None or isinstance(current, (int, float, np.generic, np.ndarray))
        fits = fits and list(state) == [""]
        shapes |= {(), np.shape(current), (sum(array.size for array in model.values()),)} if fits else set()
    elif name.endswith(_LIST):
        fits = isinstance(current, list | None) and list(state) == [str(i) for i in range(len(state))]
        shapes |= {array.shape for array in current or ()} if fits else set()
    else:
        current = from_record(current) if isinstance(current, ArrayRecord) else current
        fits = isinstance(current, Mapping | None) and (not current or current.keys() == state.keys())
        fits = fits and all(array.shape == current[entry].shape for entry, array in state.items() if current)
        shapes |= {array.shape for array in current.values()} if fits and current else set()
    if not fits or not {array.shape for array in state.values()} <= shapes:
        raise ValueError(f"{name!r} has another form")
    for array in state.values():
        if array.dtype.kind not in "fiub" or not (np.abs(array.astype(np.float64)) <= _LARGEST).all():
            raise ValueError(f"{name!r} is not finite")


def _current_value(strategy: Any, name: str) -> Any:
    """The value of an attribute of a strategy or an inner strategy; None if not set yet.

    Raises:
        ValueError: there is no attribute of this name.
    """
    holder, last = _holder(strategy, name)
    class_attribute = getattr(type(holder), last, None)  # methods and properties hold no state
    if not last.isidentifier() or last.startswith("__") or hasattr(class_attribute, "__get__"):
        raise ValueError(f"{name!r} is nothing that a strategy keeps")
    return vars(holder).get(last)


def _holder(strategy: Any, name: str) -> tuple[Strategy, str]:
    """The (inner) strategy holding an attribute with a dotted name, and the attribute's last name.

    Raises:
        ValueError: there is no such strategy.
    """
    *outer, last = name.split(".")
    for inner in outer:
        strategy = vars(strategy).get(inner)
        if not isinstance(strategy, Strategy):
            raise ValueError(f"{name!r} is nothing that a strategy keeps")
    return strategy, last


def _attributes(strategy: Strategy) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in vars(strategy).items() if name not in _SET_EACH_ROUND]


def _are_arrays(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, np.ndarray) for value in values)


def _set(strategy: Any, name: str, value: Any) -> None:
    """Set an existing attribute, of an inner strategy if the name has dots."""
    _current_value(strategy, name)  # never a class attribute, or one of an object other than a strategy
    holder, last = _holder(strategy, name)
    vars(holder)[last] = value
