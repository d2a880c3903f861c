"""FedRep: a personal last layer is fitted to the shared base, then the base to the layer.

    head_i ← E_h epochs on f_i(base, ·);   base_i ← E_b epochs on f_i(·, head_i)
    base ← Σ_i n_i base_i / Σ_i n_i

Only the base is sent to the leaf; the head stays at the client. A frozen BatchNorm still updates its
statistics.

Source: Collins, Hassani, Mokhtari, Shakkottai 2021, "Exploiting Shared Representations for Personalized
Federated Learning", arXiv:2102.07078, Algorithm 1. E_h = 10 and E_b = 1 as there; PFLlib has 1 and 1.
"""

from collections.abc import Mapping

from fedge.algorithm.algorithm import Algorithm, Sent, select_entries
from fedge.algorithm.client import Client
from fedge.states.averaging import State
from fedge.states.named_states import Memory


class FedRep(Algorithm):
    """Head first, then base.

    Args:
        head_epochs: E_h, at least 1.
        base_epochs: E_b, at least 1.
    """

    def __init__(self, head_epochs: int = 10, base_epochs: int = 1) -> None:
        self._head_epochs, self._base_epochs = head_epochs, base_epochs

    def start(self, client: Client) -> Memory:
        """The head starts as a copy of the leaf's."""
        return {"head": select_entries(client.received, client.head)}

    def train(self, client: Client) -> Sent:
        """Train the head, then the base; send the base."""
        head, below = client.head, set(client.base)
        initial = {**client.received, **client.memory["head"]}
        fitted = client.fit(initial, only=head, epochs=self._head_epochs, stream="head")
        base = [name for name in client.parameters if name in below]
        fit = client.fit(fitted.state, only=base, epochs=self._base_epochs)
        client.memory["head"] = select_entries(fit.state, head)
        return Sent(fit, only=client.base)

    def models(self, client: Client) -> Mapping[str, State]:
        """The served base with the client's head."""
        return {"personal": {**client.received, **client.memory["head"]}}

    def unseen(self, client: Client) -> Mapping[str, State]:
        """The served base with a newly trained head."""
        return {"personal": client.fit(only=client.head, epochs=self._head_epochs).state}
