"""Distinct states: leaves of one cluster are offered one object, kept, sent and counted once.

States are compared as objects, not by value: that costs nothing, and equal arrays may have different fates.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from fedge.states.averaging import State

T = TypeVar("T")


class Once(Generic[T]):
    """A function of states, computed once for each.

    It holds the states and their results as long as it lives: make one for one purpose, and let it go.
    """

    def __init__(self, function: Callable[[State], T]) -> None:
        """Remember results of `function`."""
        self._function = function
        self._known: dict[int, tuple[State, T]] = {}  # by id, which lasts as long as the state is held

    def __call__(self, state: State) -> T:
        """Cached result of the function for this state."""
        if id(state) not in self._known:
            self._known[id(state)] = (state, self._function(state))
        return self._known[id(state)][1]


class Distinct:
    """Several states, each of them once, in the order in which they came."""

    def __init__(self, states: Iterable[State] = ()) -> None:
        """Begin with these."""
        self._states: dict[int, State] = {}
        self.update(states)

    def update(self, states: Iterable[State]) -> None:
        """Take in those that are not there."""
        for state in states:
            self._states.setdefault(id(state), state)

    def __contains__(self, state: object) -> bool:
        return id(state) in self._states

    def __iter__(self) -> Iterator[State]:
        return iter(self._states.values())
