"""FedProx: local training pulled towards its starting model.

    w_i ← w_i − η (∇f_i(w_i) + μ (w_i − w))

It computes the same bits as FedAvg with `train.prox-mu`. The paper also lets slow clients do less work;
Fedge's clients all do the same.

Source: Li et al. 2020, "Federated Optimization in Heterogeneous Networks", arXiv:1812.06127, Algorithm 2.
"""

from fedge.algorithm.algorithm import Algorithm
from fedge.algorithm.client import Client
from fedge.algorithm.descent import Fit


class FedProx(Algorithm):
    """A proximal term.

    Args:
        mu: μ, at least 0; the paper tries 0.001 to 1.
    """

    def __init__(self, mu: float = 0.01) -> None:
        self._mu = mu

    def train(self, client: Client) -> Fit:
        """Train the leaf's model, pulled towards its start."""
        return client.fit(pull=(self._mu, client.received))
