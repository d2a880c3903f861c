"""Deals of windows in published protocols: few classes per client, uneven sizes, differing test sets.

Each gives shares (classes, K): each client's part of each class's windows. Shape letters: K clients, S leaf
servers, Q classes.
"""

from collections.abc import Sequence

import numpy as np

from fedge.config.registers.option import ConfigError

_CLASSES = "partition.kind-args.classes-per-client"


def class_shares(
    clients_per_leaf: Sequence[int], num_classes: int, rng: np.random.Generator, classes_per_client: int
) -> np.ndarray:
    """Give every client windows of `classes_per_client` classes; the shares (Q, K).

    Client i owns class i mod Q and other, drawn classes; the owners of a class share its windows evenly.
    This is NIID-Bench's #C = k, whose code fails if a class has no owner.

    Raises:
        ConfigError: fewer classes than requested, or a class without an owner.

    Source: Li, Diao, Chen, He 2022, "Federated Learning on Non-IID Data Silos: An Experimental Study",
    arXiv:2102.02079, label distribution skew by quantity.
    """
    count, num_clients = classes_per_client, sum(clients_per_leaf)
    if count > num_classes:
        raise ConfigError(
            f"{_CLASSES} must be at most the classes of the data, {num_classes}, but is {count}; lower it"
        )
    owned = np.zeros((num_classes, num_clients))
    for client in range(num_clients):
        first = client % num_classes
        others = np.delete(np.arange(num_classes), first)
        owned[[first, *rng.choice(others, size=count - 1, replace=False)], client] = 1.0
    owners = owned.sum(axis=1, keepdims=True)
    if not owners.all():
        raise ConfigError(
            f"{_CLASSES} must give every class an owner, but none of {num_clients} clients with "
            f"{count} each owns class {int(owners.argmin())}; raise it, or use more clients"
        )
    shares: np.ndarray = owned / owners
    return shares


def quantity_shares(
    clients_per_leaf: Sequence[int], num_classes: int, rng: np.random.Generator, sigma: float
) -> np.ndarray:
    """Give clients log-normal numbers of windows, each the same mix of classes; the shares (Q, K).

    n_i ∝ exp(σ z_i), z_i standard normal.
    """
    weights = np.exp(sigma * rng.standard_normal(sum(clients_per_leaf)))
    return np.tile(weights / weights.sum(), (num_classes, 1))


def independent_shares(
    clients_per_leaf: Sequence[int], num_classes: int, rng: np.random.Generator, alpha_leaves: float
) -> np.ndarray:
    """Draw shares (Q, K) of test windows, independent of those of training.

    Every class is spread over leaves by Dir(alpha_leaves), and evenly over a leaf's clients.
    """
    leaf_shares = rng.dirichlet(np.full(len(clients_per_leaf), alpha_leaves), size=num_classes)
    columns = [
        np.repeat(leaf_shares[:, leaf : leaf + 1] / size, size, axis=1)
        for leaf, size in enumerate(clients_per_leaf)
    ]
    return np.concatenate(columns, axis=1)


def fill_empty_clients(client: np.ndarray, rows: np.ndarray, clients_per_leaf: Sequence[int]) -> np.ndarray:
    """Give every client without windows one from its leaf's largest client; the new client (N,) int64.

    If a leaf has no windows to spare, the window comes from the largest client of all.

    Args:
        client: (N,) int64, of each window.
        rows: (n,) int64, windows of one split.
        clients_per_leaf: S numbers.
    """
    dealt = client.copy()
    leaf_of = np.repeat(np.arange(len(clients_per_leaf)), clients_per_leaf)
    held = np.bincount(dealt[rows][dealt[rows] >= 0], minlength=len(leaf_of))
    for recipient in np.flatnonzero(held == 0):
        leaf_clients = np.flatnonzero(leaf_of == leaf_of[recipient])
        donor = leaf_clients[held[leaf_clients].argmax()]
        donor = donor if held[donor] > 1 else held.argmax()
        if held[donor] > 1:
            dealt[rows[dealt[rows] == donor][-1]] = recipient
            held[donor], held[recipient] = held[donor] - 1, 1
    return dealt
