"""The arithmetic of private updates: clip, average over the clients asked, add noise, move the norm.

With x the leaf's model, x_i as trained by client i, C the clipping norm and n the clients asked by the leaf:

    Δ_i = (x_i − x) · min(1, C / |x_i − x|)
    x⁺  = x + (Σ_i Δ_i + N(0, (z_Δ C)² I)) / n            over those whose reply counts

n is known before any client replies. So one client's message moves the mean by at most C / n, whatever the
others send. This is the sensitivity if neighbours differ in the presence of one client's reply; it is twice
as large if one client's data are replaced by any others. C is the clipping norm of this round.

An adaptive C follows a quantile γ of the updates' norms, by a noisy count of unclipped updates, b_i = 1 if
|x_i − x| ≤ C, else 0. A missing reply counts ½:

    b̃  = ½ + (Σ_i (b_i − ½) + N(0, σ_b²)) / n             σ_b = n / 20
    C⁺ = C · exp(−η (b̃ − γ))

Mean and count together are as private as one Gaussian release of multiplier z if z_Δ = (z⁻² − (2σ_b)⁻²)^(−½).

Sources: McMahan et al. 2018, "Learning Differentially Private Recurrent Language Models" (the mean, with a
fixed denominator); Andrew et al. 2021, "Differentially Private Learning with Adaptive Clipping", algorithm 1
and theorem 1; Balle and Wang 2018, "Improving the Gaussian Mechanism for Differential Privacy: Analytical
Calibration and Optimal Denoising", theorem 8.
"""

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from fedge.privacy.noise import Normals
from fedge.states.averaging import State, batches, part_of
from fedge.states.norms import update_norm

_COUNT_NOISE = (
    1 / 20
)  # std of the count's noise, as a share of the clients asked: Andrew et al. 2021, sec. 3.1
_TOLERANCE = 1e-9  # for limits approached through a logarithm
_NORM_LIMITS = (1e-30, 1e30)  # between them a norm can be squared and divided by


def clip_scale(norm: float, clip_norm: float) -> float:
    """Factor limiting an update's norm to `clip_norm`.

    >>> clip_scale(5.0, 1.0), clip_scale(0.5, 1.0), clip_scale(0.0, 1.0)
    (0.2, 1.0, 1.0)
    """
    return 1.0 if norm <= clip_norm else clip_norm / norm


def clipped(start: State, end: State, clip_norm: float) -> tuple[dict[str, np.ndarray], bool]:
    """start + the clipped update as float64 arrays, and whether the update had to be clipped.

    Other than floating-point entries (step counters) are unchanged: no noise could cover them.
    """
    norm = update_norm(end, start)
    scale = clip_scale(norm, clip_norm)
    return {
        name: first + scale * (end[name].astype(np.float64) - first) if _is_floating(first) else first
        for name, first in start.items()
    }, not norm <= clip_norm


def released_mean(
    model: State,
    states: Sequence[State],
    clip_norm: float,
    asked: int,
    noise_std: float,
    rng: Normals,
    sent: Collection[str] | None = None,
) -> tuple[State, list[float]]:
    """model + Σ clipped updates / asked + noise, and the norm of each update before clipping.

    Sums in float64 in the order given. Entries other than floating-point ones stay the model's, and so do
    those sent by no client: they contain nothing of a client, and noise would only wear them away, round by
    round.

    Args:
        model: model at the start of the leaf round.
        states: states of the clients with accepted replies; finite, with the model's entries and shapes.
        clip_norm: C, of this round.
        asked: n, the number of clients asked, at least as many as `states`.
        noise_std: standard deviation of the noise on every number of the mean; 0 adds none.
        rng: source of the noise.
        sent: entries of the model sent by clients, the same for all whatever their data; None for all.
    """
    norms = [update_norm(state, model) for state in states]
    scales = [clip_scale(norm, clip_norm) / asked for norm in norms]
    released = {n: np.empty(a.shape, a.dtype) if _is_floating(a) else a for n, a in model.items()}
    for batch in batches({name: array for name, array in released.items() if _is_floating(array)}):
        first = {name: part.astype(np.float64) for name, part in part_of(model, batch).items()}
        total = {name: part.copy() for name, part in first.items()}
        for state, scale in zip(states, scales, strict=True):
            for name, part in part_of(state, batch).items():
                total[name] += scale * (part - first[name])
        for name, rows in batch.items():
            if noise_std and (sent is None or name in sent):
                total[name] += noise_std * rng.standard_normal(len(total[name]))
            released[name].reshape(-1)[rows] = total[name]
    return released, norms


def count_std(asked: int, multiplier: float) -> float:
    """σ_b, the std of the noise on the count of unclipped updates; 0 without noise."""
    return _COUNT_NOISE * asked if multiplier else 0.0


def update_multiplier(multiplier: float, count_noise: float) -> float:
    """z_Δ, the noise on the mean with which mean and count together are worth `multiplier`.

    Args:
        multiplier: z of both together, below 2 · `count_noise`.
        count_noise: σ_b.

    With a much noisier count than necessary, nearly all of z is left for the mean:

    >>> round(update_multiplier(1.0, 5.0), 4), update_multiplier(0.0, 0.0)
    (1.005, 0.0)
    """
    if not multiplier:
        return 0.0
    assert multiplier < 2 * count_noise, "refused by fedge.leaf.strategies.quorum"
    return float((multiplier**-2 - (2 * count_noise) ** -2) ** -0.5)


def next_clip_norm(
    clip_norm: float, unclipped: Sequence[bool], asked: int, count_noise: float, quantile: float, lr: float
) -> float:
    """C⁺.

    Args:
        clip_norm: C.
        unclipped: number of replies with an update within C.
        asked: n.
        count_noise: the draw of N(0, σ_b²).
        quantile: γ, target share of unclipped updates.
        lr: η.

    Nobody of four is within C, of whom half should be: C grows by the factor exp(0.2 · 0.5).

    >>> round(next_clip_norm(1.0, [False] * 4, 4, 0.0, 0.5, 0.2), 4)
    1.1052
    """
    share = 0.5 + (sum(bool(bit) - 0.5 for bit in unclipped) + count_noise) / asked
    exponent = -lr * (share - quantile)
    low, high = (math.log(limit) for limit in _NORM_LIMITS)
    return math.exp(min(max(math.log(clip_norm) + exponent, low), high))


def is_clip_norm(norm: Any) -> bool:
    """Whether a value is a possible result of `next_clip_norm`.

    >>> [is_clip_norm(norm) for norm in (0.5, 1e30, 0.0, -1.0, 1e40, float("nan"))]
    [True, True, False, False, False, False]
    """
    low, high = _NORM_LIMITS
    return bool(low * (1 - _TOLERANCE) <= norm <= high * (1 + _TOLERANCE))


def gaussian_log_delta(epsilon: float, multiplier: float) -> float:
    """log δ of one Gaussian release: the smallest δ for (ε, δ)-privacy.

        δ = Φ(1/2z − εz) − e^ε Φ(−1/2z − εz)

    Args:
        epsilon: ε ≥ 0.
        multiplier: z > 0, noise over sensitivity.
    """
    from scipy.special import log_ndtr  # SciPy is not needed by clients without noise

    within = float(log_ndtr(0.5 / multiplier - epsilon * multiplier))
    beyond = epsilon + float(log_ndtr(-0.5 / multiplier - epsilon * multiplier))
    return within + math.log1p(-math.exp(min(beyond - within, 0.0))) if beyond < within else -math.inf


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """The smallest noise, over the sensitivity, for an (ε, δ)-private release.

    For any ε, unlike √(2 ln(1.25/δ)) / ε, which is proven up to 1 and more than is needed there:

    >>> round(gaussian_multiplier(1.0, 1e-5), 4), round(math.sqrt(2 * math.log(1.25e5)), 4)
    (3.7306, 4.8448)
    """
    from scipy.optimize import brentq

    log_delta = math.log(delta)
    low = high = 1.0
    while gaussian_log_delta(epsilon, high) > log_delta:
        high *= 2
    while gaussian_log_delta(epsilon, low) <= log_delta:
        low /= 2
    root = brentq(lambda z: gaussian_log_delta(epsilon, z) - log_delta, low, high, xtol=1e-12 * low)
    return float(root) * (1 + 1e-9)  # rounding must not weaken the promise


def _is_floating(array: np.ndarray) -> bool:
    return bool(np.issubdtype(array.dtype, np.floating))
