"""APFL: every client is served a mixture of its own model and the leaf's, and learns the shares.

    per batch  v̄ = α v + (1 − α) w;   w ← w − η ∇f_i(w);   v ← v − η α ∇f_i(v̄);
               α ← clip₀₁(α − η ⟨v − w, ∇f_i(v̄)⟩), all right sides from before the batch

w is sent, v and α stay at the client, which is served v̄ with the leaf's w.

Source: Deng, Kamani, Mahdavi 2020, "Adaptive Personalized Federated Learning", arXiv:2003.13461, Algorithm
1. PFLlib takes v's step on f_i(v), α's on α g_v + (1 − α) g_w and 0.02 α, and replaces v by the mixture at
the end of the round: ``variant="pfllib"``; its α starts at 1.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from fedge.algorithm.algorithm import Algorithm
from fedge.algorithm.client import Client
from fedge.algorithm.descent import Fit, Trainer
from fedge.states.averaging import State
from fedge.states.named_states import Memory


class Apfl(Algorithm):
    """A learnt mixture of two models.

    Args:
        alpha: share of the client's own model at first, 0..1.
        variant: "paper" or "pfllib".
    """

    def __init__(self, alpha: float = 0.5, variant: str = "paper") -> None:
        if variant not in ("paper", "pfllib"):
            raise ValueError(f'variant must be "paper" or "pfllib", but is {variant!r}')
        self._alpha, self._as_paper = alpha, variant == "paper"

    def start(self, client: Client) -> Memory:
        """The client's own model starts as a copy of the leaf's."""
        return {"v": client.received, "alpha": float(self._alpha)}

    def train(self, client: Client) -> Fit:
        """Train both models on the same batches, and move α."""
        w, v = client.trainer(client.received), client.trainer(client.memory["v"])
        mixed, alpha, losses = client.trainer(client.received), client.memory["alpha"], []
        for x, y in client.batches():
            loss, gradients_w = w.gradients(x, y)
            if self._as_paper:
                torch._foreach_copy_(mixed.weights, _mixture(alpha, v.weights, w.weights))
                _, gradients_mixed = mixed.gradients(x, y)
                slope = _inner_product(v, w, gradients_mixed)
                v.move([alpha * g for g in gradients_mixed])
                w.move(gradients_w)
            else:
                _, gradients_v = v.gradients(x, y)
                w.move(gradients_w)
                v.move(gradients_v)
                slope = _inner_product(v, w, _mixture(alpha, gradients_v, gradients_w)) + 0.02 * alpha
            alpha = float(np.clip(alpha - client.lr * slope, 0, 1))
            losses.append(float(loss))
        if not self._as_paper:
            torch._foreach_copy_(v.weights, _mixture(alpha, v.weights, w.weights))
        client.memory.update(v=v.state(), alpha=alpha)
        return Fit(w.state(), float(np.mean(losses)), w.steps)

    def models(self, client: Client) -> Mapping[str, State]:
        """The mixture; in PFLlib's variant v, which is a mixture itself."""
        v, alpha = client.memory["v"], client.memory["alpha"] if self._as_paper else 1.0
        names = set(client.parameters)
        mixed = {
            n: (alpha * a + (1 - alpha) * client.received[n]).astype(a.dtype)
            for n, a in v.items()
            if n in names
        }
        return {"mixed": {**v, **mixed}}


def _mixture(alpha: float, one: Sequence[Tensor], other: Sequence[Tensor]) -> list[Tensor]:
    return [alpha * a + (1 - alpha) * b for a, b in zip(one, other, strict=True)]


def _inner_product(v: Trainer, w: Trainer, gradients: Sequence[Tensor]) -> float:
    """⟨v − w, g⟩ over all parameters."""
    parts = zip(v.weights, w.weights, gradients, strict=True)
    return float(sum(((a - b).double() * g.double()).sum() for a, b, g in parts))
