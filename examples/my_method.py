"""A client's method: Ditto (Li et al. 2021). Each client has a personal model, pulled towards the leaf's."""

from collections.abc import Mapping
from typing import Any

from fedge.algorithm import Algorithm, Client, Fit


class Ditto(Algorithm):
    """Every client trains the leaf's model and its personal one; only the former is sent.

    Args:
        strength: of the pull; 0 is local training only.
    """

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    def start(self, client: Client) -> dict[str, Any]:
        """Memory before the client's first round: the personal model starts as the received one."""
        return {"v": client.received}

    def train(self, client: Client) -> Fit:
        """Train the personal model, on different batches than the leaf's; then the leaf's, which is sent."""
        pull = (self.strength, client.received)
        client.memory["v"] = client.fit(client.memory["v"], pull=pull, stream="v").state
        return client.fit()

    def models(self, client: Client) -> Mapping[str, Any]:
        """Models that are tested in addition to the served one."""
        return {"personal": client.memory["v"]}
