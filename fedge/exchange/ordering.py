"""The order in which clients are sent to work: largest first, for short waits for the last one.

Longest processing time first keeps the time of an exchange within 4/3 − 1/(3 m) of the best possible on m
workers (Graham 1969, theorem 2).
"""

from collections.abc import Mapping

_WORTH_S = 1.0  # from which cost of the largest client on a pause between two waves costs next to nothing
_HALVINGS = 2


def largest_first(costs_s: Mapping[int, float]) -> list[int]:
    """Clients by falling cost in seconds, equal ones in ascending order."""
    return sorted(costs_s, key=lambda client: (-costs_s[client], client))


def waves(costs_s: Mapping[int, float]) -> list[list[int]]:
    """Clients in waves for an engine without order among messages given at once.

    The first wave holds clients with more than half of the largest cost, the second those above a quarter,
    the third the rest: within a wave any order will do. One wave, if all cost about the same or little.

    Args:
        costs_s: client → its expected seconds.
    """
    order = largest_first(costs_s)
    if not order or costs_s[order[0]] < _WORTH_S:
        return [order]
    bound = costs_s[order[0]]
    split: list[list[int]] = []
    for _ in range(_HALVINGS):
        bound /= 2
        split.append([client for client in order if costs_s[client] > bound])
        order = [client for client in order if costs_s[client] <= bound]
    return [wave for wave in [*split, order] if wave]
