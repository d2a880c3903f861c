"""Settings of a server's steps, constant over a run. Shape letter: S children of the server."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedge.cloud.rule import RuleMaker
from fedge.states.averaging import State


@dataclass(frozen=True)
class CloudSetting:
    """Constant settings of a run.

    Attributes:
        parameter_names: trainable entries of a state, in layer order (without BatchNorm statistics).
        seed: seed of the run.
        truth: global round → (S,) groups planted by a scenario; None without one.
        keep: stores the cloud's own models in files or in memory.
        asks_all: whether all clients make a probe, because the updates of the first leaf round cannot be
            compared if some clients do not train, or train on several times as many windows as others.
        even_windows: each client's training windows in a probe of the run's first model; 0 for all.
        rule: combines the models of a group; None for the mean.
        taught: (clients, C) training windows of each class, by partition id; None if not counted.
        variances: entries of a state that must not be negative.
    """

    parameter_names: tuple[str, ...]
    seed: int = 0
    truth: Callable[[int], Sequence[int]] | None = None
    keep: Callable[[State], State] = lambda state: state
    asks_all: bool = False
    even_windows: int = 0
    rule: RuleMaker | None = None
    taught: np.ndarray | None = None
    variances: tuple[str, ...] = ()
