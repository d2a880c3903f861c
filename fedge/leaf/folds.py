"""Leave-some-clients-out models of a leaf: means of replies, or forks trained without some clients.

To judge a lone leaf on people its model has not seen, there is no other leaf to compare with, so some of its
own clients are left out. Over one round, averaging the other replies suffices, in `MOST_FOLDS` sets if there
are more clients. Over several rounds, forks have to be trained without those clients: at most `MOST_LINES`,
because nearly all clients train each of them.
"""

from collections.abc import Mapping, Sequence

from fedge.states.averaging import State, weighted_mean

MOST_FOLDS = 8
MOST_LINES = 4
_FEWEST_CLIENTS = 3  # with two, a fork would be a single client's model


def lines_of(clients: int) -> int:
    """Number of forks for judging a leaf with `clients` clients in trials of several rounds; 0 for none.

    >>> [lines_of(clients) for clients in (2, 3, 4, 9)]
    [0, 3, 4, 4]
    """
    return min(clients, MOST_LINES) if clients >= _FEWEST_CLIENTS else 0


def held_out_clients(clients: Sequence[int], line: int, lines: int) -> tuple[int, ...]:
    """The clients left out of fork number `line` of `lines`.

    >>> [held_out_clients([2, 5, 7, 8, 9], line, 4) for line in range(4)]
    [(2, 9), (5,), (7,), (8,)]
    """
    return tuple(clients[line::lines])


def by_client(clients: Sequence[int], forks: Sequence[State]) -> dict[int, State]:
    """Client → the fork trained without this client."""
    return {
        client: state
        for line, state in enumerate(forks)
        for client in held_out_clients(clients, line, len(forks))
    }


def means_without(states: Mapping[int, State], weights: Mapping[int, float]) -> dict[int, State]:
    """Client → the mean of the other clients' models; nothing with fewer than two clients.

    Args:
        states: client → the common model after its training.
        weights: client → its training windows.

    >>> import numpy as np
    >>> means = means_without({k: {"w": np.array([float(k)])} for k in (1, 2, 6)}, {1: 1.0, 2: 1.0, 6: 3.0})
    >>> {client: state["w"].tolist() for client, state in means.items()}
    {1: [5.0], 2: [4.75], 6: [1.5]}
    """
    clients = sorted(states)
    if len(clients) < 2:
        return {}
    folds = min(len(clients), MOST_FOLDS)
    means: dict[int, State] = {}
    for fold in range(folds):
        left_out = clients[fold::folds]
        rest = [client for client in clients if client not in left_out]
        mean = weighted_mean([states[client] for client in rest], [weights[client] for client in rest])
        means |= dict.fromkeys(left_out, mean)
    return dict(sorted(means.items()))
