"""Weight s(τ) of an update by its staleness: τ is the number of versions since its starting model.

    constant     1
    polynomial   (1 + τ)^(−a)                            Xie et al. 2019; a = ½ in FedBuff's experiments
    hinge        1 if τ ≤ b, else 1 / (1 + a (τ − b))    Xie et al. 2019
    cosine       ½ (1 + cos(π τ / (2 b))), 0 from τ = 2b on

The last is 1 − β(τ) of FedRevive (Askin et al. 2025) with b = s_max: the same method without distillation, as
its control.
"""

import math

from fedge.config.registers.option import ConfigError, nearest, shown

STALENESS = ("constant", "polynomial", "hinge", "cosine")


def weight(kind: str, staleness: int, a: float = 0.5, b: float = 4.0) -> float:
    """s(τ) in [0, 1].

    >>> [round(weight("polynomial", t), 3) for t in (0, 3, 8)]
    [1.0, 0.5, 0.333]
    >>> [weight("hinge", t, a=0.5, b=4) for t in (4, 6)]
    [1.0, 0.5]
    >>> [round(weight("cosine", t, b=10), 3) for t in (0, 10, 20, 99)]
    [1.0, 0.5, 0.0, 0.0]

    Raises:
        ConfigError: unknown function, or impossible a or b.
    """
    if not (_is_number(a) and a >= 0 and _is_number(b) and b >= 0 and (kind != "cosine" or b > 0)):
        raise ConfigError(
            f"a and b of a staleness must be numbers of at least 0, b of cosine above 0, but are {shown(a)} "
            f"and {shown(b)}; try a=0.5 and b=4"
        )
    if kind == "constant":
        return 1.0
    if kind == "polynomial":
        return float((1 + staleness) ** -a)
    if kind == "hinge":
        return 1.0 if staleness <= b else 1 / (1 + a * (staleness - b))
    if kind == "cosine":
        return 0.5 * (1 + math.cos(math.pi * staleness / (2 * b))) if staleness < 2 * b else 0.0
    raise ConfigError(
        f"staleness must be one of {', '.join(STALENESS)}, but is {shown(kind)}"
        f"{nearest(str(kind), STALENESS) or '; try polynomial'}"
    )


def _is_number(value: object) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
