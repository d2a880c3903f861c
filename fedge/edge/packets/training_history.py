"""Checks of the training history of a leaf's clients (`fedge.leaf.training_history`) in packets."""

from collections.abc import Collection, Mapping
from typing import Any

from fedge.edge.packets.plain_json import FactError, finite_number, rows, whole_number
from fedge.leaf.training_history import Turns

_MOST_ROUNDS = 10**9
_WIDTH = 5


def check_turns(
    value: Any,
    clients: Collection[int],
    previous: Turns | None = None,
    this_round: tuple[int, Collection[int], Mapping[int, float]] = (0, (), {}),
) -> None:
    """Raise FactError unless a training history is possible.

    Args:
        value: result of `Turns.facts`.
        clients: training clients of the leaf.
        previous: history before the leaf round; None if unknown.
        this_round: leaf round, clients asked in it, client → its reported loss.
    """
    entries = rows(value, _WIDTH, len(clients), "turns")
    for client, requests, latest_request, updates, loss in entries:
        if type(client) is not int or client not in clients:
            raise FactError("turns", "not of the leaf's clients")
        whole_number(requests, 0, _MOST_ROUNDS, "turns")
        whole_number(latest_request, 0, _MOST_ROUNDS, "turns")
        whole_number(updates, 0, requests, "turns")
        if (loss is None) != (updates == 0):
            raise FactError("turns", f"{updates} updates and loss {loss}")
        if loss is not None:
            finite_number(loss, -1.7e308, 1.7e308, "turns")
    if len({row[0] for row in entries}) < len(entries):
        raise FactError("turns", "one client twice")
    if previous is not None:
        expected = Turns.of_facts(previous.facts())
        leaf_round, asked, losses = this_round
        expected.note(asked, losses, leaf_round)
        if expected.facts() != [list(row) for row in entries]:
            raise FactError("turns", "not those that follow from the clients that were asked")
