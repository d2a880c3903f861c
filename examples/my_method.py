"""A client's method: Ditto (Li et al. 2021). Each client has a model of its own, pulled to the leaf's."""

from collections.abc import Mapping
from typing import Any

from fedge.algorithm import Algorithm, Client, Fit


class Ditto(Algorithm):
    """Beside the leaf's model every client trains its own; only the leaf's is sent.

    Args:
        strength: of the pull; 0 is local training alone.
    """

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    def start(self, client: Client) -> dict[str, Any]:
        """Memory before the client's first round: its own model begins as the one that it received."""
        return {"v": client.received}

    def train(self, client: Client) -> Fit:
        """Train its own model, on other batches than the leaf's; then the leaf's, which is sent."""
        pull = (self.strength, client.received)
        client.memory["v"] = client.fit(client.memory["v"], pull=pull, stream="v").state
        return client.fit()

    def models(self, client: Client) -> Mapping[str, Any]:
        """Models by which the client is tested beside the one that it is served."""
        return {"personal": client.memory["v"]}
