"""Ditto: every client also trains a model of its own, pulled towards the leaf's.

    v_i ← v_i − η (∇f_i(v_i) + λ (v_i − w)),  s epochs, w as received;   w_i as in FedAvg

The client is served v_i, which starts as the first received model and stays at the client.

Source: Li, Hu, Beirami, Smith 2021, "Ditto: Fair and Robust Federated Learning Through Personalization",
arXiv:2012.04221, Algorithm 1. The personal steps come first, as in PFLlib; they do not depend on the others.
λ is 1 here; PFLlib's default is 0, which is local training alone.
"""

from collections.abc import Mapping
from typing import Any

from fedge.algorithm.algorithm import Algorithm
from fedge.algorithm.client import Client
from fedge.algorithm.descent import Fit
from fedge.states.averaging import State
from fedge.states.named_states import Memory


class Ditto(Algorithm):
    """A personal model pulled to the leaf's.

    Args:
        strength: λ, at least 0.
        epochs: epochs of the personal model per leaf round; 0 to train it as long as the leaf's model.
    """

    def __init__(self, strength: float = 1.0, epochs: int = 0) -> None:
        self._strength = strength
        self._length: dict[str, Any] = {"epochs": epochs} if epochs else {}

    def start(self, client: Client) -> Memory:
        """The personal model starts as a copy of the leaf's."""
        return {"v": client.received}

    def train(self, client: Client) -> Fit:
        """Train the personal model, then the leaf's."""
        pull = (self._strength, client.received)
        client.memory["v"] = client.fit(client.memory["v"], pull=pull, stream="v", **self._length).state
        return client.fit()

    def models(self, client: Client) -> Mapping[str, State]:
        """The personal model."""
        return {"personal": client.memory["v"]}

    def unseen(self, client: Client) -> Mapping[str, State]:
        """A personal model, trained for this evaluation from the served one and pulled towards it."""
        pull = (self._strength, client.received)
        return {"personal": client.fit(pull=pull, stream="v", **self._length).state}
