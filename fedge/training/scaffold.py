"""SCAFFOLD's control variates on one level or two, as pure functions on mappings of arrays.

Karimireddy et al. 2020, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", Algorithm 1
with option II for the client control. Local step: y ← y − η (g(y) − c_i + c). This module computes
c − c_i before the steps, c_i⁺ after them, and c⁺ at the server; the steps themselves are in
`fedge.training.sgd`.

On two levels, client i of leaf j steps with g − c_i + c_j + u_j: c_j − c_i corrects the client towards its
leaf, u_j the leaf towards the cloud. The leaf sends its clients c_j + u_j in place of c_j; nothing else
changes at a client.
With x_j⁰ and x_j the leaf's model after the last and before the next cloud average, and Γ_j = Σ Σ_i w_i η K_i
/ (1 − m) / Σ_i w_i over the leaf rounds between them (the length of its drift),

    d_j = (x_j⁰ − x_j) / Γ_j − u_j     the mean gradient of leaf j on its drift, as option II has a client's
    u_j⁺ = d − d_j, where d = Σ_j w_j d_j / Σ_j w_j over the averaging leaves: Σ_j w_j u_j⁺ = 0.

This is MTGC, Fang et al. 2024, "Hierarchical Federated Learning with Multi-Timescale Gradient Correction"
(NeurIPS): local step x ← x − γ (g + z_i + y_j) with z_i ← z_i + (x_i − x̄_j) / (H γ) after every one of E
leaf rounds of H steps, z_i = 0 at the start of a global round, and y_j ← y_j + (x̄_j − x̄) / (H E γ) after
it. From a common start and with drifts of equal length, u_j⁺ is y_j⁺ (a test holds them together). What
differs here: c_j − c_i is SCAFFOLD's and is kept from one global round to the next; means are weighted by
windows; leaves may have drifts of different lengths and starts; momentum counts; membership of the mean may
change (`fedge.cloud.control`).

Controls hold trainable parameters only, never BatchNorm buffers, and are float64 even where models are
float32: c and the c_i are running sums of differences, so each round's float32 rounding (1e-7) would stay for
ever and c would drift away from the weighted mean of the c_i; in float64 they agree to 1e-12. The correction
is cast to the model's precision when added to the gradient.

"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

Control = dict[str, np.ndarray]


def zero_control(parameters: Mapping[str, np.ndarray]) -> Control:
    """The control every client and server starts with: float64 zeros in the shapes of `parameters`."""
    return {name: np.zeros(array.shape, np.float64) for name, array in parameters.items()}


def correction(server_control: Mapping[str, np.ndarray], client_control: Mapping[str, np.ndarray]) -> Control:
    """c − c_i, added to every local gradient of client i.

    Raises:
        ValueError: names or shapes differ.
        FloatingPointError: an entry is not finite.

    >>> correction({"w": np.array([0.5])}, {"w": np.array([0.2])})["w"]
    array([0.3])
    """
    _check_alike(server_control=server_control, client_control=client_control)
    return _require_finite(
        "correction",
        {name: _float64(c) - _float64(client_control[name]) for name, c in server_control.items()},
    )


def control_delta(
    server_control: Mapping[str, np.ndarray],
    start: Mapping[str, np.ndarray],
    end: Mapping[str, np.ndarray],
    steps: int,
    lr: float,
    momentum: float = 0.0,
) -> Control:
    """Δc_i = c_i⁺ − c_i = −c + (x − y) / (K η), Algorithm 1, option II.

    (x − y) / (K η) is the mean of the K corrected gradients, so c_i⁺ is the mean of the client's own
    gradients along its path. With momentum m, a gradient moves the model by η now and by η m, η m², … in
    later steps, η / (1 − m) in all; so the step is K / (1 − m) instead of K. (Near the optimum, exact in the
    limit; gradients of the last 1 / (1 − m) or so steps have not acted in full yet.)

    The formula contains neither c_i nor the client's data, so the leaf server computes Δc_i from the client's
    reply (y and K) instead of receiving it: half the uplink.

    Args:
        server_control: c, as used in the local steps; its names say which entries take part.
        start: x, the model the client received; may hold more entries (buffers).
        end: y, the model after K steps.
        steps: K, optimiser steps taken (not epochs), at least 1.
        lr: η, positive.
        momentum: m of heavy-ball SGD whose buffer starts empty, 0 ≤ m < 1.

    Raises:
        ValueError: names or shapes differ, or a number is out of range.
        FloatingPointError: an entry is not finite.

    >>> c, x, y = ({"w": np.array([value])} for value in (0.25, 1.0, 0.8))
    >>> control_delta(c, x, y, steps=4, lr=0.1)["w"].round(6)  # -0.25 + (1.0 - 0.8) / (4 · 0.1)
    array([0.25])
    """
    if steps < 1:
        raise ValueError(f"scaffold: steps must be at least 1, got {steps}")
    if not 0 < lr < float("inf"):
        raise ValueError(f"scaffold: lr must be positive and finite, got {lr}")
    if not 0 <= momentum < 1:
        raise ValueError(f"scaffold: momentum must be in [0, 1), got {momentum}")
    start, end = _subset(server_control, start, "start"), _subset(server_control, end, "end")
    _check_alike(server_control=server_control, start=start, end=end)
    scale = (1 - momentum) / (steps * lr)
    delta = {
        name: (_float64(start[name]) - _float64(end[name])) * scale - _float64(c)
        for name, c in server_control.items()
    }
    return _require_finite("control delta", delta)


def updated_client_control(
    client_control: Mapping[str, np.ndarray], delta: Mapping[str, np.ndarray]
) -> Control:
    """c_i⁺ = c_i + Δc_i, with Δc_i from `control_delta`.

    Raises:
        ValueError: names or shapes differ.
    """
    _check_alike(client_control=client_control, delta=delta)
    return {name: _float64(c_i) + _float64(delta[name]) for name, c_i in client_control.items()}


def updated_server_control(
    server_control: Mapping[str, np.ndarray],
    client_deltas: Sequence[Mapping[str, np.ndarray]],
    weights: Sequence[float],
    total_weight: float,
) -> Control:
    """c⁺ = c + Σ_{i∈S} w_i Δc_i / Σ_{i∈all N} w_i, with Δc_i = c_i⁺ − c_i.

    Keeps c equal to the weighted mean of the c_i over all N clients, under the weights of the model average:
    clients outside the sample have Δc_i = 0 but count in the mean. For equal weights the sum is
    mean_{i∈S}(Δc_i) · |S| / N, as printed in Algorithm 1. Sums in float64 in the order given, so equal inputs
    in equal order give equal bits.

    Args:
        server_control: c.
        client_deltas: Δc_i of the |S| participating clients, in partition-id order; may be empty.
        weights: w_i of the same clients, non-negative.
        total_weight: sum of w_i over all N clients, whether or not they took part.

    Raises:
        ValueError: lengths, names or shapes differ, or the weights do not fit `total_weight`.
        FloatingPointError: an entry is not finite.

    Of three clients with 10 windows each, the trained one moves c by a third of its change:

    >>> c, delta = {"w": np.array([0.0])}, {"w": np.array([0.6])}
    >>> updated_server_control(c, [delta], weights=[10], total_weight=30)["w"]
    array([0.2])
    """
    if len(client_deltas) != len(weights):
        raise ValueError(f"scaffold: {len(client_deltas)} client deltas but {len(weights)} weights")
    if not 0 < total_weight < float("inf"):
        raise ValueError(f"scaffold: total_weight must be positive and finite, got {total_weight}")
    if not all(weight >= 0 for weight in weights) or sum(weights) > total_weight * (1 + 1e-9):
        raise ValueError(
            f"scaffold: weights must be non-negative and sum to at most total_weight "
            f"{total_weight}, got {list(weights)}"
        )
    updated = {name: _float64(c).copy() for name, c in server_control.items()}
    for delta, weight in zip(client_deltas, weights, strict=True):
        _check_alike(server_control=server_control, client_delta=delta)
        for name in updated:
            updated[name] += (weight / total_weight) * _float64(delta[name])
    return _require_finite("server control", updated)


def drift_length(steps: Sequence[int], weights: Sequence[float], lr: float, momentum: float = 0.0) -> float:
    """Γ of one leaf round: how far a gradient of one, at every step of every client, moves the leaf's model.

    Momentum counts as in `control_delta`: K / (1 − m) steps.

    Args:
        steps: K_i of the averaged clients, each at least 1.
        weights: w_i of the average, non-negative with a positive sum.
        lr: η, positive.
        momentum: m, 0 ≤ m < 1.

    Raises:
        ValueError: the lengths differ or the weights sum to nothing.
    """
    total = sum(weights)
    if len(steps) != len(weights) or not 0 < total < float("inf"):
        raise ValueError(f"scaffold: {len(steps)} step counts do not fit the weights {list(weights)}")
    mean = sum(k * w for k, w in zip(steps, weights, strict=True)) / total
    return mean * lr / (1 - momentum)


def leaf_control(
    start: Mapping[str, np.ndarray],
    end: Mapping[str, np.ndarray],
    length: float,
    leaf_correction: Mapping[str, np.ndarray] | None,
    names: Sequence[str],
) -> Control:
    """d_j = (x_j⁰ − x_j) / Γ_j − u_j, the mean gradient of a leaf on its drift.

    Args:
        start: x_j⁰, with which the leaf began; may hold more entries (buffers).
        end: x_j, at which it arrived.
        length: Γ_j, the sum of `drift_length` over its leaf rounds, positive.
        leaf_correction: u_j, which was in force; None for zero.
        names: the corrected entries.

    Raises:
        ValueError: names or shapes differ, or the length is not positive.
        FloatingPointError: an entry is not finite.
    """
    if not 0 < length < float("inf"):
        raise ValueError(f"scaffold: the length of a drift must be positive and finite, got {length}")
    start, end = _subset(names, start, "start"), _subset(names, end, "end")
    _check_alike(start=start, end=end)
    control = {name: (_float64(x) - _float64(end[name])) / length for name, x in start.items()}
    if leaf_correction is not None:
        _check_alike(start=start, leaf_correction=leaf_correction)
        control = {name: d - _float64(leaf_correction[name]) for name, d in control.items()}
    return _require_finite("leaf control", control)


def leaf_corrections(controls: Sequence[Mapping[str, np.ndarray]], weights: Sequence[float]) -> list[Control]:
    """u_j = d − d_j for leaves averaged together, d the mean of their d_j.

    Their sum under the same weights is zero, so the corrections do not move the mean. Sums in float64 in
    the order given.

    Args:
        controls: d_j, from `leaf_control`, at least one.
        weights: w_j of the average, non-negative with a positive sum.

    Raises:
        ValueError: there is none, lengths, names or shapes differ, or the weights sum to nothing.
    """
    total = sum(weights)
    if not controls or len(controls) != len(weights) or not 0 < total < float("inf"):
        raise ValueError(f"scaffold: {len(controls)} leaf controls do not fit the weights {list(weights)}")
    first, *rest = controls
    for other in rest:
        _check_alike(leaf_control=first, other=other)
    mean = {
        name: sum((w / total) * _float64(d[name]) for d, w in zip(controls, weights, strict=True))
        for name in first
    }
    return [{name: mean[name] - _float64(d[name]) for name in first} for d in controls]


def family_corrections(
    controls: Sequence[Mapping[str, np.ndarray]], weights: Sequence[float], memberships: np.ndarray
) -> list[Control]:
    """u_j = Σ_k Π_jk d_k − d_j for leaves with mixtures of K models, d_k = Σ_e Π_ek w_e d_e / Σ_e Π_ek w_e.

    Their sum under the weights is zero; with Π of zeros and ones, `leaf_corrections` of each group.

    Args:
        controls: d_j of S leaves, from `leaf_control`.
        weights: w_j, non-negative with a positive sum.
        memberships: Π (S, K), rows sum to 1.
    """
    means: dict[int, list[Control]] = {}
    for k in range(memberships.shape[1]):
        shares = [float(share) * weight for share, weight in zip(memberships[:, k], weights, strict=True)]
        if any(shares):
            means[k] = leaf_corrections(controls, shares)
    corrections: list[Control] = []
    for leaf, row in enumerate(memberships):  # means[k][leaf] is d_k − d_leaf, and a row sums to 1
        parts = [(float(row[k]), means[k][leaf]) for k in means if row[k] > 0]
        corrections.append(
            {name: np.sum([share * part[name] for share, part in parts], axis=0) for name in controls[leaf]}
        )
    return corrections


def _float64(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, dtype=np.float64)


def _subset(names: Iterable[str], state: Mapping[str, np.ndarray], label: str) -> Control:
    missing = [name for name in names if name not in state]
    if missing:
        raise ValueError(f"scaffold: {label} has no entry {missing[0]!r} that the server control has")
    return {name: state[name] for name in names}


def _check_alike(**mappings: Mapping[str, np.ndarray]) -> None:
    (first, reference), *rest = mappings.items()
    for label, other in rest:
        differing = sorted(reference.keys() ^ other.keys())
        if differing:
            raise ValueError(f"scaffold: {first} and {label} differ in entry {differing[0]!r}")
        for name, array in reference.items():
            if np.shape(array) != np.shape(other[name]):
                raise ValueError(
                    f"scaffold: {name!r} has shape {np.shape(array)} in {first} "
                    f"but {np.shape(other[name])} in {label}"
                )


def _require_finite(label: str, control: Control) -> Control:
    for name, array in control.items():
        if not np.isfinite(array).all():
            raise FloatingPointError(f"scaffold: {label} entry {name!r} is not finite")
    return control
