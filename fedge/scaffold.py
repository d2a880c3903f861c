"""SCAFFOLD's control variates as pure functions on mappings of arrays.

Karimireddy et al. 2020, "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", Algorithm 1
with option II for the client control. Local step: y ← y − η (g(y) − c_i + c). This module computes
c − c_i before the steps, c_i⁺ after them, and c⁺ at the server; the steps themselves are in `training.py`.

Controls hold trainable parameters only, never BatchNorm buffers, and are float64 even where models are
float32: c and the c_i are running sums of differences, so each round's float32 rounding (1e-7) would
stay for ever and c would drift away from the weighted mean of the c_i; in float64 they agree to 1e-12.
The correction is cast to the model's precision where it is added to the gradient.

Called by the client (correction, client control) and by the leaf server (server control).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

Control = dict[str, np.ndarray]


def zero_control(parameters: Mapping[str, np.ndarray]) -> Control:
    """The control every client and server starts with: float64 zeros in the shapes of `parameters`."""
    return {name: np.zeros(array.shape, np.float64) for name, array in parameters.items()}


def correction(server_control: Mapping[str, np.ndarray], client_control: Mapping[str, np.ndarray]) -> Control:
    """c − c_i: what is added to every local gradient of client i.

    Raises:
        ValueError: names or shapes differ.
        FloatingPointError: an entry is not finite.
    """
    _check_alike(server_control=server_control, client_control=client_control)
    return _finite(
        "correction",
        {name: _wide(c) - _wide(client_control[name]) for name, c in server_control.items()},
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
    gradients along its path. With momentum m, a gradient moves the model by η now and by η m, η m², …
    in later steps, η / (1 − m) in all; so the step is K / (1 − m) instead of K. (Near the optimum that is
    exact in the limit; gradients of the last 1 / (1 − m) or so steps have not acted in full yet.)

    Neither c_i nor the client's data occur in it, so the leaf server computes it from the client's reply
    (y and K) instead of receiving it: half the uplink.

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
        name: (_wide(start[name]) - _wide(end[name])) * scale - _wide(c) for name, c in server_control.items()
    }
    return _finite("control delta", delta)


def updated_client_control(
    client_control: Mapping[str, np.ndarray], delta: Mapping[str, np.ndarray]
) -> Control:
    """c_i⁺ = c_i + Δc_i, with Δc_i from `control_delta`.

    Raises:
        ValueError: names or shapes differ.
    """
    _check_alike(client_control=client_control, delta=delta)
    return {name: _wide(c_i) + _wide(delta[name]) for name, c_i in client_control.items()}


def updated_server_control(
    server_control: Mapping[str, np.ndarray],
    client_deltas: Sequence[Mapping[str, np.ndarray]],
    weights: Sequence[float],
    total_weight: float,
) -> Control:
    """c⁺ = c + Σ_{i∈S} w_i Δc_i / Σ_{i∈all N} w_i, with Δc_i = c_i⁺ − c_i.

    Keeps c equal to the weighted mean of the c_i over all N clients, under the weights of the model
    average: a client that was not sampled has Δc_i = 0 but still counts in the mean. For equal weights
    the sum is mean_{i∈S}(Δc_i) · |S| / N, as printed in Algorithm 1. Sums in float64 in the order given,
    so equal inputs in equal order give equal bits.

    Args:
        server_control: c.
        client_deltas: Δc_i of the |S| clients that took part, in partition-id order; may be empty.
        weights: w_i of the same clients, non-negative.
        total_weight: sum of w_i over all N clients, whether or not they took part.

    Raises:
        ValueError: lengths, names or shapes differ, or the weights do not fit `total_weight`.
        FloatingPointError: an entry is not finite.
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
    updated = {name: _wide(c).copy() for name, c in server_control.items()}
    for delta, weight in zip(client_deltas, weights, strict=True):
        _check_alike(server_control=server_control, client_delta=delta)
        for name in updated:
            updated[name] += (weight / total_weight) * _wide(delta[name])
    return _finite("server control", updated)


def _wide(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, dtype=np.float64)


def _subset(names: Mapping[str, np.ndarray], state: Mapping[str, np.ndarray], what: str) -> Control:
    missing = [name for name in names if name not in state]
    if missing:
        raise ValueError(f"scaffold: {what} has no entry {missing[0]!r} that the server control has")
    return {name: state[name] for name in names}


def _check_alike(**mappings: Mapping[str, np.ndarray]) -> None:
    (first, reference), *others = mappings.items()
    for what, other in others:
        differing = sorted(reference.keys() ^ other.keys())
        if differing:
            raise ValueError(f"scaffold: {first} and {what} differ in entry {differing[0]!r}")
        for name, array in reference.items():
            if np.shape(array) != np.shape(other[name]):
                raise ValueError(
                    f"scaffold: {name!r} has shape {np.shape(array)} in {first} "
                    f"but {np.shape(other[name])} in {what}"
                )


def _finite(what: str, control: Control) -> Control:
    for name, array in control.items():
        if not np.isfinite(array).all():
            raise FloatingPointError(f"scaffold: {what} entry {name!r} is not finite")
    return control
