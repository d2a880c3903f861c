"""The cloud over its leaves on the virtual clock: leaves buffer their devices, the cloud its leaves.

Every `asynchrony.cloud-every` versions a leaf sends its model. The cloud counts the change since the leaf's
last received model, by a rule as between devices and a leaf; so either level may work in rounds or not.
Meanwhile the leaf goes on. A new model of the cloud goes to every leaf in it, after the same delay, and the
leaf adds all its changes since its last sending:

    leaf ← cloud + (leaf − its sent model)

A leaf sends nothing while waiting. A rule with the trait `ROUNDS` waits for all leaves.

Groups of leaves (`fedge.devices.groups`) have a model and a rule of their own each, and all of this holds
within a group. When groups change, each new one begins with the mean of its leaves' models, weighted by
training windows; to every such leaf, as after sending its model; messages under way are void.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedge.config import parts, traits
from fedge.config.sections.devices import AsynchronyConfig
from fedge.devices.clock import SECOND_US, Clock, Kind
from fedge.devices.ledger import Ledger
from fedge.devices.line import Line
from fedge.devices.network import DOWN, UP, SharedLinks
from fedge.devices.rules import Arrival, Rule
from fedge.devices.server import DeviceServer, within
from fedge.devices.vectors import Version
from fedge.states.averaging import weighted_mean


@dataclass
class CloudLink:
    """Link between one leaf and the cloud.

    Attributes:
        base: the cloud's model as the leaf's base.
        base_number: the cloud's number of versions then.
        made: the leaf's versions since its last sending.
        sent: its model, sent and not yet answered; None while nothing is under way.
        answer: the cloud's model, and its number; None before there is one.
        exchange: changes of group so far; messages from before one are void.
    """

    base: Version
    base_number: int = 0
    made: int = 0
    sent: Version | None = None
    answer: tuple[Version, int] | None = None
    exchange: int = 0


class Cloud:
    """The cloud, and its links.

    Attributes:
        servers: per group its model and its rule.
        labels: per leaf the number of its group.
        links: per leaf, in order.
        waiting: per group the leaves with models in the buffer, in the order of arrival.
        lines: per group the leaves with models at the cloud waiting for its rule.
        network: where leaves share the link of the cloud; None: each has its own.
    """

    def __init__(
        self,
        config: AsynchronyConfig,
        server: DeviceServer,
        weights: Sequence[float],
        labels: Sequence[int] | None = None,
    ) -> None:
        """Stand before the first exchange.

        Args:
            config: its options on the cloud are read.
            server: with the common initial model.
            weights: per leaf its training windows.
            labels: per leaf the number of its group, by first appearance; None: all are one.
        """
        self.labels = [0] * len(weights) if labels is None else list(labels)
        self.servers = [server.like(server.version, len(self.of_group(group)), group)
                        for group in range(max(self.labels) + 1)]  # fmt: skip
        self.links = [CloudLink(server.version) for _ in weights]
        self.waiting: list[list[int]] = [[] for _ in self.servers]
        self.lines: list[Line[int]] = [Line() for _ in self.servers]
        self.dissolved_us = 0  # virtual time of the cloud occupied by former groups' rules
        self._weights = list(weights)
        self._every = config.cloud_every
        self._in_rounds = parts.CLOUD_RULES.has(config.cloud_rule, traits.ROUNDS)
        self._bytes = server.version.nbytes
        seconds = config.cloud_delay_s + self._bytes / (config.cloud_megabytes_s * 1e6)
        self._delay_us = round(seconds * SECOND_US) if config.cloud_delay_s else 0
        self.network: SharedLinks | None = None
        self._before_us = round(config.cloud_delay_s * SECOND_US)
        self._most_bytes_s = config.cloud_megabytes_s * 1e6

    @property
    def weights(self) -> list[float]:
        """Per leaf its training windows."""
        return list(self._weights)

    def of_group(self, group: int) -> list[int]:
        """The leaves of a group, in order."""
        return [leaf for leaf, label in enumerate(self.labels) if label == group]

    def server_of(self, leaf: int) -> DeviceServer:
        """The model and rule of a leaf's group."""
        return self.servers[self.labels[leaf]]

    def renewed(self, leaf: int, server: DeviceServer, clock: Clock, ledger: Ledger) -> None:
        """Record a leaf's version; send its model if due."""
        self.links[leaf].made += 1
        self._send_if_due(leaf, server, clock, ledger)

    def _send_if_due(self, leaf: int, server: DeviceServer, clock: Clock, ledger: Ledger) -> None:
        link = self.links[leaf]
        if link.sent is None and link.made >= self._every:
            link.sent, link.made = server.version, 0
            ledger.moved["cloud_up"] += self._bytes
            self._begin_to_send(leaf, Kind.AT_CLOUD, clock)

    def _begin_to_send(self, leaf: int, reaches: Kind, clock: Clock) -> None:
        """Let a model go from a leaf to the cloud or back; over a shared link bytes go after the delay."""
        exchange = self.links[leaf].exchange
        if self.network is None:
            clock.at(clock.now_us + self._delay_us, reaches, leaf, exchange)
        else:
            clock.at(clock.now_us + self._before_us, Kind.SEND_CLOUD, leaf, exchange)

    def send(self, leaf: int, clock: Clock) -> None:
        """Let the bytes of a leaf's model, or of the answer, go over the leaves' shared link."""
        assert self.network is not None
        link = self.network.of_cloud(UP if self.links[leaf].answer is None else DOWN)
        self.network.join(link, self._key(leaf), self._most_bytes_s, clock)

    def sent(self, key: int, clock: Clock) -> None:
        """Deliver the messages arrived over the shared link."""
        exchange, leaf = divmod(key, len(self.links))
        reaches = Kind.AT_CLOUD if self.links[leaf].answer is None else Kind.AT_LEAF
        clock.at(clock.now_us, reaches, leaf, exchange)

    def _key(self, leaf: int) -> int:
        """The number of a leaf's transfer over the shared link."""
        return self.links[leaf].exchange * len(self.links) + leaf

    def receive(self, leaf: int, clock: Clock, ledger: Ledger) -> None:
        """Use a leaf's model, or queue it while the rule of its group is busy."""
        line = self.lines[self.labels[leaf]]
        if line.waiting:
            line.waiting.append(leaf)
        elif not self._is_busy_with(leaf, clock):
            self._take(leaf, clock, ledger)

    def served(self, leaf: int, clock: Clock, ledger: Ledger) -> None:
        """Use the leaf's model of a busy rule, and all until the rule is busy again."""
        waiting = self.lines[self.labels[leaf]].waiting
        self._take(waiting.popleft(), clock, ledger)
        while waiting:
            leaf = waiting.popleft()
            if self._is_busy_with(leaf, clock):
                return
            self._take(leaf, clock, ledger)

    def _is_busy_with(self, leaf: int, clock: Clock) -> bool:
        """Whether taking in a leaf's model takes its group's rule time; if so, from now on."""
        busy_us = round(self.server_of(leaf).seconds_of_next * SECOND_US)
        if busy_us:
            until_us = self.lines[self.labels[leaf]].occupy(leaf, busy_us, clock.now_us)
            clock.at(until_us, Kind.CLOUD_SERVED, leaf, self.links[leaf].exchange)
        return busy_us > 0

    def done_us(self, now_us: int) -> int:
        """Virtual microseconds for which rules have occupied the cloud until now; groups add up."""
        return self.dissolved_us + sum(line.done_us(now_us) for line in self.lines)

    def _take(self, leaf: int, clock: Clock, ledger: Ledger) -> None:
        """Take in a leaf's model; answer all waiting leaves of its group if there is a new one."""
        link, server, group = self.links[leaf], self.server_of(leaf), self.labels[leaf]
        assert link.sent is not None
        arrival = Arrival(
            leaf, server.number - link.base_number, link.base.vector, link.sent.vector,
            self._weights[leaf], link.sent.counters,
        )  # fmt: skip
        ledger.cloud_staleness[arrival.staleness] += 1
        made = server.take(arrival)
        waiting = self.waiting[group]
        waiting.append(leaf)
        if self._in_rounds and len(waiting) == len(self.of_group(group)):
            made = server.take(None)
        if not made:
            return
        self.waiting[group] = []
        for each in waiting:
            self._answer(each, clock, ledger)

    def _answer(self, leaf: int, clock: Clock, ledger: Ledger) -> None:
        """Send a leaf the model of its group."""
        link, server = self.links[leaf], self.server_of(leaf)
        link.answer = server.version, server.number
        ledger.moved["cloud_down"] += self._bytes
        self._begin_to_send(leaf, Kind.AT_LEAF, clock)

    def give(self, leaf: int, server: DeviceServer, clock: Clock, ledger: Ledger) -> None:
        """Give a leaf the cloud's model; the leaf's changes since its sending are added."""
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

    def regroup(
        self, labels: Sequence[int], leaves: Sequence[DeviceServer], clock: Clock, ledger: Ledger
    ) -> None:
        """Let leaves share models by other labels from now on; groups of the same leaves stay as they are."""
        before = {tuple(self.of_group(group)): group for group in range(len(self.servers))}
        servers, waiting, lines = self.servers, self.waiting, self.lines
        self.labels, self.servers, self.waiting, self.lines = list(labels), [], [], []
        for group in range(max(self.labels) + 1):
            members = self.of_group(group)
            known = before.get(tuple(members))
            if known is not None:
                self.servers.append(servers[known])
                self.waiting.append(waiting[known])
                self.lines.append(lines[known])
                continue
            models = [leaves[leaf].version for leaf in members]
            mean = mean_of(models, [self._weights[leaf] for leaf in members])
            self.servers.append(servers[0].like(mean, len(members), group))
            self.waiting.append([])
            self.lines.append(Line())
            for leaf, model in zip(members, models, strict=True):
                if self.network is not None:  # messages under way are void
                    for direction in (UP, DOWN):
                        self.network.leave(self.network.of_cloud(direction), self._key(leaf), clock)
                self.links[leaf] = CloudLink(mean, sent=model, exchange=self.links[leaf].exchange + 1)
                ledger.moved["cloud_up"] += self._bytes
                self._answer(leaf, clock, ledger)
        gone = [line for line in lines if not any(line is kept for kept in self.lines)]
        self.dissolved_us += sum(line.done_us(clock.now_us) for line in gone)


def mean_of(models: Sequence[Version], weights: Sequence[float]) -> Version:
    """The weighted mean of models, with the counters of the first."""
    found = weighted_mean([{"w": model.vector} for model in models], weights)["w"]
    found.flags.writeable = False
    return Version(models[0].layout, found, models[0].counters)


def cloud_arguments(rule: Rule, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the cloud's rule: its buffer, if any, is one leaf where nothing else is said."""
    has_buffer = "buffer" in inspect.signature(rule).parameters
    return {**({"buffer": 1} if has_buffer else {}), **arguments}
