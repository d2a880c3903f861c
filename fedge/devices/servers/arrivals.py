"""Arrivals at a server of the virtual clock, its memory between them, and the form of its rule."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedge.config.registers.option import shown
from fedge.devices.servers.model_facts import ModelFacts

_KINDS = "fiub"  # of arrays in a file


@dataclass(frozen=True, eq=False)
class Arrival:
    """Contribution of a server's child: a device's trained model, or a leaf's own.

    Attributes:
        child: partition id of the device, or number of the leaf.
        staleness: τ, the server's versions since the child's start.
        start: (P,) its starting model; the server's own vector object if unchanged.
        end: (P,) the child's trained model.
        weight: its training windows.
        share: of its steps taken, 0..1; below 1 only where the rule has the trait `PARTIAL`.
        counters: its entries of other types than floating point.
    """

    child: int
    staleness: int
    start: np.ndarray
    end: np.ndarray
    weight: float = 1.0
    counters: Mapping[str, np.ndarray] = field(default_factory=dict)
    share: float = 1.0

    @property
    def delta(self) -> np.ndarray:
        """Δ = end − start, (P,) float64."""
        return np.subtract(self.end, self.start, dtype=np.float64)


@dataclass(slots=True)  # another attribute would be lost in a checkpoint
class Memory:
    """Memory of a server between arrivals; saved in checkpoints.

    Attributes:
        children: how many the server has.
        buffer: arrivals waiting for others.
        arrays: by names of the rule's choice, of any shape and dtype.
        facts: of the model, the same throughout; None before a run, where rules are tried out.
        private: adds noise to releases; None without privacy.
    """

    children: int
    buffer: list[Arrival] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    facts: ModelFacts | None = None
    private: "Release | None" = None


class Release(Protocol):
    """Noise of a server's releases, as `fedge.devices.servers.private.PrivateSum` adds it."""

    def released(
        self, memory: Memory, arrivals: Sequence[Arrival], weights: Sequence[float], step: float
    ) -> np.ndarray:
        """Weighted sum of the arrivals' updates, (P,) float64, with noise."""


Rule = Callable[..., "np.ndarray | None"]


def unkept(memory: Memory, like: np.ndarray) -> str:
    """Fault of a memory with something that no checkpoint gives back, in words; "" for none.

    Args:
        memory: of a server, after its rule was called.
        like: (P,) the server's model.

    >>> unkept(Memory(2, [0.5]), np.zeros(1))
    'must keep arrivals in memory.buffer, and its own arrays in memory.arrays, but keeps 0.5 in memory.buffer'
    """
    if not isinstance(memory.buffer, list) or not isinstance(memory.arrays, dict):
        return "must keep a list in memory.buffer and a table in memory.arrays, but has put others there"
    for each in memory.buffer:
        if not isinstance(each, Arrival):
            return (
                f"must keep arrivals in memory.buffer, and its own arrays in memory.arrays, but keeps "
                f"{shown(each)} in memory.buffer"
            )
        if fault := _fault_of(each, like):
            return f"must keep arrivals as they came, or others of their form, in memory.buffer, but {fault}"
    for name, array in memory.arrays.items():
        if type(name) is not str or not isinstance(array, np.ndarray) or array.dtype.kind not in _KINDS:
            return (
                f"must keep arrays of numbers in memory.arrays, which checkpoints hold, but keeps "
                f"{shown(array)} as {shown(name)}"
            )
    return ""


def _fault_of(arrival: Arrival, like: np.ndarray) -> str:
    """Why an arrival in a buffer would not come back from a checkpoint; "" if it would."""
    for what, vector in (("start", arrival.start), ("end", arrival.end)):
        if not isinstance(vector, np.ndarray) or (vector.shape, vector.dtype) != (like.shape, like.dtype):
            return f"the {what} of one is {shown(vector)}, and the model {like.dtype} {like.shape}"
    for what, count in (("child", arrival.child), ("staleness", arrival.staleness)):
        if type(count) is not int or count < 0:
            return f"the {what} of one is {shown(count)}"
    for what, value, most in (("weight", arrival.weight, math.inf), ("share", arrival.share, 1.0)):
        if not isinstance(value, int | float) or not 0 <= value <= most or math.isinf(value):
            return f"the {what} of one is {shown(value)}"
    return ""
