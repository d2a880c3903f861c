"""A server on the virtual clock: its model, the rule by which it changes, what it keeps in between."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedge.config.option import ConfigError, shown
from fedge.devices.rules import Arrival, Memory, Rule
from fedge.devices.vectors import Version


class Server:
    """A leaf over its devices, or the cloud over its leaves.

    Attributes:
        version: its model.
        number: how many it has made; staleness is counted in these.
        memory: what it keeps between arrivals.
    """

    def __init__(self, version: Version, rule: Rule, arguments: Mapping[str, Any], children: int) -> None:
        """Begin with a model.

        Args:
            version: the model.
            rule: of `fedge.devices.rules`, or the user's.
            arguments: of the rule, by keyword.
            children: how many bring something.
        """
        self.version = version
        self.number = 0
        self.memory = Memory(children)
        self._rule = rule
        self._arguments = dict(arguments)
        self._counters: tuple[int, Mapping[str, np.ndarray]] | None = None  # of whom

    def take(self, arrival: Arrival | None) -> bool:
        """Take in an arrival, None for the end of a round; tell whether there is a new model.

        Counters become those of the child with the lowest number among those since the last version.

        Raises:
            ConfigError: a rule of the user's returned no model.
        """
        if arrival is not None and (self._counters is None or arrival.child < self._counters[0]):
            self._counters = arrival.child, arrival.counters
        found = self._rule(self.version.vector, self.memory, arrival, **self._arguments)
        if found is None:
            return False
        self.change(self._checked(found), self._counters[1] if self._counters else {})
        self.number += 1
        self._counters = None
        return True

    def change(self, vector: np.ndarray, counters: Mapping[str, np.ndarray]) -> None:
        """Go on with a model (P,) that is not counted as a version of its own."""
        vector = vector.astype(self.version.vector.dtype)
        vector.flags.writeable = False
        self.version = Version(self.version.layout, vector, counters or self.version.counters)

    def _checked(self, found: np.ndarray) -> np.ndarray:
        """Return what a rule returned, or raise ConfigError."""
        shape = self.version.vector.shape
        if not isinstance(found, np.ndarray) or found.shape != shape or found.dtype.kind != "f":
            raise ConfigError(
                f"asynchrony.rule must return the new model as floats of shape {shape}, or None, but "
                f"returned {shown(found)}; mend it"
            )
        return found

    @property
    def counters(self) -> tuple[int, Mapping[str, np.ndarray]] | None:
        """Whose counters the next version gets, and they (integers of any shape); None before the first."""
        return self._counters

    def restore(
        self,
        version: Version,
        number: int,
        memory: Memory,
        counters: tuple[int, Mapping[str, np.ndarray]] | None,
    ) -> None:
        """Go on where a checkpoint was made; counters are integers of any shape."""
        self.version, self.number, self.memory, self._counters = version, number, memory, counters
