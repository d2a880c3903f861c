"""FedSoft: a client's model is pulled towards S cluster models, by the share of its data that each fits best.

    client  u_is = share of i's windows on which cluster model s loses least (0 becomes 1e-4), every τ rounds
            w_i ← argmin f_i(w) + λ/2 Σ_s u_is |w − c_s|²,  from its own last model
    leaf    c_s = Σ_i u_is n_i w_i / Σ_i u_is n_i

Clients are served w_i. The leaf's model, which unseen clients and the cloud get, is the mean of the w_i;
cluster models stay at their leaf. The first starts as the leaf's model, the others with the numbers of each
of its entries in another order.

Source: Ruan, Joe-Wong 2022, "FedSoft: Soft Clustered Federated Learning with Proximal Local Updating", AAAI,
arXiv:2112.06053, algorithm 1. Its code can also take the plain mean of clients drawn with the chances u_is
n_i; the public `main` does not run unchanged, so numbers here are those of the form above.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from fedge.algorithm.algorithm import Algorithm, Sent
from fedge.algorithm.client import Client
from fedge.algorithm.leaf_part import LeafContributions, LeafPart
from fedge.states.averaging import State, weighted_mean
from fedge.states.named_states import Memory

_LEAST = 1e-4  # share of a cluster model without a best-fitting window of a client


class FedSoftLeaf(LeafPart):
    """Keeps the cluster models, and sends them down; `clusters` is S, at least 1."""

    def __init__(self, clusters: int = 2) -> None:
        if clusters < 1:
            raise ValueError(f"clusters must be at least 1, but is {clusters}")
        self._clusters = clusters

    def start(self, model: State) -> Memory:
        """The leaf's model, and others of the same numbers."""
        drawn = {f"c{s}": _shuffle_entries(model, s) for s in range(1, self._clusters)}
        return {"c0": model, **drawn}

    def send(self, memory: Memory) -> Memory:
        """All cluster models."""
        return memory

    def combine(self, leaf: LeafContributions) -> State:
        """Cluster models by the clients' shares; the leaf's is their mean."""
        states = [c.state for c in leaf.brought]
        for s in range(self._clusters):
            weights = [float(c.arrays["u"][s]) * c.weight for c in leaf.brought]
            leaf.memory[f"c{s}"] = weighted_mean(states, weights)
        return leaf.mean


class FedSoft(Algorithm):
    """Proximal training to soft clusters.

    Args:
        clusters: S, at least 1.
        strength: λ, at least 0.
        every: τ, leaf rounds of a client from one estimate of its shares to the next.
    """

    leaf: ClassVar[type[LeafPart]] = FedSoftLeaf
    within: ClassVar[Mapping[str, tuple[float, float]]] = {"u": (_LEAST, 1.0)}

    def __init__(self, clusters: int = 2, strength: float = 0.01, every: int = 2) -> None:
        self._clusters, self._strength, self._every = clusters, strength, every

    def start(self, client: Client) -> Memory:
        """The client's own model starts as a copy of the leaf's."""
        return {"w": client.received, "u": np.full(self._clusters, 1 / self._clusters), "rounds": 0}

    def train(self, client: Client) -> Sent:
        """Estimate the shares when due, then train the own model."""
        centres = [client.beside[f"c{s}"] for s in range(self._clusters)]
        if client.memory["rounds"] % self._every == 0:
            client.memory["u"] = _fit_shares(client, centres)
        client.memory["rounds"] += 1
        pulls = [(self._strength * float(u), c) for u, c in zip(client.memory["u"], centres, strict=True)]
        initial = {
            n: client.received[n] if a.dtype.kind in "iu" else a for n, a in client.memory["w"].items()
        }
        fit = client.fit(initial, pull=pulls)  # whole numbers, as BatchNorm's counts of steps, are the leaf's
        client.memory["w"] = fit.state
        return Sent(fit, arrays={"u": client.memory["u"]})

    def models(self, client: Client) -> Mapping[str, State]:
        """The client's own."""
        return {"own": client.memory["w"]}


def _fit_shares(client: Client, centres: list[State]) -> np.ndarray:
    """Share of a client's training windows fitted best by each of S models, (S,), none below 1e-4."""
    losses, rows = [], torch.arange(client.windows)
    for centre in centres:
        network = client.network_with(centre)
        with torch.no_grad():
            parts = [client.windows_at(indices) for indices in rows.split(512)]
            window_losses = [client.settings.task.losses(network(x), y) for x, y in parts]
        losses.append(torch.cat(window_losses).double().cpu().numpy())
    best = np.bincount(np.argmin(losses, axis=0), minlength=len(centres)) / client.windows
    return np.maximum(best, _LEAST)


def _shuffle_entries(model: State, number: int) -> State:
    """A model with the numbers of each entry in another order, the same on every machine."""
    rng = np.random.default_rng(number)
    return {name: rng.permutation(a.ravel()).reshape(a.shape) for name, a in model.items()}
