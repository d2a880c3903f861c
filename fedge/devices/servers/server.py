"""A server on the virtual clock: its model, its rule, and the rule's state."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedge.config.registers.failing import own_error, own_errors
from fedge.config.registers.option import ConfigError, shown
from fedge.config.registers.parts import SERVER_RULES
from fedge.devices.servers.arrivals import Arrival, Memory, Rule
from fedge.devices.servers.model_facts import ModelFacts
from fedge.devices.servers.private_buffer import PrivateSum
from fedge.devices.servers.vectors import Version


class DeviceServer:
    """A leaf above its devices, or a server above other servers.

    Rules add differences to models, and so, unlike averages, could make running variances of BatchNorm
    negative. Variances of a new model are therefore clipped to the range of the previous model's and the
    arrivals' variances, those kept in the buffer for several versions included; averaging rules are not
    affected.

    Attributes:
        version: current model.
        number: number of versions so far; the unit of staleness.
        memory: state between arrivals.
        rule_label: the rule as errors name it: option and value.
        store_vector: stores the vector of a version, (P,), in memory or in a file.
        range: (V,) smallest and largest variances of arrivals since the last version, and of those kept from
            before; None without any.
    """

    def __init__(
        self,
        version: Version,
        rule: Rule,
        arguments: Mapping[str, Any],
        children: int,
        facts: ModelFacts | None = None,
        private: PrivateSum | None = None,
        rule_label: str = SERVER_RULES.option,
    ) -> None:
        """Start with a model.

        Args:
            version: starting model.
            rule: one of `fedge.devices.servers.rules`, or the user's. It may have a function
                `seconds_of`, (memory, arguments) → virtual seconds for the next arrival.
            arguments: keyword arguments of the rule.
            children: number of children.
            facts: facts about the model, for rules needing more than vectors.
            private: adds noise to released sums; None without privacy.
            rule_label: the rule, as errors name it.
        """
        self.rule_label = rule_label
        self.version = version
        self.number = 0
        self.memory = Memory(children, facts=facts, private=private)
        self._rule_and_arguments = rule, arguments
        self._rule = rule
        self._arguments = dict(arguments)
        self._counters: tuple[int, Mapping[str, np.ndarray]] | None = None  # child, counters
        self.range: tuple[np.ndarray, np.ndarray] | None = None
        self.store_vector: Callable[[np.ndarray], np.ndarray] = _in_memory

    def like(self, version: Version, children: int, number: int) -> "DeviceServer":
        """A new server with the same rule, started from a model; `number` selects its random streams."""
        server = DeviceServer(version, *self._rule_and_arguments, children, rule_label=self.rule_label)
        server.store_vector = self.store_vector
        server.use_streams(self, number)
        return server

    def use_streams(self, first: "DeviceServer", number: int) -> None:
        """Use the random streams of server `number`, 0, 1, …, of several like `first`, which has number 0."""
        facts = first.memory.facts
        self.memory.facts = None if facts is None else replace(facts, server=facts.server + number)

    def take(self, arrival: Arrival | None) -> bool:
        """Process an arrival, or None for the end of a round; returns whether there is a new model.

        Counters are taken from the child with the lowest number since the last version.

        Raises:
            ConfigError: a user's rule raised an exception, or returned no model.
        """
        if arrival is not None and len(self.version.layout.variances):
            self._widen(arrival.end[self.version.layout.variances])
        is_first = arrival is not None and (self._counters is None or arrival.child < self._counters[0])
        if arrival is not None and is_first and self.memory.private is None:  # noise would not hide a counter
            self._counters = arrival.child, arrival.counters
        updated = self._call_rule(arrival)
        if updated is None:
            return False
        updated = self._require_model(updated)
        if self.range is not None:
            updated = clip_variances(updated, self.version, *self.range)
        self.change(updated, self._counters[1] if self._counters else {})
        self.number += 1
        self._counters = self.range = None
        self._widen_by_kept_arrivals()
        return True

    def _call_rule(self, arrival: Arrival | None) -> np.ndarray | None:
        """Result of the rule for an arrival, or for the end of a round."""
        try:
            return self._rule(self.version.vector, self.memory, arrival, **self._arguments)
        except ConfigError:
            raise
        except own_errors() as error:
            raise ConfigError(
                f"{self.rule_label} raised {own_error(error)} after version {self.number}; fix it"
            ) from error

    @property
    def seconds_of_next(self) -> float:
        """Virtual seconds taken by the rule for the next arrival."""
        seconds_of = getattr(self._rule, "seconds_of", None)
        return 0.0 if seconds_of is None else float(seconds_of(self.memory, self._arguments))

    def _widen(self, variances: np.ndarray) -> None:
        """Extend the range by the variances (V,) of an arrival."""
        low, high = self.range or (variances, variances)
        self.range = np.minimum(low, variances), np.maximum(high, variances)

    def _widen_by_kept_arrivals(self) -> None:
        """Extend the range by arrivals kept for the next version; FedRevive's teachers add nothing."""
        variances = self.version.layout.variances
        for kept in self.memory.buffer if len(variances) else ():
            if isinstance(kept, Arrival) and kept.start is not kept.end:  # a teacher has no update
                self._widen(kept.end[variances])

    def change(self, vector: np.ndarray, counters: Mapping[str, np.ndarray]) -> None:
        """Replace the model by another (P,), without counting a version."""
        vector = vector.astype(self.version.vector.dtype)
        vector.flags.writeable = False
        vector = self.store_vector(vector)
        self.version = Version(self.version.layout, vector, counters or self.version.counters)

    def _require_model(self, updated: np.ndarray) -> np.ndarray:
        """The result of a rule, or ConfigError if it is invalid."""
        shape = self.version.vector.shape
        if not isinstance(updated, np.ndarray) or updated.shape != shape or updated.dtype.kind != "f":
            raise ConfigError(
                f"{self.rule_label} must return the new model as floats of shape {shape}, or None, but "
                f"returned {shown(updated)}; fix it"
            )
        return updated

    @property
    def counters(self) -> tuple[int, Mapping[str, np.ndarray]] | None:
        """Child and counters (integers of any shape) for the next version; None before the first arrival."""
        return self._counters

    def restore(
        self,
        version: Version,
        number: int,
        memory: Memory,
        counters: tuple[int, Mapping[str, np.ndarray]] | None,
    ) -> None:
        """Restore the state of a checkpoint; counters are integers of any shape."""
        self.version, self.number, self.memory, self._counters = version, number, memory, counters


def _in_memory(vector: np.ndarray) -> np.ndarray:
    """Leave a vector (P,) in memory."""
    return vector


def clip_variances(model: np.ndarray, previous: Version, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """A model (P,) with variances clipped to those of the model before and of `low` and `high`, (V,) each."""
    variances = previous.layout.variances
    old = previous.vector[variances]
    clipped = model.copy()
    clipped[variances] = np.clip(model[variances], np.minimum(low, old), np.maximum(high, old))
    return clipped
