"""Models as flat vectors, in which servers on the virtual clock compute.

All floating-point entries form one array (P,); other entries (step counters) are kept separately, beside
it, as in all averages (`fedge.states.averaging`).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from flwr.app import ArrayRecord

from fedge.states.averaging import State
from fedge.states.records import to_record


class Layout:
    """Positions of a state's entries in a vector.

    Attributes:
        dtype: dtype of vectors.
        variances: (V,) int64, positions of non-negative numbers (BatchNorm's variances).
        variance_names: names of the entries with these numbers.
    """

    def __init__(self, state: State, variances: Collection[str] = ()) -> None:
        """Layout for states with the entries, shapes and dtypes of this one.

        Args:
            state: any state of the model.
            variances: names of non-negative entries.
        """
        self._names = tuple(state)
        self._floating = {n: a.shape for n, a in state.items() if np.issubdtype(a.dtype, np.floating)}
        self._dtypes = {name: array.dtype for name, array in state.items()}
        kinds = {self._dtypes[name] for name in self._floating}
        self.variance_names = tuple(name for name in self._floating if name in variances)
        self.dtype = np.result_type(np.float32, *kinds)  # float32 stays float32: copies cost memory
        self.variances = np.flatnonzero(self.places(variances))

    def vector(self, state: State) -> np.ndarray:
        """The floating entries of a state as one array (P,) of `dtype`, read-only."""
        parts = [state[name].reshape(-1) for name in self._floating]
        vector = np.concatenate(parts, dtype=self.dtype) if parts else np.empty(0, self.dtype)
        vector.flags.writeable = False
        return vector

    def places(self, names: Collection[str]) -> np.ndarray:
        """(P,) bool: which numbers of a vector belong to these entries."""
        of_entry = [np.full(int(np.prod(s, dtype=np.int64)), n in names) for n, s in self._floating.items()]
        return np.concatenate([np.zeros(0, bool), *of_entry])

    def counters(self, state: State) -> dict[str, np.ndarray]:
        """Copies of the other entries, in their shapes and dtypes."""
        return {name: np.array(state[name]) for name in self._names if name not in self._floating}

    def state(self, vector: np.ndarray, counters: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The state of a vector (P,) and counters; where possible its entries are views of the vector."""
        parts: dict[str, np.ndarray] = dict(counters)
        offset = 0
        for name, shape in self._floating.items():
            size = int(np.prod(shape, dtype=np.int64))
            entry = vector[offset : offset + size].reshape(shape)
            parts[name] = entry.astype(self._dtypes[name], copy=False)
            offset += size
        return {name: parts[name] for name in self._names}


@dataclass(frozen=True, eq=False)
class Version:
    """A server's model, shared by all jobs started from it.

    Attributes:
        layout: layout of the vector.
        vector: (P,) floating-point entries, read-only.
        counters: entries other than floating point.
    """

    layout: Layout = field(repr=False)
    vector: np.ndarray
    counters: Mapping[str, np.ndarray]

    @cached_property
    def state(self) -> State:
        """The model as a state."""
        return self.layout.state(self.vector, self.counters)

    @cached_property
    def record(self) -> ArrayRecord:
        """The model in the form of messages."""
        return to_record(self.state)

    @property
    def nbytes(self) -> int:
        """Bytes of all entries."""
        return sum(array.nbytes for array in self.state.values())


def version_of(state: State, variances: Collection[str] = ()) -> Version:
    """A state as a version; `variances` are the names of non-negative entries."""
    layout = Layout(state, variances)
    return Version(layout, layout.vector(state), layout.counters(state))
