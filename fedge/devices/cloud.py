"""The cloud over its leaves on the virtual clock: leaves buffer their devices, the cloud its leaves.

Every `asynchrony.cloud-every` versions a leaf sends its model. What counts at the cloud is the change since
the model that the leaf last got from there, by a rule as between devices and a leaf; so either level may work
in rounds or not. Meanwhile the leaf goes on. When the cloud has a new model, every leaf that it is made of
gets it, after the same delay, and puts on top of it what has come in since it sent:

    leaf ← cloud + (leaf − what the leaf sent)

A leaf sends nothing while it waits. A rule with the trait `ROUNDS` waits for all leaves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedge.config import parts
from fedge.config.sections import AsynchronyConfig
from fedge.devices.clock import SECOND_US, Clock, Kind
from fedge.devices.ledger import Ledger
from fedge.devices.rules import Arrival
from fedge.devices.server import Server, within
from fedge.devices.vectors import Version


@dataclass
class Link:
    """What stands between one leaf and the cloud.

    Attributes:
        base: the cloud's model that the leaf goes out from.
        base_number: versions that the cloud had made then.
        made: versions that the leaf has made since it last sent.
        sent: what it has sent and not been answered; None while nothing is under way.
        answer: what the cloud has sent back, and its number; None before it does.
    """

    base: Version
    base_number: int = 0
    made: int = 0
    sent: Version | None = None
    answer: tuple[Version, int] | None = None


class Cloud:
    """The cloud, and its links.

    Attributes:
        server: its model and its rule.
        links: per leaf, in order.
        waiting: leaves whose models are in the buffer, in the order of arrival.
    """

    def __init__(self, config: AsynchronyConfig, server: Server, weights: Sequence[float]) -> None:
        """Stand before the first exchange.

        Args:
            config: its options on the cloud are read.
            server: with the model that all leaves begin with.
            weights: per leaf its training windows.
        """
        self.server = server
        self.links = [Link(server.version) for _ in weights]
        self.waiting: list[int] = []
        self._weights = list(weights)
        self._every = config.cloud_every
        self._in_rounds = parts.CLOUD_RULES.has(config.cloud_rule, parts.ROUNDS)
        self._bytes = server.version.nbytes
        seconds = config.cloud_delay_s + self._bytes / (config.cloud_megabytes_s * 1e6)
        self._delay_us = round(seconds * SECOND_US) if config.cloud_delay_s else 0

    def renewed(self, leaf: int, server: Server, clock: Clock, ledger: Ledger) -> None:
        """Note that a leaf has made a version; let it send its model if that is due."""
        self.links[leaf].made += 1
        self._send_if_due(leaf, server, clock, ledger)

    def _send_if_due(self, leaf: int, server: Server, clock: Clock, ledger: Ledger) -> None:
        link = self.links[leaf]
        if link.sent is None and link.made >= self._every:
            link.sent, link.made = server.version, 0
            ledger.moved["cloud_up"] += self._bytes
            clock.at(clock.now_us + self._delay_us, Kind.AT_CLOUD, leaf)

    def take(self, leaf: int, clock: Clock, ledger: Ledger) -> None:
        """Take in what a leaf has sent; answer all that wait if there is a new model."""
        link = self.links[leaf]
        assert link.sent is not None
        arrival = Arrival(
            leaf, self.server.number - link.base_number, link.base.vector, link.sent.vector,
            self._weights[leaf], link.sent.counters,
        )  # fmt: skip
        made = self.server.take(arrival)
        self.waiting.append(leaf)
        if self._in_rounds and len(self.waiting) == len(self.links):
            made = self.server.take(None)
        if not made:
            return
        for each in self.waiting:
            self.links[each].answer = self.server.version, self.server.number
            ledger.moved["cloud_down"] += self._bytes
            clock.at(clock.now_us + self._delay_us, Kind.AT_LEAF, each)
        self.waiting = []

    def give(self, leaf: int, server: Server, clock: Clock, ledger: Ledger) -> None:
        """Give a leaf the cloud's model; what has come in there since it sent stays on top of it."""
        link = self.links[leaf]
        assert link.sent is not None
        assert link.answer is not None
        version, link.base_number = link.answer
        if server.version is link.sent:
            server.version = version
        else:
            own = np.subtract(server.version.vector, link.sent.vector, dtype=np.float64)
            at = server.version.layout.variances
            mine = server.version.vector[at]
            server.change(within(version.vector + own, version, mine, mine), server.version.counters)
        link.base, link.sent, link.answer = version, None, None
        self._send_if_due(leaf, server, clock, ledger)


def cloud_arguments(rule: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of the cloud's rule: its buffer is one leaf where nothing else is said."""
    buffered = rule in ("fedbuff", "ca2fl", "fedfa")
    return {**({"buffer": 1} if buffered else {}), **arguments}
