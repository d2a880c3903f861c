"""FedALA: a client starts training from a mixture of its own model and the leaf's, learnt for each weight.

    start = local + (w − local) ⊙ ω in the last p parameters, w below
    ω ← clip₀₁(ω − η ∇f_i(start) ⊙ (w − local))

ω starts at 1 and stays at the client. ω is learnt before every round but the first on a contiguous stretch of
the windows: the first time until the deviation of ten losses is below `threshold`, then one pass. Then
`start` is trained as usual and sent. The client is served `start`.

Source: Zhang et al. 2023, "FedALA: Adaptive Local Aggregation for Personalized Federated Learning",
arXiv:2212.01197, Algorithm 1. The paper draws windows at random; the stretch is its authors' code (PFLlib),
whose first learning may not end: here at most `passes`.
"""

from collections.abc import Mapping

import numpy as np
import torch

from fedge.algorithm.algorithm import Algorithm, select_entries
from fedge.algorithm.client import Client
from fedge.algorithm.descent import Fit
from fedge.states.averaging import State
from fedge.states.named_states import Memory


class FedAla(Algorithm):
    """A learnt start.

    Args:
        layers: p, parameters (weights and biases count) from the last one down.
        eta: step size of ω.
        share: share of the windows for learning ω, above 0 to 1.
        threshold: limit on the deviation of ten losses.
        passes: at most, the first time.
    """

    def __init__(
        self, layers: int = 2, eta: float = 1.0, share: float = 0.8, threshold: float = 0.1, passes: int = 100
    ) -> None:
        self._layers, self._eta, self._share = layers, eta, share
        self._threshold, self._passes = threshold, passes

    def start(self, client: Client) -> Memory:
        """The client's own model starts as a copy of the leaf's, ω at 1."""
        upper = select_entries(client.received, client.parameters[-self._layers :])
        return {
            "local": client.received,
            "omega": {n: np.ones_like(a) for n, a in upper.items()},
            "rounds": 0,
        }

    def train(self, client: Client) -> Fit:
        """Learn ω, then train from the mixture."""
        if client.memory["rounds"] > 0:
            self._learn(client)
        fit = client.fit(self._mixture(client))
        client.memory.update(local=fit.state, rounds=client.memory["rounds"] + 1)
        return fit

    def models(self, client: Client) -> Mapping[str, State]:
        """The mixture with the current ω."""
        return {"mixed": self._mixture(client)}

    def _mixture(self, client: Client) -> State:
        local, w, omega = client.memory["local"], client.received, client.memory["omega"]
        return {**w, **{n: local[n] + (w[n] - local[n]) * share for n, share in omega.items()}}

    def _learn(self, client: Client) -> None:
        """Move ω down the loss of the mixture."""
        names, local = list(client.memory["omega"]), client.memory["local"]
        mixture = client.trainer(self._mixture(client), only=names)
        mixture.model.eval()  # a stretch may end in one window, of which BatchNorm has no variance
        weights = dict(zip(mixture.names, mixture.weights, strict=True))
        omega = {
            n: torch.from_numpy(np.array(a)).to(weights[n].device) for n, a in client.memory["omega"].items()
        }
        local_weights = {n: torch.from_numpy(np.array(local[n])).to(weights[n].device) for n in names}
        delta = {
            n: torch.from_numpy(np.array(client.received[n])).to(weights[n].device) - local_weights[n]
            for n in names
        }
        count = max(1, int(self._share * client.windows))
        first = int(client.rng("stretch").integers(client.windows - count + 1))
        losses: list[float] = []
        for _ in range(self._passes if client.memory["rounds"] == 1 else 1):
            for rows in torch.arange(first, first + count).split(client.settings.batch_size):
                loss, gradients = mixture.gradients(*client.windows_at(rows))
                for n, g in zip(mixture.names, gradients, strict=True):
                    omega[n] = torch.clamp(omega[n] - self._eta * g * delta[n], 0, 1)
                    weights[n].copy_(local_weights[n] + delta[n] * omega[n])
            losses.append(float(loss))
            if len(losses) > 10 and np.std(losses[-10:]) < self._threshold:
                break
        client.memory["omega"] = {n: a.cpu().numpy() for n, a in omega.items()}
