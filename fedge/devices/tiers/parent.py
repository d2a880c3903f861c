"""A server with servers below it on the virtual clock: the cloud, or a region below the cloud.

A child is a leaf, which buffers its devices' updates, or a region. It sends its model after every
`asynchrony.cloud-every` versions, and continues meanwhile. The parent's rule, one of those for devices and a
leaf, takes in the change since the child's latest model from the parent; so any tier may work in rounds. When
the parent has a new model, all contributing children get it, after the same delay, and add their own changes
since they sent:

    child ← parent + (child − the model it sent)

A child waiting for an answer sends nothing. A rule with the trait `ROUNDS` waits for all children. A region
answers at the end of the moment, with a model that includes the change from above. So without delays, rounds
on every tier are hierarchical averaging.

Each group of the cloud's children (`fedge.devices.tiers.groups`) has its own model and rule, and all of this
holds within a group. When groups change, each new one starts from the mean of its children's models, weighted
by training windows; each of its children continues as if it had just sent its model, and messages under way
are void.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedge.config.registers import parts, traits
from fedge.config.sections.devices import AsynchronyConfig
from fedge.devices.servers.arrivals import Arrival, Rule
from fedge.devices.servers.server import DeviceServer, clip_variances
from fedge.devices.servers.vectors import Version
from fedge.devices.timeline.arrival_queue import ServerQueue
from fedge.devices.timeline.clock import SECOND_US, Clock, Kind
from fedge.devices.timeline.network import DOWN, UP, SharedLinks
from fedge.devices.work.ledger import Ledger
from fedge.states.averaging import weighted_mean


@dataclass
class ParentLink:
    """Link between one child and its parent.

    Attributes:
        base: the parent's model from which the child started.
        base_number: number of the parent's versions by then.
        versions_made: number of the child's versions since it last sent.
        sent: model sent by the child and not yet answered, or None.
        answer: the parent's model, and its number; None before it is sent.
        exchange: number of changes of group so far; older messages are void.
    """

    base: Version
    base_number: int = 0
    versions_made: int = 0
    sent: Version | None = None
    answer: tuple[Version, int] | None = None
    exchange: int = 0


class Parent:
    """A server with servers below it, and its links to them.

    Attributes:
        servers: model and rule of each group; a region has one.
        labels: group of each child.
        weights: training windows of each child.
        links: links to the children, in order.
        nodes: number of each child among all servers below the cloud, used in events.
        waiting: per group, the children whose models are in the buffer, by time of arrival.
        due: children to get a region's model at the end of this moment.
        lines: per group, the children whose models have arrived and wait for its busy rule.
        above: the parent of a region; None for the cloud.
        network: shared link to the children; None if each has its own.
        number: number among all parents, 0 for the cloud.
    """

    def __init__(
        self,
        config: AsynchronyConfig,
        server: DeviceServer,
        weights: Sequence[float],
        labels: Sequence[int] | None = None,
        nodes: Sequence[int] | None = None,
    ) -> None:
        """State before the first exchange.

        Args:
            config: configuration; its options for the cloud are those of this server and the links below it.
            server: a server with the initial model of all children.
            weights: training windows of each child.
            labels: group of each child, by first appearance; None for one group.
            nodes: number of each child in events; None for its position among the children.
        """
        self.labels = [0] * len(weights) if labels is None else list(labels)
        self.servers = [server.like(server.version, len(self.group_members(group)), group)
                        for group in range(max(self.labels) + 1)]  # fmt: skip
        self.links = [ParentLink(server.version) for _ in weights]
        self.nodes = list(range(len(weights))) if nodes is None else list(nodes)
        self.waiting: list[list[int]] = [[] for _ in self.servers]
        self.due: list[int] = []
        self.lines: list[ServerQueue[int]] = [ServerQueue() for _ in self.servers]
        self.dissolved_us = 0  # virtual time for which rules of former groups occupied the server
        self.dissolved_versions = 0  # made by former groups
        self.number = 0
        self.weights = list(weights)
        self._every = config.cloud_every
        self._in_rounds = parts.CLOUD_RULES.has(config.cloud_rule, traits.ROUNDS)
        self._bytes = server.version.nbytes
        seconds = config.cloud_delay_s + self._bytes / (config.cloud_megabytes_s * 1e6)
        self._delay_us = round(seconds * SECOND_US) if config.cloud_delay_s else 0
        self.link_megabytes_s = config.cloud_link_megabytes_s
        self.network: SharedLinks | None = None
        self._link_delay_us = round(config.cloud_delay_s * SECOND_US)
        self._most_bytes_s = config.cloud_megabytes_s * 1e6
        self.above: Parent | None = None
        self._place = 0  # position among the children of its parent

    def attach_to(self, above: "Parent", place: int, number: int) -> None:
        """Make this server a child of a parent, and number it among all parents."""
        self.above, self._place, self.number = above, place, number

    def group_members(self, group: int) -> list[int]:
        """The children of a group, in order."""
        return [child for child, label in enumerate(self.labels) if label == group]

    def server_of(self, child: int) -> DeviceServer:
        """The model and rule of a child's group."""
        return self.servers[self.labels[child]]

    def note_version(self, child: int, server: DeviceServer, clock: Clock, ledger: Ledger) -> None:
        """Record a child's new version, and start sending its model if due."""
        self.links[child].versions_made += 1
        self._send_if_due(child, server, clock, ledger)

    def _send_if_due(self, child: int, server: DeviceServer, clock: Clock, ledger: Ledger) -> None:
        link = self.links[child]
        if link.sent is None and link.versions_made >= self._every:
            link.sent, link.versions_made = server.version, 0
            ledger.between_servers(self.nodes[child], up=self._bytes)
            self._begin_to_send(child, Kind.UP, clock)

    def _begin_to_send(self, child: int, kind: Kind, clock: Clock) -> None:
        """Start a message up from a child or down to it; over a shared link, bytes follow after the delay."""
        node, exchange = self.nodes[child], self.links[child].exchange
        if self.network is None:
            clock.schedule(clock.now_us + self._delay_us, kind, node, exchange)
        else:
            clock.schedule(clock.now_us + self._link_delay_us, Kind.SEND_BETWEEN, node, exchange)

    def send(self, child: int, clock: Clock) -> None:
        """Start the transfer of a child's model, or of the answer, over the shared link."""
        assert self.network is not None
        link = self.network.of_parent(self.number, UP if self.links[child].answer is None else DOWN)
        self.network.join(link, self._transfer_key(child), self._most_bytes_s, clock)

    def sent(self, key: int, clock: Clock) -> None:
        """Deliver the messages whose transfers over the shared link are complete."""
        exchange, child = divmod(key, len(self.links))
        kind = Kind.UP if self.links[child].answer is None else Kind.DOWN
        clock.schedule(clock.now_us, kind, self.nodes[child], exchange)

    def _transfer_key(self, child: int) -> int:
        """The number of a child's transfer over the shared link."""
        return self.links[child].exchange * len(self.links) + child

    def receive(self, child: int, clock: Clock, ledger: Ledger) -> None:
        """Take in a child's model, or queue it while its group's rule is busy."""
        line = self.lines[self.labels[child]]
        if line.waiting:
            line.waiting.append(child)
        elif not self._is_busy_with(child, clock):
            self._take_model(child, clock, ledger)

    def served(self, child: int, clock: Clock, ledger: Ledger) -> None:
        """Take in the model on which a rule was busy, then queued ones until it is busy again."""
        waiting = self.lines[self.labels[child]].waiting
        self._take_model(waiting.popleft(), clock, ledger)
        while waiting:
            child = waiting.popleft()
            if self._is_busy_with(child, clock):
                return
            self._take_model(child, clock, ledger)

    def _is_busy_with(self, child: int, clock: Clock) -> bool:
        """Whether the group's rule takes virtual time for a child's model; if so, its work starts now."""
        busy_us = round(self.server_of(child).seconds_of_next * SECOND_US)
        if busy_us:
            until_us = self.lines[self.labels[child]].occupy(child, busy_us, clock.now_us)
            clock.schedule(until_us, Kind.SERVED_ABOVE, self.nodes[child], self.links[child].exchange)
        return busy_us > 0

    def done_us(self, now_us: int) -> int:
        """Virtual microseconds for which rules have occupied this server until now, summed over groups."""
        return self.dissolved_us + sum(line.done_us(now_us) for line in self.lines)

    def _take_model(self, child: int, clock: Clock, ledger: Ledger) -> None:
        """Take in a child's model; if this makes a new one, answer all waiting children of the group."""
        link, server, group = self.links[child], self.server_of(child), self.labels[child]
        assert link.sent is not None
        arrival = Arrival(
            child, server.number - link.base_number, link.base.vector, link.sent.vector,
            self.weights[child], link.sent.counters,
        )  # fmt: skip
        ledger.cloud_staleness[arrival.staleness] += 1
        is_new = server.take(arrival)
        waiting = self.waiting[group]
        waiting.append(child)
        if self._in_rounds and len(waiting) == len(self.group_members(group)):
            is_new = server.take(None)
        if not is_new:
            return
        self.waiting[group] = []
        self.due += waiting
        if self.above is None:
            self.leave(clock, ledger)
            return
        if len(self.due) == len(waiting):
            clock.schedule(clock.now_us, Kind.LEAVE, self.number)
        self.above.note_version(self._place, server, clock, ledger)

    def leave(self, clock: Clock, ledger: Ledger) -> None:
        """Send a region's model to all children due."""
        for child in self.due:
            self._answer(child, clock, ledger)
        self.due = []

    def _answer(self, child: int, clock: Clock, ledger: Ledger) -> None:
        """Send the group's model to a child."""
        link, server = self.links[child], self.server_of(child)
        link.answer = server.version, server.number
        ledger.between_servers(self.nodes[child], down=self._bytes)
        self._begin_to_send(child, Kind.DOWN, clock)

    def deliver_answer(self, child: int, server: DeviceServer, clock: Clock, ledger: Ledger) -> None:
        """Deliver the answer to a child, which adds its own changes since it sent."""
        link = self.links[child]
        assert link.sent is not None
        assert link.answer is not None
        version, link.base_number = link.answer
        if server.version is link.sent:
            server.version = version
        else:
            own_change = np.subtract(server.version.vector, link.sent.vector, dtype=np.float64)
            variances = server.version.layout.variances
            current = server.version.vector[variances]
            server.change(
                clip_variances(version.vector + own_change, version, current, current),
                server.version.counters,
            )
        link.base, link.sent, link.answer = version, None, None
        self._send_if_due(child, server, clock, ledger)

    def regroup(
        self, labels: Sequence[int], children: Sequence[DeviceServer], clock: Clock, ledger: Ledger
    ) -> None:
        """Give children new group labels; groups with the same members are unchanged."""
        old_groups = {tuple(self.group_members(group)): group for group in range(len(self.servers))}
        servers, waiting, lines = self.servers, self.waiting, self.lines
        self.labels, self.servers, self.waiting, self.lines = list(labels), [], [], []
        for group in range(max(self.labels) + 1):
            members = self.group_members(group)
            old_group = old_groups.pop(tuple(members), None)
            if old_group is None:
                self._form_group(group, members, servers[0], children, clock, ledger)
                continue
            servers[old_group].use_streams(servers[0], group)
            self.servers.append(servers[old_group])
            self.waiting.append(waiting[old_group])
            self.lines.append(lines[old_group])
        self.dissolved_us += sum(lines[former].done_us(clock.now_us) for former in old_groups.values())
        self.dissolved_versions += sum(servers[former].number for former in old_groups.values())

    def _form_group(
        self, group: int, members: Sequence[int], like: DeviceServer, children: Sequence[DeviceServer],
        clock: Clock, ledger: Ledger,
    ) -> None:  # fmt: skip
        """Start a group from the mean of its members' models; `like` is a server with the same rule."""
        models = [children[child].version for child in members]
        mean = _mean_version(models, [self.weights[child] for child in members])
        self.servers.append(like.like(mean, len(members), group))
        self.waiting.append([])
        self.lines.append(ServerQueue())
        for child, model in zip(members, models, strict=True):
            if self.network is not None:  # messages under way are void
                for direction in (UP, DOWN):
                    self.network.leave(
                        self.network.of_parent(self.number, direction), self._transfer_key(child), clock
                    )
            self.links[child] = ParentLink(mean, sent=model, exchange=self.links[child].exchange + 1)
            ledger.between_servers(self.nodes[child], up=self._bytes)
            self._answer(child, clock, ledger)


def _mean_version(models: Sequence[Version], weights: Sequence[float]) -> Version:
    """Weighted mean of models, with the counters of the first."""
    mean = weighted_mean([{"w": model.vector} for model in models], weights)["w"]
    mean.flags.writeable = False
    return Version(models[0].layout, mean, models[0].counters)


def cloud_arguments(rule: Rule, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a rule for servers above the leaves; the buffer, if any, is one child unless given."""
    has_buffer = "buffer" in inspect.signature(rule).parameters
    return {**({"buffer": 1} if has_buffer else {}), **arguments}
