"""FedPer: the last layer is every client's own; the layers below are shared.

    (base_i, head_i) ← K steps of SGD on f_i from (base, head_i);   base ← Σ_i n_i base_i / Σ_i n_i

Only the base is sent to the leaf; the head stays at the client, and starts as the initial model's. An unseen
client trains a head on the served base.

Source: Arivazhagan et al. 2019, "Federated Learning with Personalization Layers", arXiv:1912.00818,
Algorithms 1 and 2. The paper also tries several personal layers; here one.
"""

from collections.abc import Mapping

from fedge.algorithm.algorithm import Algorithm, Sent, select_entries
from fedge.algorithm.client import Client
from fedge.states.averaging import State
from fedge.states.named_states import Memory


class FedPer(Algorithm):
    """A head for every client."""

    def start(self, client: Client) -> Memory:
        """The head starts as a copy of the leaf's."""
        return {"head": select_entries(client.received, client.head)}

    def train(self, client: Client) -> Sent:
        """Train the shared base and the client's head together; send the base."""
        fit = client.fit({**client.received, **client.memory["head"]})
        client.memory["head"] = select_entries(fit.state, client.head)
        return Sent(fit, only=client.base)

    def models(self, client: Client) -> Mapping[str, State]:
        """The served base with the client's head."""
        return {"personal": {**client.received, **client.memory["head"]}}

    def unseen(self, client: Client) -> Mapping[str, State]:
        """The served base with a newly trained head."""
        return {"personal": client.fit(only=client.head).state}
