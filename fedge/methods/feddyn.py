"""FedDyn: a linear and a quadratic term make every client's optimum the common one.

    client  w_i ← argmin f_i(w) − ⟨h_i, w⟩ + α/2 |w − w_g|²;   h_i ← h_i − α (w_i − w_g)
    leaf    h ← h − α/m Σ_{i∈P} (w_i − w_g);   w_g ← mean_{i∈P} w_i − h/α,  m clients, P took part

The mean is plain. h_i and h start at 0, hold parameters only, and are never sent. w_g is the model at the
start of the leaf round, from any source at cloud or gate.

Source: Acar et al. 2021, "Federated Learning Based on Dynamic Regularization", arXiv:2111.04263, Algorithm 1.
PFLlib takes α/2 |w − w_g|, not squared: ``squared=False``.
"""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from fedge.algorithm.algorithm import Algorithm
from fedge.algorithm.client import Client
from fedge.algorithm.descent import Fit
from fedge.algorithm.leaf_part import LeafContributions, LeafPart, plain_mean
from fedge.states.averaging import State
from fedge.states.named_states import Memory


class FedDynLeaf(LeafPart):
    """The leaf's h and its model; `alpha` is the same as the clients'."""

    def __init__(self, alpha: float = 0.1) -> None:
        self._alpha = alpha

    def start(self, model: State) -> Memory:
        """h is 0."""
        return {"h": {name: np.zeros(a.shape) for name, a in model.items() if a.dtype.kind == "f"}}

    def combine(self, leaf: LeafContributions) -> State:
        """The plain mean, corrected by h in the entries trained by clients."""
        mean, h = plain_mean([c.state for c in leaf.brought]), leaf.memory["h"]
        assert isinstance(h, dict)
        for name in leaf.parameters:
            drift = sum(c.state[name].astype(float) - leaf.model[name] for c in leaf.brought)
            h[name] = h[name] - self._alpha / leaf.clients * drift
        moved = {
            name: (mean[name] - h[name] / self._alpha).astype(mean[name].dtype) for name in leaf.parameters
        }
        return {**mean, **moved}


class FedDyn(Algorithm):
    """Dynamic regularisation.

    Args:
        alpha: α, above 0; the paper tries 0.001 to 0.1.
        squared: the norm as in the paper.
    """

    leaf: ClassVar[type[LeafPart]] = FedDynLeaf

    def __init__(self, alpha: float = 0.1, squared: bool = True) -> None:
        self._alpha, self._squared = alpha, squared

    def start(self, client: Client) -> Memory:
        """h_i is 0."""
        return {"h": {n: np.zeros_like(client.received[n]) for n in client.parameters}}

    def train(self, client: Client) -> Fit:
        """Train with both terms, then move h_i."""
        h, start = client.memory["h"], client.received
        linear = {name: -array for name, array in h.items()}
        target = {name: torch.from_numpy(np.array(start[name])) for name in h}

        def norm(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            named = dict(network.named_parameters())
            drift = [(named[name] - initial.to(x.device)).flatten() for name, initial in target.items()]
            return self._alpha / 2 * torch.linalg.vector_norm(torch.cat(drift))

        pull = (self._alpha, start) if self._squared else ()
        fit = client.fit(correction=linear, pull=pull, penalty=None if self._squared else norm)
        client.memory["h"] = {n: a - self._alpha * (fit.state[n] - start[n]) for n, a in h.items()}
        return fit
