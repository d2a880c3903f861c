"""pFedMe: every client's own model is the leaf's, moved to lower its loss as far as a Moreau envelope allows.

    per batch  K times θ ← θ − η_p (∇f_i(θ) + λ (θ − w_i)), θ begins at w_i;   w_i ← w_i − η λ (w_i − θ)
    leaf       w ← (1 − β) w + β Σ_i n_i w_i / Σ_i n_i

The client is served the θ of its last batch. Whenever θ restarts, so does its optimiser: no velocity is
carried from batch to batch. Statistics of BatchNorm are those of θ.

Source: Dinh, Tran, Nguyen 2020, "Personalized Federated Learning with Moreau Envelopes", arXiv:2006.08848,
Algorithm 1. PFLlib continues θ from batch to batch (``restart=False``), adds 0.001 θ to its gradient
(``decay=0.001``), has β = 0, so that its server never moves, and overwrites θ before its evaluation.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from fedge.algorithm.algorithm import Algorithm
from fedge.algorithm.client import Client
from fedge.algorithm.descent import Fit
from fedge.algorithm.leaf_part import LeafContributions, LeafPart
from fedge.states.averaging import State
from fedge.states.named_states import Memory


class PFedMeLeaf(LeafPart):
    """Moves the old model by a fraction `beta`, at least 0, of the way to the mean; 1 gives the mean."""

    reads_replies: ClassVar[bool] = False

    def __init__(self, beta: float = 1.0) -> None:
        self._beta = beta

    def combine(self, leaf: LeafContributions) -> State:
        """(1 − β) w + β mean, for trainable entries."""
        moved = {
            name: ((1 - self._beta) * leaf.model[name].astype(float) + self._beta * leaf.mean[name]).astype(
                leaf.mean[name].dtype
            )
            for name in leaf.parameters
        }
        return {**leaf.mean, **moved}


class PFedMe(Algorithm):
    """A personal model by K steps per batch.

    Args:
        strength: λ, above 0.
        inner_steps: K, at least 1.
        lr: η_p; 0 for the step size of the round.
        restart: θ begins at w_i for every batch.
        decay: further L2 penalty on θ.
    """

    leaf: ClassVar[type[LeafPart]] = PFedMeLeaf

    def __init__(
        self,
        strength: float = 15.0,
        inner_steps: int = 5,
        lr: float = 0.0,
        restart: bool = True,
        decay: float = 0.0,
    ) -> None:
        self._strength, self._steps, self._lr, self._restart = strength, inner_steps, lr, restart
        self._decay = decay

    def start(self, client: Client) -> Memory:
        """θ starts as a copy of the leaf's model."""
        return {"theta": client.received}

    def train(self, client: Client) -> Fit:
        """Alternate K steps of θ and one of w_i."""
        decay = client.settings.weight_decay + self._decay
        theta = client.trainer(client.received, lr=self._lr or client.lr, weight_decay=decay)
        w, losses = [weight.clone() for weight in theta.weights], []
        for x, y in client.batches():
            theta.pull_to((self._strength, dict(zip(theta.names, w, strict=True))))
            if self._restart:
                torch._foreach_copy_(theta.weights, w)
                theta.reset_optimizer()  # its velocity belongs to the last batch's θ
            losses += [float(theta.step(x, y)) for _ in range(self._steps)]
            for shared, personal in zip(w, theta.weights, strict=True):
                shared -= client.lr * self._strength * (shared - personal)
        state = theta.state()
        client.memory["theta"] = state
        sent = {name: weight.cpu().numpy() for name, weight in zip(theta.names, w, strict=True)}
        return Fit({**state, **sent}, float(np.mean(losses)), theta.steps)

    def models(self, client: Client) -> Mapping[str, State]:
        """θ."""
        return {"personal": client.memory["theta"]}
