"""Distinct states: leaves of one cluster share one object, which is kept and sent once.

States are compared by identity, not by value: that costs nothing, and equal arrays may diverge later. Bytes
in tables are counted by content (`DistinctContents`): after a resume, equal models are several objects.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import numpy as np

from fedge.states.averaging import State
from fedge.states.lazy_state import RemoteState

T = TypeVar("T")


class StateCache(Generic[T]):
    """A function of states, computed once for each.

    It keeps states and results in memory; so use one object per purpose, and drop it afterwards.
    """

    def __init__(self, function: Callable[[State], T]) -> None:
        """Remember results of `function`."""
        self._function = function
        self._cache: dict[int, tuple[State, T]] = {}  # by id, which lasts as long as the state is held

    def __call__(self, state: State) -> T:
        """Cached result of the function for this state."""
        if id(state) not in self._cache:
            self._cache[id(state)] = (state, self._function(state))
        return self._cache[id(state)][1]


class DistinctStates:
    """Several states, each listed once, in order of first appearance."""

    def __init__(self, states: Iterable[State] = ()) -> None:
        """Start with some states."""
        self._states: dict[int, State] = {}
        self.update(states)

    def update(self, states: Iterable[State]) -> None:
        """Add the states not yet listed."""
        for state in states:
            self._states.setdefault(id(state), state)

    def __contains__(self, state: object) -> bool:
        return id(state) in self._states

    def __iter__(self) -> Iterator[State]:
        return iter(self._states.values())


_MOST_SAMPLES = 64  # numbers of an entry by which most states are told apart


class DistinctContents:
    """Several states, equal ones listed once, in order of first appearance.

    The content of another process's state is unknown: it equals no other.
    """

    def __init__(self, states: Iterable[State] = ()) -> None:
        """Start with some states."""
        self._states: list[State] = []
        self._by_samples: dict[int, list[State]] = {}
        self.update(states)

    def update(self, states: Iterable[State]) -> None:
        """Add the states whose content is not yet listed."""
        for state in states:
            if state not in self:
                self._states.append(state)
                self._by_samples.setdefault(_sample_key(state), []).append(state)

    def __contains__(self, state: State) -> bool:
        candidates = self._by_samples.get(_sample_key(state), ()) if self._states else ()
        return any(_has_same_content(state, other) for other in candidates)

    def __iter__(self) -> Iterator[State]:
        return iter(self._states)


def _sample_key(state: State) -> int:
    """Checksum of some numbers of every entry; equal states have equal ones."""
    if isinstance(state, RemoteState):
        return id(state)
    key = 0
    for name in sorted(state):
        flat = np.asarray(state[name]).reshape(-1)
        key = zlib.crc32(
            flat[:: max(1, flat.size // _MOST_SAMPLES)].tobytes(), zlib.crc32(name.encode(), key)
        )
    return key


def _has_same_content(state: State, other: State) -> bool:
    """Whether two states have the same entries, bit by bit; a NaN is itself."""
    if state is other:
        return True
    if state.keys() != other.keys() or isinstance(state, RemoteState) or isinstance(other, RemoteState):
        return False
    pairs = ((np.asarray(state[name]), np.asarray(other[name])) for name in state)
    return all(
        a.dtype == b.dtype and a.shape == b.shape and np.array_equal(_bits(a), _bits(b)) for a, b in pairs
    )


def _bits(array: np.ndarray) -> np.ndarray:
    """The bytes of an array, in one axis."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
