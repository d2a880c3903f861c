"""FedRevive: the staler an update, the more it is replaced by a student of recent models."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedge.config.registers.option import ConfigError, shown
from fedge.devices.servers.arrivals import Arrival, Memory
from fedge.devices.servers.rules import model_after_arrivals, require_in_range, require_positive_int
from fedge.devices.servers.staleness import weight

_PROBED = 2  # models of a child probed for its class shares
SHARES = ("told", "probed")

logger = logging.getLogger(__name__)


def fedrevive(
    model: np.ndarray,
    memory: Memory,
    arrival: Arrival,
    buffer: int = 1,
    lr: float = 0.1,
    s_max: float = 75.0,
    teachers: int = 8,
    freeze: int = 50,
    warmup: int = 100,
    every: int = 1,
    steps: int = 10,
    distil_lr: float = 1e-4,
    pool: int = 16_000,
    latent: int = 256,
    width: int = 128,
    output: str = "tanh",
    shares: str = "told",
    distil: bool = True,
    server_s: float = 0.0,
) -> np.ndarray | None:
    """w ← w + (η / K) Σ [(1 − β(τ_i)) Δ_i + β(τ_i) (w_KD − w)], once there are K updates.

    β(τ) = 1 − ½ (1 + cos(π τ / (2 s_max))), and 1 beyond 2 s_max. w_KD is a student, started from w and
    trained on the latest models to arrive (`fedge.devices.fedrevive.distillation`). Up to version `freeze`, β
    is 0; up to `warmup`, windows are made, but w_KD is w.

    Source: Askin et al. 2025 (arXiv 2511.00655), by its abstract and code (NVFlare, research/fedrevive, by
    its authors' group): K = 1, η = 0.1, s_max = 75, freeze and warmup as here. There a student learns at
    every arrival; here once per version, which is the same for K = 1.

    Args:
        model: w, (P,).
        memory: memory of the server, with the network and class shares in `facts`; without these w_KD is w.
        arrival: arrival of a child.
        buffer: K.
        lr: η.
        s_max: staleness at which β is ½.
        teachers: number of models used as teachers.
        freeze, warmup: versions as above.
        every: versions between one making of windows and the next.
        steps, distil_lr: number of Adam's steps, and learning rate, for the student.
        pool: number of kept windows.
        latent, width, output: size of the generator (`fedge.devices.fedrevive.generator.Size`).
        shares: source of a child's class shares: "told" by the device, or "probed", estimated from its first
            two models.
        distil: False for w_KD = w, the control for the benefit of distillation.
        server_s: virtual seconds of the server's work on a student; arrivals are queued meanwhile.

    With K = 1 and s_max = 10, half of Δ = 4 counts at a staleness of 10 if nothing is distilled:

    >>> w = np.array([1.0])
    >>> fedrevive(w, Memory(1), Arrival(0, 10, w, w + 4), lr=1.0, s_max=10, freeze=0, distil=False)
    array([3.])
    """
    _refuse_arguments(lr, s_max, distil_lr, server_s, shares, distil)
    for name, count in (("buffer", buffer), ("teachers", teachers), ("every", every), ("steps", steps),
                        ("pool", pool), ("latent", latent), ("width", width)):  # fmt: skip
        require_positive_int(name, count)
    for name, count in (("freeze", freeze), ("warmup", warmup)):
        if type(count) is not int or count < 0:
            raise ConfigError(
                f"{name} of fedrevive must be a whole number of at least 0, but is {shown(count)}; try 50"
            )
    if output not in ("tanh", "sigmoid"):
        raise ConfigError(f"output of fedrevive must be tanh or sigmoid, but is {shown(output)}; change it")
    arrays = memory.arrays
    versions, waiting = int(arrays.get("made", 0)), int(arrays.get("waiting", 0)) + 1
    memory.buffer.append(arrival)
    arrays["waiting"] = np.array(waiting)
    if shares == "probed" and memory.facts is not None and distil:
        _probe(memory, arrival)
    if waiting < buffer:
        return None
    fresh = memory.buffer[-waiting:]
    betas = [0.0 if versions < freeze else 1 - weight("cosine", each.staleness, b=s_max) for each in fresh]
    updated = model_after_arrivals(model, fresh, [lr * (1 - beta) for beta in betas], buffer)
    if any(betas) and distil and memory.facts is not None:
        settings = _Learning(teachers, warmup, every, steps, distil_lr, pool, shares, (latent, width, output))
        updated = updated + lr * sum(betas) / buffer * _student_step(model, memory, versions, settings)
    arrays["made"], arrays["waiting"] = np.array(versions + 1), np.array(0)
    memory.buffer[:] = [replace(each, start=each.end, counters={}) for each in memory.buffer[-teachers:]]
    return updated


def seconds_of(memory: Memory, arguments: Mapping[str, Any]) -> float:
    """Virtual seconds taken by the server for the next arrival."""
    warmup, buffer = arguments.get("warmup", 100), arguments.get("buffer", 1)
    versions, waiting = int(memory.arrays.get("made", 0)), int(memory.arrays.get("waiting", 0))
    learns = arguments.get("distil", True) and versions > warmup and waiting + 1 >= buffer
    return float(arguments.get("server_s", 0.0)) if learns else 0.0


fedrevive.seconds_of = seconds_of  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Learning:
    """Parameters of a student's training; see `fedrevive`."""

    teachers: int
    warmup: int
    every: int
    steps: int
    lr: float
    pool: int
    shares: str
    size: tuple[int, int, str]


def _student_step(model: np.ndarray, memory: Memory, versions: int, settings: _Learning) -> np.ndarray:
    """w_KD − w, (P,) float64; zero, with a warning in the log, if the student has diverged."""
    from fedge.devices.fedrevive.distillation import Teacher, distil, synthesise
    from fedge.devices.fedrevive.generator import Size
    from fedge.training.host import torch_threads
    from fedge.training.networks.module_state import get_state

    facts, arrays = memory.facts, memory.arrays
    assert facts is not None
    with torch_threads(1):
        newest = memory.buffer[-settings.teachers :]
        teachers = [
            Teacher(facts.network(number, each.end), _class_shares(memory, each.child, settings.shares))
            for number, each in enumerate(newest)
        ]
        student = facts.network(settings.teachers, model)
        pool = {name[3:]: array for name, array in arrays.items() if name.startswith("kd-")}
        if versions % settings.every == 0 or not pool:
            adversary = student if versions >= settings.warmup else None
            pool = synthesise(facts, pool, teachers, adversary, versions, settings.pool, Size(*settings.size))
            arrays.update({f"kd-{name}": array for name, array in pool.items()})
        if versions <= settings.warmup or not pool:
            return np.zeros(len(model))
        distil(facts, pool, teachers, student, versions, settings.steps, settings.lr)
        step = np.subtract(facts.layout.vector(get_state(student)), model, dtype=np.float64)
    if not np.isfinite(step).all():
        logger.warning("version %d: the student is not finite, and left out", versions + 1)
        return np.zeros(len(model))
    return step


def _class_shares(memory: Memory, child: int, shares: str) -> np.ndarray:
    """Class shares of a child, (classes,) float64."""
    assert memory.facts is not None
    if shares == "told":
        return memory.facts.shares[child]
    return memory.arrays["probed"][child] / memory.arrays["probes"][child]


def _probe(memory: Memory, arrival: Arrival) -> None:
    """Estimate the class shares of a child from one of its first models."""
    from fedge.devices.fedrevive.distillation import estimate_class_shares
    from fedge.training.host import torch_threads

    facts, arrays = memory.facts, memory.arrays
    assert facts is not None
    probes = arrays.get("probes", np.zeros(len(facts.shares), np.int64)).copy()
    if probes[arrival.child] < _PROBED:
        with torch_threads(1):
            estimate = estimate_class_shares(facts, facts.network(0, arrival.end), int(probes.sum()))
        probed = arrays.get("probed", np.zeros(facts.shares.shape)).copy()
        probed[arrival.child] += estimate
        probes[arrival.child] += 1
        arrays["probes"], arrays["probed"] = probes, probed


def _refuse_arguments(
    lr: float, s_max: float, distil_lr: float, server_s: float, shares: str, distil: bool
) -> None:
    """Raise ConfigError for an impossible argument."""
    for name, number in (("lr", lr), ("s_max", s_max), ("distil_lr", distil_lr)):
        require_in_range(name, number, 0.0)
    if server_s != 0:
        require_in_range("server_s", server_s, 0.0)
    if shares not in SHARES or not isinstance(distil, bool):
        raise ConfigError(
            f"shares of fedrevive must be told or probed and distil true or false, but are {shown(shares)} "
            f"and {shown(distil)}; change them"
        )
