"""The gate at a leaf: take the offered cluster model, or keep the leaf's own (contract C7)."""

from dataclasses import dataclass
from typing import Literal

Decision = Literal["accepted", "rejected", "off"]


@dataclass(frozen=True)
class GateResult:
    """One leaf's decision and what it rests on.

    Attributes:
        decision: "off" where the gate did not decide: it is disabled, or nothing else than the leaf's own
            model was offered.
        accuracy_own: validation accuracy of the leaf's own model, pooled over its clients' windows, 0..1.
        accuracy_offered: the same of the offered model; None without an offer.
        serves_offer: whether the leaf goes on with the offered model.
    """

    decision: Decision
    accuracy_own: float
    accuracy_offered: float | None
    serves_offer: bool


def decide(accuracy_own: float, accuracy_offered: float | None, enabled: bool, min_gain: float) -> GateResult:
    """Take the offer if ``accuracy_offered >= accuracy_own + min_gain``; a disabled gate takes every offer.

    Args:
        accuracy_own: validation accuracy of the leaf's own model, 0..1.
        accuracy_offered: of the offered model; None when nothing is offered.
        enabled: False takes every offer.
        min_gain: accuracy an offer must add.
    """
    if accuracy_offered is None:
        return GateResult("off", accuracy_own, None, serves_offer=False)
    if not enabled:
        return GateResult("off", accuracy_own, accuracy_offered, serves_offer=True)
    accepted = accuracy_offered >= accuracy_own + min_gain
    return GateResult("accepted" if accepted else "rejected", accuracy_own, accuracy_offered, accepted)
