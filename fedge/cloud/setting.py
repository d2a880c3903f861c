"""Settings of a server's steps that stay the same through a run. Shape letter: S children of the server."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedge.cloud.rule import RuleMaker
from fedge.states.averaging import State


@dataclass(frozen=True)
class CloudSetting:
    """Constant settings of a run.

    Attributes:
        parameter_names: the trainable entries of a state, in layer order (not BatchNorm statistics).
        seed: root of the run's random streams.
        truth: global round → (S,) the groups planted by a scenario; None without one.
        keep: decides where the cloud's own models lie.
        asks_all: whether all clients make a probe, because in the first leaf round some do not train, or
            train on several times as many windows as others, which makes its updates incomparable.
        even_windows: each client's training windows in a probe of the run's first model; 0 for all.
        rule: how models of a group become one; None for their mean.
        taught: (clients, C) training windows of each class, by partition id; None where nobody has counted.
    """

    parameter_names: tuple[str, ...]
    seed: int = 0
    truth: Callable[[int], Sequence[int]] | None = None
    keep: Callable[[State], State] = lambda state: state
    asks_all: bool = False
    even_windows: int = 0
    rule: RuleMaker | None = None
    taught: np.ndarray | None = None
