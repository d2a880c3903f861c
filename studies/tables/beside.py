"""SCAFFOLD as NIID-Bench's code has it: corrections beside the optimiser's step, controls of K steps.

    client  w ← optimiser's step; w ← w − η (c − c_i);   Δ_i = −c + (x − w) / (K η), c_i ← c_i + Δ_i
    leaf    c ← c + 1/m Σ_{i∈P} Δ_i,  m clients, P took part; the model is the mean by windows

Fedge's own (`scaffold.enabled`) adds c − c_i to the gradient, where momentum sees it, and divides by K
/ (1 − momentum). Without momentum both are Algorithm 1 of Karimireddy et al. 2020, option II.

Source: Li, Diao, Chen, He 2022, NIID-Bench's public code, and Flower's baseline of it; from memory, not
confirmed at the source.
"""

from typing import ClassVar

import numpy as np
import torch

from fedge.algorithm.algorithm import Algorithm, Sent
from fedge.algorithm.client import Client
from fedge.algorithm.descent import Trainer
from fedge.algorithm.leaf_part import LeafContributions, LeafPart
from fedge.states.averaging import State
from fedge.states.named_states import Memory


class BesideLeaf(LeafPart):
    """Keeps c and sends it down."""

    def start(self, model: State) -> Memory:
        """c is 0."""
        return {"c": {name: np.zeros(a.shape) for name, a in model.items() if a.dtype.kind == "f"}}

    def send(self, memory: Memory) -> Memory:
        """c."""
        return memory

    def combine(self, leaf: LeafContributions) -> State:
        """The mean of models; c moves by the participants' changes, divided by the number of all clients."""
        c = leaf.memory["c"]
        assert isinstance(c, dict)
        for name in c:
            c[name] = (
                c[name]
                + sum(contribution.arrays[f"delta/{name}"] for contribution in leaf.brought) / leaf.clients
            )
        return leaf.mean


class ScaffoldBeside(Algorithm):
    """A client's part."""

    leaf: ClassVar[type[LeafPart]] = BesideLeaf

    def start(self, client: Client) -> Memory:
        """c_i is 0."""
        return {"c": {name: np.zeros(client.received[name].shape) for name in client.parameters}}

    def train(self, client: Client) -> Sent:
        """Train with the correction beside every step, then move c_i."""
        c, own_control = client.beside["c"], client.memory["c"]
        names = list(own_control)
        corrections = {
            n: torch.from_numpy((c[n] - own_control[n]).astype(client.received[n].dtype)) for n in names
        }

        def correct(trainer: Trainer) -> None:
            with torch.no_grad():
                for name, weight in zip(trainer.names, trainer.weights, strict=True):
                    weight.sub_(corrections[name], alpha=client.lr)

        fit = client.fit(after=correct)
        length = fit.steps * client.lr
        delta = {n: (client.received[n].astype(float) - fit.state[n]) / length - c[n] for n in names}
        client.memory["c"] = {n: own_control[n] + delta[n] for n in names}
        return Sent(fit, arrays={"delta": delta})
