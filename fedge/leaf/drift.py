"""How far a leaf has moved since the last cloud step: what SCAFFOLD on two levels corrects.

Source: Fang et al. 2024, MTGC; the formulas are in `fedge.training.scaffold`.
"""

from dataclasses import dataclass

from fedge.states.averaging import State

EVERYBODY = 0  # the group in which all leaves begin


@dataclass
class Drift:
    """What a leaf has done since the last cloud step.

    Attributes:
        start: the model with which it began; no copy.
        length: Γ_j so far, as `fedge.training.scaffold.drift_length` counts; 0 as long as no leaf round
            counted.
        group: of leaves that began together; equal numbers stand together, −1 stands alone.
        correction: u_j, in force during the drift; None for zero.
        end: the model with which it arrived at the cloud step; None before.
    """

    start: State
    length: float = 0.0
    group: int = EVERYBODY
    correction: State | None = None
    end: State | None = None
