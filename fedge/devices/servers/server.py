"""A server on the virtual clock: its model, its rule, and the rule's state."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedge.config.registers.failing import OWN_ERRORS, own_error
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import SERVER_RULES
from fedge.devices.servers.arrivals import Arrival, Memory, Rule
from fedge.devices.servers.model_facts import ModelFacts
from fedge.devices.servers.private import PrivateSum
from fedge.devices.servers.vectors import Version


class DeviceServer:
    """A leaf over its devices, or the cloud over its leaves.

    Rules move models by differences, and so can move BatchNorm's running variances below zero, where averages
    never lead. A variance therefore stays within the range of the model's own and the arrived ones for the
    new model; averaging rules are not affected.

    Attributes:
        version: its model.
        number: its number of versions; staleness is counted in these.
        memory: its state between arrivals.
        told: its rule, as errors name it: the option, and its value.
        put_aside: keeps the vector of a version, (P,), in memory or in a file.
        range: (V,) smallest and largest variances among the arrivals since the last version; None of none.
    """

    def __init__(
        self,
        version: Version,
        rule: Rule,
        arguments: Mapping[str, Any],
        children: int,
        facts: ModelFacts | None = None,
        private: PrivateSum | None = None,
        told: str = SERVER_RULES.option,
    ) -> None:
        """Begin with a model.

        Args:
            version: the model.
            rule: of `fedge.devices.servers.rules`, or the user's. If it has a function `seconds_of`, (memory,
                arguments) → virtual seconds, gives the server's time for the next arrival.
            arguments: of the rule, by keyword.
            children: how many bring something.
            facts: of the model, for rules in need of more than vectors.
            private: adds noise to releases; None for no privacy.
            told: the rule, as errors name it.
        """
        self.told = told
        self.version = version
        self.number = 0
        self.memory = Memory(children, facts=facts, private=private)
        self._given = rule, arguments
        self._rule = rule
        self._arguments = dict(arguments)
        self._counters: tuple[int, Mapping[str, np.ndarray]] | None = None  # of whom
        self.range: tuple[np.ndarray, np.ndarray] | None = None
        self.put_aside: Callable[[np.ndarray], np.ndarray] = _in_memory

    def like(self, version: Version, children: int, number: int) -> "DeviceServer":
        """A server with the same rule, started with a model; its streams are those of a number."""
        facts = self.memory.facts
        own = None if facts is None else replace(facts, server=facts.server + number)
        made = DeviceServer(version, *self._given, children, own, told=self.told)
        made.put_aside = self.put_aside
        return made

    def take(self, arrival: Arrival | None) -> bool:
        """Take in an arrival, None for the end of a round; tell whether there is a new model.

        Counters become those of the child with the lowest number among those since the last version.

        Raises:
            ConfigError: a rule of the user's returned no model, or raised an exception.
        """
        if arrival is not None and len(self.version.layout.variances):
            self._widen(arrival.end[self.version.layout.variances])
        is_first = arrival is not None and (self._counters is None or arrival.child < self._counters[0])
        if arrival is not None and is_first and self.memory.private is None:  # no noise covers a counter
            self._counters = arrival.child, arrival.counters
        found = self._asked(arrival)
        if found is None:
            return False
        found = self._checked(found)
        if self.range is not None:
            found = within(found, self.version, *self.range)
        self.change(found, self._counters[1] if self._counters else {})
        self.number += 1
        self._counters = self.range = None
        return True

    def _asked(self, arrival: Arrival | None) -> np.ndarray | None:
        """Result of the rule for an arrival."""
        try:
            return self._rule(self.version.vector, self.memory, arrival, **self._arguments)
        except ConfigError:
            raise
        except OWN_ERRORS as error:
            raise ConfigError(
                f"{self.told} raised {own_error(error)} after version {self.number}; fix it"
            ) from error

    @property
    def seconds_of_next(self) -> float:
        """Virtual seconds for the next arrival."""
        seconds_of = getattr(self._rule, "seconds_of", None)
        return 0.0 if seconds_of is None else float(seconds_of(self.memory, self._arguments))

    def _widen(self, variances: np.ndarray) -> None:
        """Take the variances (V,) of an arrival into the range."""
        low, high = self.range or (variances, variances)
        self.range = np.minimum(low, variances), np.maximum(high, variances)

    def change(self, vector: np.ndarray, counters: Mapping[str, np.ndarray]) -> None:
        """Continue with a model (P,) not counted as a version."""
        vector = vector.astype(self.version.vector.dtype)
        vector.flags.writeable = False
        vector = self.put_aside(vector)
        self.version = Version(self.version.layout, vector, counters or self.version.counters)

    def _checked(self, found: np.ndarray) -> np.ndarray:
        """A rule's result once checked, or ConfigError."""
        shape = self.version.vector.shape
        if not isinstance(found, np.ndarray) or found.shape != shape or found.dtype.kind != "f":
            raise ConfigError(
                f"{self.told} must return the new model as floats of shape {shape}, or None, but "
                f"returned {shown(found)}; fix it"
            )
        return found

    @property
    def counters(self) -> tuple[int, Mapping[str, np.ndarray]] | None:
        """Device and its counters (integers of any shape) for the next version; None before the first."""
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


def _in_memory(vector: np.ndarray) -> np.ndarray:
    """A vector (P,) in place."""
    return vector


def within(found: np.ndarray, before: Version, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """A model (P,) with variances between those of the model before and low and high, (V,) each."""
    at = before.layout.variances
    own = before.vector[at]
    kept = found.copy()
    kept[at] = np.clip(found[at], np.minimum(low, own), np.maximum(high, own))
    return kept
