"""States without memory of their own: entries computed on access, or kept by another process."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from fedge.states.averaging import State

Kinds = dict[str, tuple[np.dtype, tuple[int, ...]]]


class LazyState(Mapping[str, np.ndarray]):
    """A state whose entries are computed on every access and not kept.

    Attributes:
        kinds: name → dtype and shape of the entry.
    """

    def __init__(self, kinds: Kinds, make: Callable[[str], np.ndarray]) -> None:
        """Store the kinds of entries, and `make`, which computes the entry of a name."""
        self.kinds = kinds
        self._make = make

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.kinds:
            raise KeyError(name)
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.kinds)

    def __len__(self) -> int:
        return len(self.kinds)


class RemoteState(Mapping[str, np.ndarray]):
    """A state kept by another process and only named here; its entries are zeros of the same kinds.

    Attributes:
        name: its name there.
    """

    def __init__(self, name: str, like: State) -> None:
        """Name a state with the entries of another."""
        self.name = name
        self._kinds = kinds_of(like)

    def __getitem__(self, entry: str) -> np.ndarray:
        dtype, shape = self._kinds[entry]
        return np.broadcast_to(np.zeros((), dtype), shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


def kinds_of(state: State) -> Kinds:
    """Name → dtype and shape of a state's entries, in order, without computing them.

    >>> kinds_of({"w": np.zeros((2, 3))})
    {'w': (dtype('float64'), (2, 3))}
    """
    if isinstance(state, LazyState):
        return state.kinds
    return {name: (array.dtype, array.shape) for name, array in state.items()}


def computed_state(state: State) -> State:
    """A state with all entries computed; other states are unchanged."""
    return dict(state) if isinstance(state, LazyState) else state
