"""Distinct states: leaves of one cluster share one object, which is kept, sent and counted once.

States are compared by identity, not by value: that costs nothing, and equal arrays may diverge later.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from fedge.states.averaging import State

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
