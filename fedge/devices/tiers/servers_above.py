"""All servers above the leaves on the virtual clock: the cloud, and the regions of a deeper tree.

Servers below the cloud are numbered tier by tier, from left to right: regions first, leaves last. Events have
these numbers as subjects, so at one moment upper servers get their answers before lower ones.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedge.config.clock_tiers import clock_of_tiers, has_servers_above_leaves
from fedge.config.config import Config
from fedge.config.sections.devices import AsynchronyConfig
from fedge.config.tree import Path
from fedge.devices.servers.server import DeviceServer
from fedge.devices.tiers.parent import Parent
from fedge.devices.timeline.clock import Clock, Event, Kind
from fedge.devices.work.ledger import Ledger


@dataclass(frozen=True)
class ServerPlace:
    """Place in the tree of a server with servers below it.

    Attributes:
        path: path from the root.
        leaves: numbers of the leaves below each of its children.
        stream: number of its random streams, unique in the tree; groups of the cloud add theirs to 0.
        options: its rule, and the links to its children, in the form of the cloud's options.
    """

    path: Path
    leaves: Sequence[Sequence[int]]
    stream: int
    options: AsynchronyConfig


class ServersAbove:
    """Servers above the leaves, and the messages between them.

    Attributes:
        paths: paths of all servers below the cloud, by number.
        parents: servers with servers below them: the cloud, then regions by number.
        leaves: the leaves' own servers, in order.
    """

    def __init__(
        self, paths: Sequence[Path], parents: Sequence[Parent], leaves: Sequence[DeviceServer]
    ) -> None:
        """State before the first exchange; arguments are the attributes."""
        self.paths, self.parents, self.leaves = list(paths), list(parents), list(leaves)
        self._first_leaf = len(self.paths) - len(self.leaves)
        self._link_of_node = {
            node: (parent, child) for parent in self.parents for child, node in enumerate(parent.nodes)
        }
        for number, region in enumerate(self.parents[1:], 1):
            region.attach_to(*self._link_of_node[number - 1], number)

    @property
    def cloud(self) -> Parent:
        """The root."""
        return self.parents[0]

    @property
    def servers(self) -> list[DeviceServer]:
        """Servers of the cloud, one per group, then those of the regions."""
        return [server for parent in self.parents for server in parent.servers]

    @property
    def branches(self) -> list[DeviceServer]:
        """Servers just below the cloud, in order."""
        return [self._server(node) for node in self.cloud.nodes]

    def branch_of(self, leaf: int) -> int:
        """Child of the cloud on the branch of a leaf: the leaf itself, or a region above it."""
        return self.paths[self._first_leaf + leaf][0]

    def labels(self) -> list[int]:
        """Number of each leaf's group at the cloud."""
        return [self.cloud.labels[self.branch_of(leaf)] for leaf in range(len(self.leaves))]

    def top_of(self, leaf: int) -> DeviceServer:
        """The cloud's server whose model is served to a leaf's clients."""
        return self.cloud.server_of(self.branch_of(leaf))

    def _server(self, node: int) -> DeviceServer:
        """The server with a number."""
        if node >= self._first_leaf:
            return self.leaves[node - self._first_leaf]
        return self.parents[node + 1].servers[0]

    def note_version(self, leaf: int, clock: Clock, ledger: Ledger) -> None:
        """Note a new version of a leaf."""
        parent, child = self._link_of_node[self._first_leaf + leaf]
        parent.note_version(child, self.leaves[leaf], clock, ledger)

    def handle_event(self, event: Event, clock: Clock, ledger: Ledger) -> bool:
        """Start or advance a message; False if it is void because its child has changed groups."""
        if event.kind == Kind.LEAVE:
            self.parents[event.subject].leave(clock, ledger)
            return True
        parent, child = self._link_of_node[event.subject]
        if event.number != parent.links[child].exchange:
            return False
        if event.kind == Kind.SEND_BETWEEN:
            parent.send(child, clock)
        elif event.kind == Kind.UP:
            parent.receive(child, clock, ledger)
        elif event.kind == Kind.SERVED_ABOVE:
            parent.served(child, clock, ledger)
        else:
            parent.deliver_answer(child, self._server(event.subject), clock, ledger)
        return True

    def done_us(self, now_us: int) -> float:
        """Virtual microseconds for which rules have occupied servers until now, mean over the servers."""
        return sum(parent.done_us(now_us) for parent in self.parents) / len(self.parents)

    @property
    def queued_models(self) -> int:
        """Number of models waiting for busy servers."""
        return sum(len(line.waiting) for parent in self.parents for line in parent.lines)


def servers_above(
    config: Config,
    leaves: Sequence[DeviceServer],
    windows: Sequence[float],
    make: Callable[[ServerPlace], DeviceServer],
    labels: Sequence[int] | None = None,
) -> ServersAbove | None:
    """The servers above some leaves; None for a single leaf.

    Args:
        config: configuration; its sections on hierarchy and asynchrony are read.
        leaves: servers of the leaves, in order.
        windows: training windows of each leaf.
        make: function from a place in the tree to a new server with the initial model.
        labels: group of each child of the cloud; None for one group.
    """
    if not has_servers_above_leaves(config.hierarchy):
        return None
    tiers = config.hierarchy.tiers
    nodes = [path for tier in range(1, tiers) for path in config.hierarchy.shape.paths(tier)]
    numbers = {path: number for number, path in enumerate(nodes)}
    below: dict[Path, list[int]] = {}
    for leaf, path in enumerate(nodes[len(nodes) - len(leaves) :]):
        for depth in range(tiers):
            below.setdefault(path[:depth], []).append(leaf)
        below[path] = [leaf]
    children: dict[Path, list[Path]] = {}
    for path in nodes:
        children.setdefault(path[:-1], []).append(path)
    options, parents = clock_of_tiers(config), []
    for path in [(), *nodes[: len(nodes) - len(leaves)]]:
        child_paths, tier_options = children[path], options[len(path)]
        stream = len(children[()]) + numbers[path] if path else 0
        place = ServerPlace(path, [below[child] for child in child_paths], stream, tier_options)
        weights = [sum(windows[leaf] for leaf in below[child]) for child in child_paths]
        groups = None if path else labels
        parents.append(
            Parent(tier_options, make(place), weights, groups, [numbers[child] for child in child_paths])
        )
    return ServersAbove(nodes, parents, leaves)
