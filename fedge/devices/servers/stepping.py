"""Server optimisers for a buffer's mean update: add it, use momentum, or step by Adam.

The mean d of the weighted updates serves as the negative gradient (Reddi et al. 2021); m and v are the
server's state. Untrained entries, such as BatchNorm's statistics, are moved by d itself.

    momentum   m ← β m + d;  w ← w + η m                                       (Hsu et al. 2019, FedAvgM)
    adam       m ← β m + (1 − β) d;  v ← β₂ v + (1 − β₂) d²;  w ← w + η m / (√v + ε)
               with v = ε² at the beginning, and no bias correction            (Reddi et al. 2021, FedAdam)
"""

import numpy as np

from fedge.config.registers.option import ConfigError, nearest, shown
from fedge.devices.servers.arrivals import Memory

PLAIN, MOMENTUM, ADAM = "sgd", "momentum", "adam"
_KNOWN = (PLAIN, MOMENTUM, ADAM)


def refuse_server_optimizer(optimizer: str, beta: float, beta2: float, epsilon: float) -> None:
    """Raise ConfigError for an unknown optimiser, or impossible numbers."""
    if optimizer not in _KNOWN:
        hint = nearest(optimizer, _KNOWN) if isinstance(optimizer, str) else ""
        raise ConfigError(
            f"optimizer of a rule must be one of {', '.join(_KNOWN)}, but is {shown(optimizer)}"
            f"{hint or '; change it'}"
        )
    for name, value in (("beta", beta), ("beta2", beta2)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise ConfigError(
                f"{name} of a rule must be a number of at least 0, below 1, but is {shown(value)}; try 0.9"
            )
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float) or not 0 < epsilon < np.inf:
        raise ConfigError(f"epsilon of a rule must be a number above 0, but is {shown(epsilon)}; try 0.001")


def next_model(
    model: np.ndarray,
    update: np.ndarray,
    memory: Memory,
    optimizer: str,
    lr: float,
    beta: float,
    beta2: float,
    epsilon: float,
) -> np.ndarray:
    """The next model, (P,) float64; updates the optimiser's state in `memory.arrays`.

    Args:
        model: w, (P,).
        update: d, (P,) float64.
        memory: memory of the server.
        optimizer: "momentum" or "adam".
        lr: η.
        beta, beta2, epsilon: β, β₂, ε.

    β = ½ and d = 2 twice give m = 2, then 3:

    >>> from fedge.devices.servers.arrivals import Memory
    >>> w, memory = np.array([0.0]), Memory(2)
    >>> w = next_model(w, np.array([2.0]), memory, "momentum", 1.0, 0.5, 0.99, 1e-3)
    >>> next_model(w, np.array([2.0]), memory, "momentum", 1.0, 0.5, 0.99, 1e-3)
    array([5.])
    """
    arrays = memory.arrays
    share = 1.0 - beta if optimizer == ADAM else 1.0
    arrays["momentum"] = beta * arrays.get("momentum", np.zeros(len(model))) + share * update
    direction = arrays["momentum"]
    if optimizer == ADAM:
        squares = arrays.get("squares", np.full(len(model), epsilon**2))
        arrays["squares"] = beta2 * squares + (1.0 - beta2) * update**2
        direction = direction / (np.sqrt(arrays["squares"]) + epsilon)
    step = lr * direction
    untrained = _untrained(memory, len(model))
    step[untrained] = update[untrained]
    updated: np.ndarray = model.astype(np.float64) + step
    return updated


def _untrained(memory: Memory, count: int) -> np.ndarray:
    """Mask of untrained entries, (P,) bool; all False without facts about the model."""
    facts = memory.facts
    if facts is None:
        return np.zeros(count, bool)
    masks = {
        name: np.full(array.shape, name not in facts.trainable, array.dtype)
        for name, array in facts.version.state.items()
    }
    return facts.layout.vector(masks).astype(bool)
