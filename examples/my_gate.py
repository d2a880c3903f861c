"""A gate: decides whether a leaf takes an offer, by both models' results on the same validation windows."""

from scipy.special import betainc

from fedge.config.sections.serving import GateConfig
from fedge.serving.gate import Paired


def probably_better(pair: Paired, config: GateConfig, confidence: float = 0.5) -> bool:
    """Take the offer if it is better with a probability of at least `confidence`.

    θ is the probability that a window which only one model classifies correctly favours the offer. With a
    uniform prior, its posterior is Beta(1 + c, 1 + b) after c windows for the offer and b for the own model.
    """
    probability_of_worse = betainc(1 + pair.only_offered, 1 + pair.only_own, 0.5)
    return bool(1 - probability_of_worse >= confidence)
