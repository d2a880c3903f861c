"""Order in which clients are started: largest first, so the last one does not end late.

Longest processing time first keeps the time of an exchange within 4/3 − 1/(3 m) of the best possible on m
workers (Graham 1969, theorem 2).
"""

from collections.abc import Mapping

_WORTH_S = 1.0  # cost of the largest client above which a pause between two waves is negligible
_HALVINGS = 2


def largest_first(costs_s: Mapping[int, float]) -> list[int]:
    """Clients by descending cost in seconds, with ties in ascending order."""
    return sorted(costs_s, key=lambda client: (-costs_s[client], client))


def waves(costs_s: Mapping[int, float]) -> list[list[int]]:
    """Clients in waves, for an engine that does not keep the order of messages pushed together.

    The first wave holds clients above half of the largest cost, the second those above a quarter, the third
    the rest; the order within a wave matters little. A single wave if costs are similar or small.

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
