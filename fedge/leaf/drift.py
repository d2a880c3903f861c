"""Drift of a server since the last round of its parent, corrected by SCAFFOLD on two levels.

Source: Fang et al. 2024, MTGC; the formulas are in `fedge.training.scaffold`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedge.states.averaging import State
from fedge.states.restore_checks import checked_int, checked_list, checked_number, state

EVERYBODY, ALONE = 0, -1  # the initial group of all leaves, and the group of a single leaf


@dataclass
class Drift:
    """Movement of a leaf or a region since the last round of its parent.

    Attributes:
        start: the starting model, not copied.
        length: Γ_j so far, as defined by `fedge.training.scaffold.drift_length`; for a region the mean of its
            children's lengths, weighted like their models; 0 before the first counted leaf round.
        group: number shared by all servers with the same start; −1 for a server on its own.
        correction: u_j applied during the drift; None for zero.
        end: the model at the end of the parent's latest round; None before.
        counted: part of the length that the parent has added to its own, in rounds without a step.
    """

    start: State
    length: float = 0.0
    group: int = EVERYBODY
    correction: State | None = None
    end: State | None = None
    counted: float = 0.0

    def take_increase(self) -> float:
        """The length since the last call, for the parent's own drift."""
        increase, self.counted = self.length - self.counted, self.length
        return increase

    def depart_from(self, model: State) -> None:
        """Start anew from a model, unless it is the server's own after a parent's round without a step."""
        if self.length == 0 or model is not self.end:
            self.start, self.length, self.counted = model, 0.0, 0.0

    def states(self) -> dict[str, State]:
        """States to save; while the length is 0, the start is the current model and is left out."""
        correction = {} if self.correction is None else {"correction": self.correction}
        return correction | ({"start": self.start} if self.length > 0 else {})

    def facts(self) -> list[Any]:
        """Further state as JSON."""
        return [self.length, self.group, *([self.counted] if self.counted else [])]

    @classmethod
    def restored(
        cls, states: Mapping[str, State], facts: Any, model: State, control: State | None
    ) -> "Drift":
        """Drift from `states` and `facts`, for a server at `model` with a `control`.

        Raises:
            ValueError: they do not fit such a server.
        """
        length, group, *counted = checked_list(facts, "a server's drift", 3 if len(facts) > 2 else 2)
        correction = states.get("correction")
        if correction is not None:
            state(correction, control or {}, "the correction of a server's drift")
        return cls(
            state(states.get("start", model), model, "the start of a server's drift"),
            checked_number(length, "the length of a server's drift", 0),
            checked_int(group, "the group of a server's drift", ALONE), correction,
            counted=checked_number(counted[0], "the counted part of a drift", 0) if counted else 0.0,
        )  # fmt: skip


def corrected_control(control: State, correction: State) -> State:
    """c_j + u_j, entry by entry."""
    return {name: c + correction[name] for name, c in control.items()}
