"""Malicious clients, which send their update with the opposite sign (sign flip; Li et al. 2019, RSA)."""

from dataclasses import replace

from fedge.algorithm import Algorithm, Client, Fit


class SignFlip(Algorithm):
    """FedAvg in which some clients attack their leaf.

    Args:
        attackers: partition ids, as "0,5"; "" for none.
        scale: length of the sent update, in lengths of the learned one.
    """

    def __init__(self, attackers: str = "", scale: float = 1.0) -> None:
        self.attackers = {int(number) for number in attackers.split(",") if number}
        self.scale = scale

    def train(self, client: Client) -> Fit:
        """Train as in FedAvg; attackers then reverse the update of every trainable entry."""
        fit = client.fit()
        if client.id not in self.attackers:
            return fit
        turned = {
            name: client.received[name] - self.scale * (fit.state[name] - client.received[name])
            for name in client.parameters
        }
        return replace(fit, state={**fit.state, **turned})
