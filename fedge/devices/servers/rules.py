"""Rules of a server for arrivals. A rule is one function

    rule(model, memory, arrival, further arguments by keyword) → the new model (P,), or None for no change

called for every arrival, in the order of virtual time. `model` is the server's vector (P,), read-only; the
rule may change `memory`, the server's state between arrivals. Its result is cast to the model's dtype; sums
are in float64, in the order of arrival. Below, w is the model, Δ_i = end_i − start_i the update of a child,
τ_i the number of versions since its start, s(τ) its weight (`fedge.devices.servers.staleness`), and K the
size of the buffer.

A rule with the trait `fedge.config.registers.parts.ROUNDS` collects arrivals, and is called with None
instead of an arrival at the end of a round.
"""

from collections.abc import Sequence

import numpy as np

from fedge.config.registers.option import ConfigError, shown
from fedge.devices.servers.arrivals import Arrival, Memory
from fedge.devices.servers.staleness import weight
from fedge.devices.servers.stepping import PLAIN, next_model, refuse_server_optimizer

_BLOCK = 2**18  # entries of a vector summed at a time


def model_after_arrivals(
    model: np.ndarray, arrivals: Sequence[Arrival], weights: Sequence[float], total: float
) -> np.ndarray:
    """w + Σ (c_i / total) Δ_i as (P,) float64, summed in the order given.

    A child starting from w itself adds c_i / total · end_i, which leaves 1 − Σ c_i / total of w. So if all
    did, and their c_i add up to `total`, this is their weighted mean, with the same bits as
    `fedge.states.averaging.weighted_mean`.

    Two children, one of which started from 0: (1·4 + 3·2) / 4 − 3·0 / 4 + (1 − 1/4)·2

    >>> w, old = np.array([2.0]), np.array([0.0])
    >>> two = [Arrival(0, 0, w, np.array([4.0])), Arrival(1, 5, old, np.array([2.0]))]
    >>> model_after_arrivals(w, two, [1, 3], 4)
    array([4.])
    """
    updated = np.empty(len(model), np.float64)
    fresh_weights = [
        share for arrival, share in zip(arrivals, weights, strict=True) if arrival.start is model
    ]
    remainder = total - float(np.sum(fresh_weights))
    for first in range(0, len(model), _BLOCK):  # block by block: models may exceed the memory
        block = slice(first, first + _BLOCK)
        part = updated[block]
        for number, (arrival, share) in enumerate(zip(arrivals, weights, strict=True)):
            product = arrival.end[block] * np.float64(share / total)
            if number:
                part += product
            else:
                part[...] = product  # not added to zeros: 0.0 + -0.0 would lose a sign
        if remainder != 0:
            part += remainder / total * model[block].astype(np.float64)
        for arrival, share in zip(arrivals, weights, strict=True):
            if arrival.start is not model:
                part -= share / total * arrival.start[block].astype(np.float64)
    return updated


def fedavg(model: np.ndarray, memory: Memory, arrival: Arrival | None, lr: float = 1.0) -> np.ndarray | None:
    """w ← w + η Σ (n_i / n) Δ_i over all children of a round, n_i their windows times their share of steps.

    Source: McMahan et al. 2017, Algorithm 1; η as in Reddi et al. 2021, with which 1 is FedAvg.
    """
    require_in_range("lr", lr, 0.0)
    if arrival is not None:
        memory.buffer.append(arrival)
        return None
    buffered = sorted(memory.buffer, key=lambda each: each.child)
    memory.buffer.clear()
    if not buffered:
        return None
    weights = [each.weight * each.share for each in buffered]
    return model_after_arrivals(model, buffered, [lr * each for each in weights], float(np.sum(weights)))


def fedasync(
    model: np.ndarray,
    memory: Memory,
    arrival: Arrival,
    alpha: float = 0.6,
    staleness: str = "polynomial",
    a: float = 0.5,
    b: float = 4.0,
) -> np.ndarray:
    """w ← (1 − α s(τ) p) w + α s(τ) p end, at every arrival; p is the share of its steps.

    Source: Xie, Koyejo, Gupta 2019 (arXiv 1903.03934), Algorithm 1: α_t = α s(t − τ). Only the paper's
    abstract could be read: the mixture was checked in the code of Async-HFL (Yu et al. 2023), which does the
    same on both levels with α = 0.9; the forms of s and the defaults were not checked.

    α = 0.5 and τ = 3 give ½ · 4^(−½) = ¼ of the new model:

    >>> w = np.array([4.0])
    >>> fedasync(w, Memory(2), Arrival(0, 3, np.array([0.0]), np.array([8.0])), alpha=0.5)
    array([5.])
    """
    require_in_range("alpha", alpha, 0.0, 1.0)
    share = alpha * weight(staleness, arrival.staleness, a, b) * arrival.share
    mixed: np.ndarray = (1 - share) * model.astype(np.float64) + share * arrival.end.astype(np.float64)
    return mixed


def fedbuff(
    model: np.ndarray,
    memory: Memory,
    arrival: Arrival,
    buffer: int = 10,
    lr: float = 1.0,
    staleness: str = "polynomial",
    a: float = 0.5,
    b: float = 4.0,
    optimizer: str = PLAIN,
    beta: float = 0.9,
    beta2: float = 0.99,
    epsilon: float = 1e-3,
) -> np.ndarray | None:
    """w ← w + (η / K) Σ s(τ_i) p_i Δ_i, once the buffer has K updates; then it is emptied.

    p_i is the share of steps taken by a device, 1 for full jobs. With privacy the Δ_i are clipped, and the
    sum has noise (`fedge.devices.servers.private_buffer`). An optimizer, "momentum" or "adam", uses the mean
    (1/K) Σ s(τ_i) Δ_i as its gradient (`fedge.devices.servers.stepping`). With staleness="cosine" this is
    FedRevive without distillation, the control of this method.

    Source: Nguyen et al. 2022 (arXiv 2106.06639), Algorithm 1, with s(τ) = 1 / √(1 + τ). Its authors' FLSim
    divides s by its value at an average staleness, and takes the sum instead of the mean: both scale η.

    K = 2, one fresh update and one with τ = 3, so s = ½, give 2 + (1·2 + ½·4) / 2:

    >>> w, memory = np.array([2.0]), Memory(2)
    >>> fedbuff(w, memory, Arrival(0, 0, w, np.array([4.0])), buffer=2)
    >>> fedbuff(w, memory, Arrival(1, 3, np.array([0.0]), np.array([4.0])), buffer=2)
    array([4.])
    """
    require_in_range("lr", lr, 0.0)
    require_positive_int("buffer", buffer)
    refuse_server_optimizer(optimizer, beta, beta2, epsilon)
    weight(staleness, arrival.staleness, a, b)  # report errors at the first arrival, not the K-th
    memory.buffer.append(arrival)
    if len(memory.buffer) < buffer:
        return None
    step = lr if optimizer == PLAIN else 1.0
    weights = [step * weight(staleness, each.staleness, a, b) * each.share for each in memory.buffer]
    if memory.private is None:
        updated = model_after_arrivals(model, memory.buffer, weights, buffer)
    else:
        updated = model + memory.private.released(memory, memory.buffer, weights, step) / buffer
    memory.buffer.clear()
    if optimizer == PLAIN:
        return updated
    return next_model(model, updated - model, memory, optimizer, lr, beta, beta2, epsilon)


def ca2fl(
    model: np.ndarray, memory: Memory, arrival: Arrival, buffer: int = 10, lr: float = 1.0
) -> np.ndarray | None:
    """w ← w + η (h + (1/K) Σ (Δ_i − h_i)), once there are K updates, whatever their staleness.

    h_i is the last update of child i, 0 before its first, and h = (1/n) Σ h_i the mean over all n children;
    afterwards h_i ← Δ_i for the children in the buffer. The server keeps n vectors.

    Source: Wang et al. 2024 (ICLR), after two independent implementations in agreement; no official code was
    found. If a child is in a buffer twice, both updates are compared with its previous h_i, and the later one
    is kept.

    Two children, K = 1: after Δ_0 = 2, h = 1; then Δ_1 = 4 gives 1 + (4 − 0), and h = 3:

    >>> w, memory = np.array([0.0]), Memory(2)
    >>> ca2fl(w, memory, Arrival(0, 0, w, w + 2), buffer=1), memory.arrays["mean"]
    (array([2.]), array([1.]))
    >>> ca2fl(w, memory, Arrival(1, 0, w, w + 4), buffer=1), memory.arrays["mean"]
    (array([5.]), array([3.]))
    """
    require_in_range("lr", lr, 0.0)
    require_positive_int("buffer", buffer)
    memory.buffer.append(arrival)
    if len(memory.buffer) < buffer:
        return None
    arrays = memory.arrays
    mean = arrays.get("mean", np.zeros(len(model), np.float64))
    step, new_mean = mean.copy(), mean.copy()
    deltas = [each.delta for each in memory.buffer]
    for each, delta in zip(memory.buffer, deltas, strict=True):
        step += (delta - arrays.get(f"last-{each.child}", 0.0)) / buffer
    for each, delta in zip(memory.buffer, deltas, strict=True):
        last = delta.astype(model.dtype)  # n of them: no larger than the model itself
        new_mean += (last.astype(np.float64) - arrays.get(f"last-{each.child}", 0.0)) / memory.children
        arrays[f"last-{each.child}"] = last
    arrays["mean"] = new_mean
    memory.buffer.clear()
    updated: np.ndarray = model + lr * step
    return updated


def fedfa(model: np.ndarray, memory: Memory, arrival: Arrival, buffer: int = 10) -> np.ndarray | None:
    """w ← mean of the last K models to arrive, at every arrival.

    Before the K-th arrival the model does not change.

    Source: Xu et al. 2024 (IJCAI, arXiv 2404.11015). Only its abstract and summaries could be read: the
    paper's window size and weights may differ.

    K = 2: the mean of 2 and 4, then of 4 and 8.

    >>> w, memory = np.array([0.0]), Memory(3)
    >>> [fedfa(w, memory, Arrival(0, 0, w, np.array([m])), buffer=2) for m in (2.0, 4.0, 8.0)]
    [None, array([3.]), array([6.])]
    """
    require_positive_int("buffer", buffer)
    memory.buffer.append(arrival)
    if len(memory.buffer) < buffer:
        return None
    total = memory.buffer[0].end.astype(np.float64) / buffer
    for each in memory.buffer[1:]:
        total += each.end.astype(np.float64) / buffer
    del memory.buffer[0]
    return total


def require_in_range(name: str, value: float, above: float, most: float = np.inf) -> None:
    """Raise ConfigError unless a rule's argument is a number above one bound and at most another."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not above < value <= most or value == np.inf:
        limit = f"above {above:g}" + (f", at most {most:g}" if most < np.inf else "")
        raise ConfigError(f"{name} of a rule must be a number {limit}, but is {shown(value)}; try 0.5")


def require_positive_int(name: str, value: int) -> None:
    """Raise ConfigError unless a rule's argument is an integer of at least 1."""
    if type(value) is not int or value < 1:
        raise ConfigError(
            f"{name} of a rule must be a whole number of at least 1, but is {shown(value)}; try 10"
        )
