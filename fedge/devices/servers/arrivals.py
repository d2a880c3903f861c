"""Arrivals at a server on the virtual clock, its memory between them, and their form in checkpoints."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedge.config.registers.option import shown
from fedge.devices.servers.model_facts import ModelFacts

_KINDS = "fiub"  # kinds of arrays that a file can hold


@dataclass(frozen=True, eq=False)
class Arrival:
    """Contribution of a server's child: a device's trained model, or the model of a leaf or region.

    Attributes:
        child: partition id of a device, or number of a server.
        staleness: τ, the number of the server's versions since the child's start.
        start: (P,) the child's starting model; the server's own vector object if unchanged.
        end: (P,) the child's trained model.
        weight: training windows of the child.
        share: share of its steps taken by a device, 0..1; below 1 only for rules with the trait `PARTIAL`.
        counters: entries of the trained model other than floating point.
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


@dataclass(slots=True)  # other attributes would be lost in a checkpoint
class Memory:
    """State of a server between arrivals; saved in checkpoints.

    Attributes:
        children: number of the server's children.
        buffer: arrivals waiting for others.
        arrays: arrays of the rule, under names of its choice, of any shape and dtype.
        facts: facts about the model, constant in a run; None in trial calls before it.
        private: adds noise to released sums; None without privacy.
    """

    children: int
    buffer: list[Arrival] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    facts: ModelFacts | None = None
    private: "Release | None" = None


class Release(Protocol):
    """Adds noise to a server's released sums, as `fedge.devices.servers.private_buffer.PrivateSum` does."""

    def released(
        self, memory: Memory, arrivals: Sequence[Arrival], weights: Sequence[float], step: float
    ) -> np.ndarray:
        """Weighted sum of the arrivals' updates, (P,) float64, with noise."""


Rule = Callable[..., "np.ndarray | None"]


def unrestorable_entry(memory: Memory, like: np.ndarray) -> str:
    """Description of something in a memory that a checkpoint could not restore; "" if all is fine.

    Args:
        memory: memory of a server, after a call of its rule.
        like: (P,) model of the server.

    >>> unrestorable_entry(Memory(2, [0.5]), np.zeros(1))
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
        if problem := _arrival_problem(each, like):
            return (
                f"must keep arrivals as they came, or others of their form, in memory.buffer, but {problem}"
            )
    for name, array in memory.arrays.items():
        if type(name) is not str or not isinstance(array, np.ndarray) or array.dtype.kind not in _KINDS:
            return (
                f"must keep arrays of numbers in memory.arrays, which checkpoints hold, but keeps "
                f"{shown(array)} as {shown(name)}"
            )
    return ""


def _arrival_problem(arrival: Arrival, like: np.ndarray) -> str:
    """Why a checkpoint could not restore a buffered arrival; "" if it could."""
    for field_name, vector in (("start", arrival.start), ("end", arrival.end)):
        if not isinstance(vector, np.ndarray) or (vector.shape, vector.dtype) != (like.shape, like.dtype):
            return f"the {field_name} of one is {shown(vector)}, and the model {like.dtype} {like.shape}"
    for field_name, count in (("child", arrival.child), ("staleness", arrival.staleness)):
        if type(count) is not int or count < 0:
            return f"the {field_name} of one is {shown(count)}"
    for field_name, value, most in (("weight", arrival.weight, math.inf), ("share", arrival.share, 1.0)):
        if not isinstance(value, int | float) or not 0 <= value <= most or math.isinf(value):
            return f"the {field_name} of one is {shown(value)}"
    return ""
