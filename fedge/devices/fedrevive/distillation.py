"""Data-free distillation at a server: a student learns from teachers on generated windows.

It has two steps, both with random streams of (seed, server, version), so checkpoints hold only arrays.

`synthesise`: a generator G makes windows x = G(z + 0.2 e_y) of classes y, which are drawn from the mean of
the teachers' class shares q_k. Two steps of Adam, on a copy of G, on z and on the class embeddings e,
minimise

    Σ_k w_k(y) CE(teacher_k(x), y)  +  0.003 Σ_k w̄_k F_k(x)  −  0.1 Σ_k w_k(y) m KL(teacher_k ‖ student),

where w_k(y) = q_k(y) / Σ_j q_j(y), and w̄_k is its mean over y. F_k is the distance between the means and
variances of x at each BatchNorm of teacher k and the running ones, which describe real windows. m is 1 where
student and teacher predict the same class. The better x joins a pool, and G follows its copy (Reptile).

`distil`: the student starts from the server's model and minimises Σ_k KL(teacher_k ‖ student) on windows
of the pool, drawn by each teacher's class shares.

Source: FedRevive (Askin et al. 2025, arXiv 2511.00655) as in its code (NVFlare, research/fedrevive/dfkd.py);
all numbers are from there, including the pool of 16,000, and 256 latent numbers and 128 channels in
`fedge.devices.fedrevive.generator`. Not adopted: its sigmoid for normalised windows, for which 0 to 1 is too
narrow; augmentation, which is for images; and skipping losses above three times their recent mean. Where
BatchNorm is here, the code's network has trackers without normalisation; a student's statistics do not
change.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedge.devices.fedrevive.generator import Size, new_generator
from fedge.devices.servers.model_facts import ModelFacts
from fedge.seeding import Purpose, torch_stream
from fedge.training.networks.own_models import BATCH_NORMS

_BATCH = 64  # windows generated at a time
_STEPS = 2
_GENERATOR_LR, _LATENT_LR, _BETAS = 3e-3, 1e-3, (0.5, 0.999)
_FEATURES, _ADVERSARY, _EMBEDDED = 0.003, 0.1, 0.2
_PER_TEACHER = 32  # windows per step of the student
_PROBES, _PROBE_TEMPERATURE = 64, 0.8
_BEGIN, _SYNTHESIS, _LESSON, _PROBE = range(4)  # uses of a stream

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Teacher:
    """A model of a child.

    Attributes:
        network: network with the model's weights, in evaluation mode.
        shares: (classes,) float64, class shares of its training windows; they sum to 1.
    """

    network: nn.Module
    shares: np.ndarray


def synthesise(
    facts: ModelFacts,
    arrays: Mapping[str, np.ndarray],
    teachers: Sequence[Teacher],
    student: nn.Module | None,
    version: int,
    pool: int,
    size: Size | None = None,
) -> Arrays:
    """Generate another batch of windows; returns the generator, and the pool of windows to keep.

    Args:
        facts: facts about the model.
        arrays: previous result; empty the first time.
        teachers: at least one teacher.
        student: network for which windows should be hard; None if there is no student yet.
        version: version of the server.
        pool: maximum number of windows to keep; the oldest are dropped.
        size: size of the generator; None for the size in FedRevive's code.

    Returns:
        generator, first, second (Q,) float32: the generator's weights, and Adam's moments; adapted () int64:
        number of its updates; x (N, C, T) float32 and y (N,) int64: the pool. Unchanged if anything was not
        finite.
    """
    draws = torch_stream(facts.seed, Purpose.DISTILLATION, facts.server, version, _SYNTHESIS)
    begin = torch_stream(facts.seed, Purpose.DISTILLATION, facts.server, 0, _BEGIN)
    size = size or Size()
    slow = new_generator(facts.input_shape, begin, size)
    if arrays:
        vector_to_parameters(torch.from_numpy(np.array(arrays["generator"])), slow.parameters())
    initial = parameters_to_vector(slow.parameters()).detach()
    shares = torch.from_numpy(np.stack([teacher.shares for teacher in teachers])).float()
    y = torch.multinomial(shares.mean(0), _BATCH, replacement=True, generator=draws)
    fast, x, loss = _adapt(slow, teachers, student, y, shares, draws, size.latent)
    adapted = parameters_to_vector(fast.parameters()).detach()
    if not (np.isfinite(loss) and torch.isfinite(adapted).all()):
        return dict(arrays)
    generator_state = _reptile_step(arrays, initial, initial - adapted)
    old_pool = arrays or {"x": x.numpy()[:0], "y": y.numpy()[:0]}
    pooled = {
        "x": np.concatenate([old_pool["x"], x.numpy()]),
        "y": np.concatenate([old_pool["y"], y.numpy()]),
    }
    return {**generator_state, **{name: array[-pool:] for name, array in pooled.items()}}


def _adapt(
    slow: nn.Module,
    teachers: Sequence[Teacher],
    student: nn.Module | None,
    y: Tensor,
    shares: Tensor,
    draws: torch.Generator,
    latent: int,
) -> tuple[nn.Module, Tensor, float]:
    """A generator trained from `slow`, its best windows (N, C, T), and their loss."""
    fast = copy.deepcopy(slow).train()
    z = torch.randn(len(y), latent, generator=draws).requires_grad_()
    embeddings = torch.randn(shares.shape[1], latent, generator=draws).requires_grad_()
    groups: list[dict[str, Any]] = [
        {"params": list(fast.parameters())}, {"params": [z, embeddings], "lr": _LATENT_LR}
    ]  # fmt: skip
    adam = torch.optim.Adam(groups, lr=_GENERATOR_LR, betas=_BETAS)
    weights = (shares / shares.sum(0).clamp_min(1e-8))[:, y]
    best, lowest = torch.empty(0), np.inf
    for _ in range(_STEPS):
        x = fast(z + _EMBEDDED * embeddings[y])
        loss = synthesis_loss(x, y, weights, teachers, student)
        if not len(best) or loss.item() < lowest:
            best, lowest = x.detach().clone(), loss.item()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return fast, best, float(lowest)


def synthesis_loss(
    x: Tensor, y: Tensor, weights: Tensor, teachers: Sequence[Teacher], student: nn.Module | None
) -> Tensor:
    """Loss of windows (N, C, T) of classes y (N,) with respect to the teachers; weights are (K, N)."""
    student_logits = None if student is None else student(x)
    loss = x.new_zeros(())
    for teacher, weight in zip(teachers, weights, strict=True):
        logits, distance = with_distance(teacher.network, x)
        loss = loss + (weight * F.cross_entropy(logits, y, reduction="none")).mean()
        loss = loss + _FEATURES * weight.mean() * distance
        if student_logits is not None:
            divergence = F.kl_div(
                F.log_softmax(student_logits, 1), F.softmax(logits, 1), reduction="none"
            ).sum(1)
            agrees = (student_logits.argmax(1) == logits.argmax(1)).float()
            loss = loss - _ADVERSARY * (weight * agrees * divergence).mean()
    return loss


def with_distance(network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits (N, classes) of windows, and their distance from the BatchNorms' statistics.

    The distance is Σ ‖mean − running mean‖ + ‖variance − running variance‖ over BatchNorms; 0 without any.
    """
    distances: list[Tensor] = []

    def record_distance(norm: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        (activations,) = inputs
        axes = [axis for axis in range(activations.dim()) if axis != 1]
        mean, variance = activations.mean(axes), activations.var(axes, unbiased=False)
        known_mean, known_variance = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
        distances.append((mean - known_mean).norm() + (variance - known_variance).norm())

    norms = [layer for layer in network.modules() if isinstance(layer, BATCH_NORMS)]
    hooks = [
        norm.register_forward_pre_hook(record_distance) for norm in norms if norm.running_mean is not None
    ]
    try:
        logits = network(x)
    finally:
        for hook in hooks:
            hook.remove()
    return logits, torch.stack(distances).sum() if distances else x.new_zeros(())


def _reptile_step(arrays: Mapping[str, np.ndarray], weights: Tensor, gradient: Tensor) -> Arrays:
    """The generator's weights (Q,) after a step of Adam along `gradient`, and Adam's state."""
    first, second = (torch.from_numpy(arrays[name]) if arrays else torch.zeros_like(weights)
                     for name in ("first", "second"))  # fmt: skip
    step = int(arrays["adapted"]) + 1 if arrays else 1
    first = _BETAS[0] * first + (1 - _BETAS[0]) * gradient
    second = _BETAS[1] * second + (1 - _BETAS[1]) * gradient**2
    scale = (second / (1 - _BETAS[1] ** step)).sqrt() + 1e-8
    updated = weights - _GENERATOR_LR * first / (1 - _BETAS[0] ** step) / scale
    return {"generator": updated.numpy(), "first": first.numpy(), "second": second.numpy(),
            "adapted": np.array(step)}  # fmt: skip


def distil(
    facts: ModelFacts,
    arrays: Mapping[str, np.ndarray],
    teachers: Sequence[Teacher],
    student: nn.Module,
    version: int,
    steps: int,
    lr: float,
) -> None:
    """Train a student on teachers' outputs for windows of the pool; no effect if not finite.

    Args:
        facts: facts about the model.
        arrays: result of `synthesise`, with windows (N, C, T) and their classes (N,).
        teachers: at least one teacher.
        student: network in evaluation mode, also during its training; changed in place.
        version: version of the server.
        steps: number of Adam's steps.
        lr: learning rate of Adam.
    """
    draws = torch_stream(facts.seed, Purpose.DISTILLATION, facts.server, version, _LESSON)
    pool, labels = torch.from_numpy(arrays["x"]), arrays["y"]
    windows, answers = [], []
    for teacher in teachers:
        x = pool[chosen(labels, teacher.shares, steps * _PER_TEACHER, draws)]
        with torch.no_grad():
            answers.append(F.softmax(teacher.network(x), 1).unflatten(0, (steps, _PER_TEACHER)))
        windows.append(x.unflatten(0, (steps, _PER_TEACHER)))
    x, answer = torch.cat(windows, 1), torch.cat(answers, 1)
    parameters = [
        parameter.requires_grad_()
        for name, parameter in student.named_parameters()
        if name in facts.trainable
    ]
    adam = torch.optim.Adam(parameters, lr=lr, weight_decay=1e-5)
    for batch, expected in zip(x, answer, strict=True):
        loss = F.kl_div(F.log_softmax(student(batch), 1), expected, reduction="batchmean")
        if not torch.isfinite(loss):
            break
        adam.zero_grad()
        loss.backward()
        adam.step()
    student.requires_grad_(False)


def chosen(labels: np.ndarray, shares: np.ndarray, count: int, draws: torch.Generator) -> Tensor:
    """Positions (count,) in a pool, with classes drawn by `shares`, and windows drawn evenly within a class.

    If the pool has no window of a class, any window is drawn.

    Args:
        labels: (N,) int64, classes of the pool's windows.
        shares: (classes,) share of each class.
        count: number of positions.
        draws: source of draws.
    """
    classes = torch.multinomial(torch.from_numpy(shares).float(), count, replacement=True, generator=draws)
    uniform = torch.rand(count, generator=draws).numpy()
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=len(shares))[classes]
    first = np.searchsorted(labels[order], classes.numpy())
    in_class = order[np.minimum(first + (uniform * sizes).astype(np.int64), len(labels) - 1)]
    anywhere = (uniform * len(labels)).astype(np.int64)
    return torch.from_numpy(np.where(sizes > 0, in_class, anywhere))


@torch.no_grad()
def estimate_class_shares(facts: ModelFacts, network: nn.Module, probe: int) -> np.ndarray:
    """Estimate the class shares of a network's training data, (classes,) float64.

    The estimate is its mean softmax at temperature 0.8 on 64 standard normal inputs, drawn for this probe.
    """
    draws = torch_stream(facts.seed, Purpose.DISTILLATION, facts.server, probe, _PROBE)
    noise = torch.randn(_PROBES, *facts.input_shape, generator=draws)
    shares: np.ndarray = F.softmax(network(noise).double() / _PROBE_TEMPERATURE, 1).mean(0).numpy()
    return shares
