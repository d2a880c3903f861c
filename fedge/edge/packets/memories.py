"""Checks of the versions of clients' memories in packets; a memory itself stays at its leaf server.

A version is reported as client, leaf round, checksum and number of bytes.
"""

from typing import Any

from fedge.config.registers.option import shown
from fedge.edge.packets.facts import FactError, mapping, rows, text, whole_number
from fedge.leaf.leaf import Leaf
from fedge.states.memory import MOST_BYTES, KeptVersion

_MOST_ROUNDS, _MOST_NEEDED = 10**9, 1000
_DIGITS, _CHECKSUM = frozenset("0123456789abcdef"), 64


def check_memories(told: Any, leaf: Leaf, new: int | None = None, any_round: bool = False) -> None:
    """Raise FactError unless versions of memories are possible for a leaf's clients.

    Args:
        told: client → version, as in `LeafAlgorithm.facts`.
        leaf: leaf whose algorithm has the previous versions.
        new: leaf round from which versions may differ from the previous ones; None if they may not.
        any_round: whether versions of any round are possible, as in a cloud's order.
    """
    assert leaf.algorithm is not None
    found = mapping(told, "memories")
    own = {str(client): client for client in leaf.clients}
    if not found.keys() <= own.keys() or (found and not leaf.algorithm.form.keeps):
        raise FactError("memories", "of clients without a memory here")
    for client, version in found.items():
        leaf_round, checksum, size = rows([version], 3, 1, "memories")[0]
        whole_number(leaf_round, 1, _MOST_ROUNDS, "memories")
        whole_number(size, 0, MOST_BYTES, "memories")
        text(checksum, _CHECKSUM, "memories")
        if len(checksum) != _CHECKSUM or not set(checksum) <= _DIGITS:
            raise FactError("memories", f"{shown(checksum)} is not a checksum")
        before = leaf.algorithm.kept.get(own[client])
        if not any_round and KeptVersion(leaf_round, checksum, size) != before and leaf_round != new:
            raise FactError("memories", f"of leaf round {leaf_round}")
    if not any_round and not {str(client) for client in leaf.algorithm.kept} <= found.keys():
        raise FactError("memories", "some are missing")


def check_needed(told: Any, leaf: Leaf) -> None:
    """Raise FactError unless an order names the leaf rounds of versions to keep, for a leaf's clients."""
    found = mapping(told, "memories")
    if not found.keys() <= {str(client) for client in (*leaf.clients, *leaf.unseen_clients)}:
        raise FactError("memories", "of clients of other leaves")
    for needed in found.values():
        if not isinstance(needed, list) or len(needed) > _MOST_NEEDED:
            raise FactError("memories", shown(needed))
        for leaf_round in needed:
            whole_number(leaf_round, 0, _MOST_ROUNDS, "memories")
