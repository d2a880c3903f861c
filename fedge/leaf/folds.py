"""What the other clients of a leaf make of a model: means of replies without one client each.

A leaf that stands alone has no other leaf whose model would be one of strangers; its own clients are each
other's strangers. Clients are left out one by one, or in `MOST_FOLDS` sets where there are more.
"""

from collections.abc import Mapping

from fedge.states.averaging import State, weighted_mean

MOST_FOLDS = 8


def means_without(states: Mapping[int, State], weights: Mapping[int, float]) -> dict[int, State]:
    """Return client → the mean of the other clients' models; nothing with fewer than two clients.

    Args:
        states: client → what it has made of the common model.
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
