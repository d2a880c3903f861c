"""FedAvg: every client trains its leaf's model on its windows; the leaf takes the mean weighted by windows.

    w_i ← K steps of SGD on f_i from w;   w ← Σ_i n_i w_i / Σ_i n_i

With `scaffold.enabled` every step is y ← y − η (g(y) − c_i + c): SCAFFOLD (Karimireddy et al. 2020), whose
control variates the leaf keeps. With `train.prox-mu`, FedProx (Li et al. 2020).

Source: McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data",
Algorithm 1.
"""

from typing import ClassVar

from fedge.algorithm.algorithm import Algorithm
from fedge.algorithm.client import Client
from fedge.algorithm.descent import Fit


class FedAvg(Algorithm):
    """Local training by the options of `train`; a strategy's "proximal-mu" replaces `train.prox-mu`."""

    corrected: ClassVar[bool] = True
    reads: ClassVar[frozenset[str]] = frozenset({"proximal-mu"})

    def train(self, client: Client) -> Fit:
        """Train the leaf's model."""
        if "proximal-mu" not in client.config:
            return client.fit(correction=client.correction)
        return client.fit(correction=client.correction, prox_mu=float(client.config["proximal-mu"]))
