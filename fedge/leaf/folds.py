"""Models from the other clients of a leaf: means of replies without one client each, or forks.

A lone leaf has no other leaf with a model from other people; its own clients are each other's strangers. For
one round, averaging replies without some suffices, in `MOST_FOLDS` sets where there are more clients. Models
of several rounds need forks trained by these clients alone: `MOST_LINES` at most, as each is trained by
nearly all clients.
"""

from collections.abc import Mapping, Sequence

from fedge.states.averaging import State, weighted_mean

MOST_FOLDS = 8
MOST_LINES = 4
_FEWEST_CLIENTS = 3  # with two, a fork would be one client's own model


def lines_of(clients: int) -> int:
    """Number of forks by which a leaf of so many clients is judged in trials of several rounds, or 0.

    >>> [lines_of(clients) for clients in (2, 3, 4, 9)]
    [0, 3, 4, 4]
    """
    return min(clients, MOST_LINES) if clients >= _FEWEST_CLIENTS else 0


def held_out_clients(clients: Sequence[int], line: int, lines: int) -> tuple[int, ...]:
    """The clients excluded from one of `lines` forks.

    >>> [held_out_clients([2, 5, 7, 8, 9], line, 4) for line in range(4)]
    [(2, 9), (5,), (7,), (8,)]
    """
    return tuple(clients[line::lines])


def by_client(clients: Sequence[int], made: Sequence[State]) -> dict[int, State]:
    """Client → the fork made without the client."""
    return {
        client: state
        for line, state in enumerate(made)
        for client in held_out_clients(clients, line, len(made))
    }


def means_without(states: Mapping[int, State], weights: Mapping[int, float]) -> dict[int, State]:
    """Client → the mean of the other clients' models; nothing with fewer than two clients.

    Args:
        states: client → the common model after its training.
        weights: client → its training windows.

    >>> import numpy as np
    >>> made = means_without({k: {"w": np.array([float(k)])} for k in (1, 2, 6)}, {1: 1.0, 2: 1.0, 6: 3.0})
    >>> {client: state["w"].tolist() for client, state in made.items()}
    {1: [5.0], 2: [4.75], 6: [1.5]}
    """
    clients = sorted(states)
    if len(clients) < 2:
        return {}
    folds = min(len(clients), MOST_FOLDS)
    found: dict[int, State] = {}
    for fold in range(folds):
        left_out = clients[fold::folds]
        rest = [client for client in clients if client not in left_out]
        mean = weighted_mean([states[client] for client in rest], [weights[client] for client in rest])
        found |= dict.fromkeys(left_out, mean)
    return dict(sorted(found.items()))
