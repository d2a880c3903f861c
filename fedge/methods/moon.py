"""MOON: features are pulled towards those of the leaf's model and away from those of the client's last one.

    f_i(w) + μ · mean −log( e^{cos(z, z_g)/τ} / (e^{cos(z, z_g)/τ} + e^{cos(z, z_old)/τ}) )

z is the input of the last layer of the model in training, z_g of the leaf's, z_old of the client's own after
its last training (at first the initial model); no gradient flows through z_g and z_old.

Source: Li, He, Song 2021, "Model-Contrastive Federated Learning", arXiv:2103.16257, Algorithm 1. The paper
adds a projection head below the last layer: include it in the model. PFLlib has none either, and μ = 0.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedge.algorithm.algorithm import Algorithm
from fedge.algorithm.client import Client
from fedge.algorithm.descent import Fit
from fedge.states.named_states import Memory


class Moon(Algorithm):
    """A contrast between models.

    Args:
        mu: μ, at least 0; the paper tries 0.1 to 10.
        temperature: τ, above 0.
    """

    def __init__(self, mu: float = 1.0, temperature: float = 0.5) -> None:
        self._mu, self._temperature = mu, temperature

    def start(self, client: Client) -> Memory:
        """The last model is the first received."""
        return {"old": client.received}

    def train(self, client: Client) -> Fit:
        """Train with the contrast, and keep the result."""
        shared = client.features(client.network_with(client.received))
        old = client.features(client.network_with(client.memory["old"]))
        features = client.features(client.network)

        def contrast(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            assert features.last is not None
            z = features.last.flatten(1)
            similarity_leaf, similarity_old = (
                F.cosine_similarity(z, other.of(x).flatten(1)) for other in (shared, old)
            )
            logits = torch.stack([similarity_leaf, similarity_old], dim=1) / self._temperature
            return self._mu * F.cross_entropy(logits, torch.zeros_like(logits[:, 0], dtype=torch.long))

        try:
            fit = client.fit(penalty=contrast)
        finally:
            features.close()
        client.memory["old"] = fit.state
        return fit
