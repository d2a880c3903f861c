"""Bundles: the orders to several leaf servers of one process, or their answers, in one packet.

A model shared by several leaves, such as the mean of a region or the model of a group, is sent once
(`fedge.link.frames`).
"""

from collections.abc import Collection, Mapping
from typing import Any

from fedge.edge.packets import orders
from fedge.edge.packets.plain_json import FactError, mapping, rows, text
from fedge.link.frames import Packet

PARTS = "parts"  # fact of a bundle: leaf, kind and facts of each of its packets
_LONGEST_KIND = 100


def bundled(kind: str, packets: Mapping[int, Packet], facts: Mapping[str, Any]) -> Packet:
    """A bundle of packets by leaf, with its own facts.

    >>> bundle = bundled("done", {3: Packet("done", {"moved": True}, {"model": {}})}, {})
    >>> bundle.facts, list(bundle.states)
    ({'parts': [[3, 'done', {'moved': True}]]}, ['3/model'])
    """
    parts = [[leaf, packet.kind, dict(packet.facts)] for leaf, packet in packets.items()]
    states = {
        f"{leaf}/{name}": state for leaf, packet in packets.items() for name, state in packet.states.items()
    }
    return Packet(kind, {**facts, PARTS: parts}, states)


def unbundled(bundle: Packet, leaves: Collection[int]) -> dict[int, Packet]:
    """Leaf → its packet in a bundle; the readers of the packets check facts and states.

    Args:
        bundle: a received bundle.
        leaves: leaves allowed to have a packet.

    Raises:
        FactError: a part belongs to no leaf or to an unexpected one, or a leaf has two.
    """
    packets: dict[int, Packet] = {}
    for leaf, kind, facts in rows(bundle.facts[PARTS], 3, len(leaves), PARTS):
        if type(leaf) is not int or leaf not in leaves or leaf in packets:
            raise FactError(PARTS, "of other leaves")
        states = orders.leaf_states(bundle.states, leaf)
        packets[leaf] = Packet(text(kind, _LONGEST_KIND, PARTS), mapping(facts, PARTS), states)
    if sum(len(packet.states) for packet in packets.values()) != len(bundle.states):
        raise FactError("states", "of other leaves")
    return packets
