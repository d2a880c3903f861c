"""Moves of clients from leaf to leaf, between global rounds.

A client takes along all its leaf knows about it: its weight, the version of its memory, its training history,
and SCAFFOLD's c_i. The leaf's model, its strategy's moments and a method's leaf part stay.

SCAFFOLD. At all times N c = Σ_i n_i c_i over the clients of a leaf, n_i their windows and N = Σ_i n_i: c and
the c_i begin at zero, and a leaf round moves c by Σ n_i Δc_i / N over the participants (contract C6). c_i
estimates the client's own gradient, independent of the leaf, and moves unchanged. The term n_i c_i moves
from one sum to the other:

    c ← (N c − n_i c_i) / (N − n_i)        at the old leaf
    c ← (N c + n_i c_i) / (N + n_i)        at the new leaf

Either is the mean of the c_i of the leaf's clients after the move. It is recomputed from all c_i, so rounding
errors do not accumulate; c is zero at a leaf without clients.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from fedge.leaf.controls import CONTROL_PART
from fedge.leaf.leaf import Leaf
from fedge.states.averaging import State, for_each_part, part_of


def leaf_of_each(leaves: Sequence[Leaf]) -> dict[int, Leaf]:
    """Partition id → leaf of every client, unseen ones included."""
    return {client: leaf for leaf in leaves for client in (*leaf.clients, *leaf.unseen_clients)}


def move(leaves: Sequence[Leaf], moves: Mapping[int, int]) -> dict[int, int]:
    """Move clients to other leaves.

    Args:
        leaves: all leaves, in order; modified.
        moves: training client → index of its new leaf.

    Returns:
        Client → index of its former leaf, for moved clients.
    """
    place, came_from = leaf_of_each(leaves), {}
    for client, index in sorted(moves.items()):
        source, target = place[client], leaves[index]
        if source is not target:
            _hand_over(client, source, target)
            came_from[client] = source.index
    for leaf in leaves:
        if leaf.index in came_from.values() or any(moves[client] == leaf.index for client in came_from):
            leaf.train_samples = dict(sorted(leaf.train_samples.items()))
            leaf.clients = tuple(leaf.train_samples)
            if leaf.control is not None:
                leaf.control = mean_control(leaf, leaf.control)
    return came_from


def _hand_over(client: int, source: Leaf, target: Leaf) -> None:
    """Transfer a leaf's knowledge of a client to another leaf."""
    target.train_samples[client] = source.train_samples.pop(client)
    if client in source.client_controls:
        target.client_controls[client] = source.client_controls.pop(client)
    if source.algorithm is not None and target.algorithm is not None and client in source.algorithm.kept:
        target.algorithm.kept[client] = source.algorithm.kept.pop(client)
    if source.turns is not None and target.turns is not None:
        source.turns.hand_over(client, target.turns)


def mean_control(leaf: Leaf, like: State) -> State:
    """Σ_i n_i c_i / Σ_i n_i over a leaf's clients, float64; zero without clients. A missing c_i is zero.

    Args:
        leaf: the leaf.
        like: a control variate, for names and shapes of entries.
    """
    mean = {name: np.zeros_like(array) for name, array in like.items()}
    controls = [
        (leaf.train_samples[c], leaf.client_controls[c]) for c in leaf.clients if c in leaf.client_controls
    ]

    def work(batch: dict[str, slice]) -> None:
        for windows, control in controls:
            for name, part in part_of(control, batch).items():
                mean[name].reshape(-1)[batch[name]] += windows / leaf.weight * part

    for_each_part(work, mean, CONTROL_PART)
    return mean


def restore_places(leaves: Sequence[Leaf], places: Sequence[Sequence[int]]) -> None:
    """Restore the assignment of clients to leaves from a checkpoint, before the leaves' state is restored.

    Args:
        leaves: all leaves, in order, as at the start of the run.
        places: per leaf, its training clients.

    Raises:
        ValueError: the clients are not those of the run, each exactly once.
    """
    windows = {client: count for leaf in leaves for client, count in leaf.train_samples.items()}
    if sorted(client for clients in places for client in clients) != sorted(windows):
        raise ValueError("clients are at no leaf, or at several")
    for leaf, clients in zip(leaves, places, strict=True):
        leaf.train_samples = {client: windows[client] for client in sorted(clients)}
        leaf.clients = tuple(leaf.train_samples)
