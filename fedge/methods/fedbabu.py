"""FedBABU: the last layer keeps its initial weights and only the layers below learn; clients fine-tune both.

    base_i ← K steps of SGD on f_i(·, head₀);   base ← Σ_i n_i base_i / Σ_i n_i

Only the base travels to the leaf. Whenever clients are evaluated, each fine-tunes the served model, base and
head together, and discards the result.

Source: Oh, Kim, Yun 2022, "FedBABU: Toward Enhanced Representation for Federated Image Classification",
arXiv:2106.06042, Algorithm 1. PFLlib fine-tunes the client's own last base: ``from_own=True``.
"""

from collections.abc import Mapping

from fedge.algorithm.algorithm import Algorithm, Sent
from fedge.algorithm.client import Client
from fedge.states.averaging import State
from fedge.states.named_states import Memory


class FedBabu(Algorithm):
    """A fixed head, and fine-tuning.

    Args:
        tune_epochs: epochs of fine-tuning, at least 1.
        from_own: fine-tune the client's last trained model, not its served one.
    """

    def __init__(self, tune_epochs: int = 5, from_own: bool = False) -> None:
        self._tune_epochs, self._from_own = tune_epochs, from_own

    def start(self, client: Client) -> Memory:
        """Nothing, unless the client's own last base is wanted."""
        return {"own": client.received} if self._from_own else {}

    def train(self, client: Client) -> Sent:
        """Train the base; send it."""
        base = set(client.base)
        fit = client.fit(only=[name for name in client.parameters if name in base])
        if self._from_own:
            client.memory["own"] = fit.state
        return Sent(fit, only=client.base)

    def models(self, client: Client) -> Mapping[str, State]:
        """The served model, fine-tuned."""
        start = client.memory["own"] if self._from_own else client.received
        return {"tuned": client.fit(start, epochs=self._tune_epochs, stream="tune").state}

    def unseen(self, client: Client) -> Mapping[str, State]:
        """The same."""
        return {"tuned": client.fit(epochs=self._tune_epochs, stream="tune").state}
