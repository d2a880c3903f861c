"""Record of one server's round with its children: the step, its offers, the gates' decisions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedge.cloud.offers import Offers
from fedge.cloud.step import CloudStep
from fedge.config.tree import Path
from fedge.leaf.leaf import Leaf
from fedge.leaf.server import Server
from fedge.serving.gate import GateResult
from fedge.states.distinct import DistinctContents


@dataclass
class ServerRoundRecord:
    """Record of one round of a server.

    Attributes:
        path: path of the server.
        number: number of its round, 1, 2, …; for the root the global round.
        labels: (S,) cluster of each child at the end of the round.
        groups: whether the server groups its children.
        has_gates: whether children may refuse its offers.
        offers: offers to each child, by role; empty without a step.
        gates: decision of each child's gate.
        step: the step, if there was one.
        labels_before: clusters before this round; None before the first.
        received: child → models sent for evaluation by its clients.
    """

    path: Path = ()
    number: int = 1
    labels: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    groups: bool = True
    has_gates: bool = True
    offers: list[Offers] = field(default_factory=list)
    gates: list[GateResult] = field(default_factory=list)
    step: CloudStep | None = None
    labels_before: np.ndarray | None = None
    received: dict[int, DistinctContents] = field(default_factory=dict)

    def offers_to(self, child: Server) -> Offers:
        """Models offered to a child, by role."""
        return self.offers[child.number] if self.offers else {}


def shown_gate(leaf: Leaf, above: Sequence[ServerRoundRecord]) -> GateResult:
    """Decision of the lowest gate above a leaf's clients, by default that of the root's child.

    Args:
        leaf: a leaf of the tree.
        above: latest record of the servers above, from the root down.
    """
    record = next((candidate for candidate in reversed(above) if candidate.has_gates), above[0])
    return record.gates[leaf.path[len(record.path)]]


def clusters_of(
    leaves: Sequence[Leaf], records_above: Callable[[Path], Sequence[ServerRoundRecord]]
) -> list[int]:
    """Cluster of each leaf: that of the root, or of root and regions together if regions group, too.

    Args:
        leaves: all leaves, in order.
        records_above: path → latest record of the servers above, from the root down.
    """
    above = [records_above(leaf.path) for leaf in leaves]
    if not any(record.groups and record.path for servers in above for record in servers):
        return [int(servers[0].labels[leaf.path[0]]) for leaf, servers in zip(leaves, above, strict=True)]
    numbers: dict[object, int] = {}
    keys = [
        tuple((m.path, int(m.labels[leaf.path[len(m.path)]])) for m in servers if m.groups)
        for leaf, servers in zip(leaves, above, strict=True)
    ]
    return [numbers.setdefault(key, len(numbers)) for key in keys]
