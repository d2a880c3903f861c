"""ESPerHFL: a leaf serves a learnt mixture of its own model V and of W, which the cloud makes for this leaf.

    per batch  w ← w − η ∇f_i(w);   v ← v − η ∇_v L,   L the loss of the answers m v(x) + (1 − m) w(x)
    at the end m ← clip₀₁(m − a (⟨v − w, m ∇_v L + (1 − m) ∇_w L⟩ + b m)), clipped gradients of the last batch
    leaf       W and V means by windows, m the plain mean
    cloud      W_e ← (1 − h) W_e + h Σ_{k≠e} softmax_k(g s_ek) W_k,   s = ⟨a, b⟩ / (|a|² + |b|² − ⟨a, b⟩)

All three are sent between client and leaf, W alone to the cloud: `train.algorithm` and `cluster.method` must
both name it. V and m stay at the leaf. A client's model after training is the mixture of the weights v and w.
Source: Ma et al. 2024, "Personalized client-edge-cloud hierarchical federated learning in mobile edge
computing", J. Cloud Computing, doi 10.1186/s13677-024-00721-w. The paper serves mixed answers of leaf models,
its code mixed weights. The public code mixes only the first tensor at the cloud, and leaves the gradient of w
uncleared; numbers here are those of the form above.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedge.algorithm.algorithm import Algorithm, Sent
from fedge.algorithm.client import Client
from fedge.algorithm.descent import Fit, Trainer
from fedge.algorithm.leaf_part import LeafContributions, LeafPart
from fedge.clustering.cloud_part import CloudPart, Family
from fedge.clustering.likeness.evidence import Evidence
from fedge.states.averaging import State
from fedge.states.named_states import Memory

_LEAST = 1e-200  # sum of weights, less of which has lost digits


class EsperHflLeaf(LeafPart):
    """Keeps V and m, and sends them down; `mix` is the initial m, 0..1."""

    def __init__(self, mix: float = 0.5) -> None:
        self._mix = mix

    def start(self, model: State) -> Memory:
        """V starts as a copy of W."""
        return {"v": model, "m": float(self._mix)}

    def send(self, memory: Memory) -> Memory:
        """Both."""
        return memory

    def combine(self, leaf: LeafContributions) -> State:
        """Means of all three."""
        means = {n: leaf.means[f"v/{n}"].astype(a.dtype) for n, a in leaf.memory["v"].items()}
        leaf.memory.update(v=means, m=float(np.mean([c.arrays["m"] for c in leaf.brought])))
        return leaf.mean


class EsperHfl(Algorithm):
    """A client's part.

    Args:
        rate: a, step size of m.
        decay: b, pulls m to 0.
    """

    leaf: ClassVar[type[LeafPart]] = EsperHflLeaf
    within: ClassVar[Mapping[str, tuple[float, float]]] = {"m": (0.0, 1.0)}
    beside_models: ClassVar[frozenset[str]] = frozenset({"v"})

    def __init__(self, rate: float = 0.1, decay: float = 0.02) -> None:
        self._rate, self._decay = rate, decay

    def start(self, client: Client) -> Memory:
        """The mixture before any training is the leaf's model."""
        return {"v": client.received, "m": 0.5}

    def train(self, client: Client) -> Sent:
        """Train w, and v by the mixed answers, on the same batches; then move m."""
        m, task = client.beside["m"], client.settings.task
        w, v, losses = client.trainer(client.received), client.trainer(client.beside["v"]), []
        gradients: tuple[Tensor, ...] = ()
        for x, y in client.batches():
            losses.append(float(w.step(x, y)))
            answers = m * v.answers(x) + (1 - m) * w.answers(x)
            loss = task.loss(answers, y, client.settings.label_smoothing)
            gradients = torch.autograd.grad(loss, [*v.parameters, *w.parameters], materialize_grads=True)
            v.move([g.contiguous() for g in gradients[: len(v.names)]])
        limit = client.settings.clip_norm
        slope = m * _clipped_inner_product(v, w, gradients[: len(v.names)], limit)
        slope += (1 - m) * _clipped_inner_product(v, w, gradients[len(v.names) :], limit)
        m = float(np.clip(m - self._rate * (slope + self._decay * m), 0, 1))
        client.memory.update(v=v.state(), m=m)
        return Sent(Fit(w.state(), float(np.mean(losses)), w.steps), arrays={"v": v.state(), "m": m})

    def models(self, client: Client) -> Mapping[str, State]:
        """The mixture of weights, with the served W."""
        v, m, names = client.memory["v"], client.memory["m"], set(client.parameters)
        mixed = {
            n: (m * v[n] + (1 - m) * w).astype(w.dtype) for n, w in client.received.items() if n in names
        }
        return {"mixed": {**v, **mixed}}


class EsperHflCloud(CloudPart):
    """The cloud's part: every leaf's model moves towards similar ones.

    Args:
        share: h, 0..1.
        sharpness: g, at least 0; 0 is the mean of all others.
    """

    compares: ClassVar[str] = "likeness of leaves' models"
    told: ClassVar[str] = "Every leaf's model moves towards the others', the more so the more alike they are"

    def __init__(self, share: float = 0.7, sharpness: float = 5.0) -> None:
        self._share, self._sharpness = share, sharpness

    def group(self, cloud: Evidence) -> Family:
        """Mixtures of all leaves' models; a leaf alone keeps its own."""
        vectors = np.asarray(cloud.vectors, dtype=np.float64)
        inner = vectors @ vectors.T
        squares = np.diag(inner)
        likeness = inner / np.maximum(squares[:, None] + squares[None] - inner, 1e-30)
        others = self._weights_of_others(likeness)
        total = others.sum(axis=1, keepdims=True)
        share = self._share * (total > 0)
        return Family(
            (1 - share) * np.eye(len(inner)) + share * others / np.where(total > 0, total, 1), cloud.models
        )

    def _weights_of_others(self, likeness: np.ndarray) -> np.ndarray:
        """exp(g s_ek) up to a factor per row, 0 for the leaf itself; from likeness (S, S)."""
        weights: np.ndarray = np.exp(self._sharpness * (likeness - likeness.max())) * (
            1 - np.eye(len(likeness))
        )
        lost = weights.sum(axis=1) < _LEAST  # a leaf unlike all others, with a large g
        if len(likeness) > 1 and lost.any():
            others = np.where(np.eye(len(likeness), dtype=bool), -np.inf, likeness)[lost]
            weights[lost] = np.exp(self._sharpness * (others - others.max(axis=1, keepdims=True)))
        return weights


def _clipped_inner_product(v: Trainer, w: Trainer, gradients: tuple[Tensor, ...], limit: float) -> float:
    """⟨v − w, g⟩, the gradient clipped."""
    norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))))
    scale = min(1.0, limit / (norm + 1e-6)) if limit else 1.0
    parts = zip(v.weights, w.weights, gradients, strict=True)
    return scale * float(sum(((a - b).double() * g.double()).sum() for a, b, g in parts))
