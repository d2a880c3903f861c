"""Checks of versions that leaf servers keep, as packets name them; memories of clients stay there.

A version is reported as client, leaf round, checksum and number of bytes.
"""

from itertools import pairwise
from typing import Any

from fedge.config.registers.option import shown
from fedge.edge.packets.plain_json import FactError, mapping, rows, text, values, whole_number
from fedge.leaf.leaf import Leaf
from fedge.states.memory import MOST_BYTES, KeptVersion

_MOST_ROUNDS = 10**9
_DIGITS, _CHECKSUM = frozenset("0123456789abcdef"), 64


def check_memories(value: Any, leaf: Leaf, new_round: int | None = None, any_round: bool = False) -> None:
    """Raise FactError unless versions of memories are possible for a leaf's clients.

    Args:
        value: client → version, as in `LeafAlgorithm.facts`.
        leaf: leaf whose algorithm has the previous versions.
        new_round: leaf round from which versions may differ from the previous ones; None if they may not.
        any_round: whether versions of any round are possible, as in a cloud's order.
    """
    assert leaf.algorithm is not None
    memories = mapping(value, "memories")
    client_numbers = {str(client): client for client in leaf.clients}
    if not memories.keys() <= client_numbers.keys() or (memories and not leaf.algorithm.form.keeps):
        raise FactError("memories", "of clients without a memory here")
    for client, version in memories.items():
        leaf_round, checksum, size = rows([version], 3, 1, "memories")[0]
        whole_number(leaf_round, 1, _MOST_ROUNDS, "memories")
        whole_number(size, 0, MOST_BYTES, "memories")
        text(checksum, _CHECKSUM, "memories")
        if len(checksum) != _CHECKSUM or not set(checksum) <= _DIGITS:
            raise FactError("memories", f"{shown(checksum)} is not a checksum")
        previous = leaf.algorithm.kept.get(client_numbers[client])
        if not any_round and KeptVersion(leaf_round, checksum, size) != previous and leaf_round != new_round:
            raise FactError("memories", f"of leaf round {leaf_round}")
    if not any_round and not {str(client) for client in leaf.algorithm.kept} <= memories.keys():
        raise FactError("memories", "some are missing")


def check_needed(value: Any, leaf: Leaf) -> None:
    """Raise FactError unless an order names the leaf rounds of versions to keep, for a leaf's clients."""
    needed_by_client = mapping(value, "memories")
    if not needed_by_client.keys() <= {str(client) for client in (*leaf.clients, *leaf.unseen_clients)}:
        raise FactError("memories", "of clients of other leaves")
    for needed in needed_by_client.values():
        check_ascending(needed, "memories")


def check_ascending(value: Any, name: str) -> None:
    """Raise FactError unless a value is a list, of any length, of leaf rounds in ascending order."""
    leaf_rounds = [whole_number(leaf_round, 0, _MOST_ROUNDS, name) for leaf_round in values(value, name)]
    if any(leaf_round >= following for leaf_round, following in pairwise(leaf_rounds)):
        raise FactError(name, f"not ascending: {shown(leaf_rounds)}")
