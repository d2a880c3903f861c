"""Local training of one model on arrays.

Local SGD of federated averaging (McMahan et al. 2017), with FedProx's proximal term (Li et al. 2020) and
SCAFFOLD's correction (Karimireddy et al. 2020) as options; `fedge.training.sgd` has the step.

Nothing draws from global random state.
Shape letters: N windows, C channels, T samples, K optimiser steps; images are (N, C, H, W).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from fedge.native.plan import Plan
from fedge.native.training import Descent, training
from fedge.training.augmentation import Batches
from fedge.training.cuda_graph import Step
from fedge.training.host import keep_freed_memory, torch_threads
from fedge.training.kernels import TORCH, native_plan
from fedge.training.networks.module_state import State, get_state, load_state
from fedge.training.networks.own_models import OwnDraws
from fedge.training.passes import mean_of_passes
from fedge.training.settings import LocalTraining, check_data
from fedge.training.sgd import Sgd, correction_tensors, full_batch_step, refuse_nonfinite_weights, trained


@dataclass(frozen=True)
class TrainResult:
    """Result of local training."""

    state: State  # the whole state dict, buffers included; copies
    loss: float  # mean over the windows of all passes of the task's (smoothed) loss during training
    steps: int  # K, optimiser steps taken


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    settings: LocalTraining,
    generator: torch.Generator,
    correction: Mapping[str, np.ndarray] | None = None,
    state: Mapping[str, np.ndarray] | None = None,
    draws: torch.Generator | None = None,
) -> TrainResult:
    """Train `model` on all windows for the epochs, or the steps, of `settings` and return its new state.

    Training takes place in `model`, which is left in training mode with the returned state loaded. The order
    of the windows comes from `generator` alone, one permutation per pass. Equal inputs give equal bits,
    wherever `x` lies in memory.

    Args:
        model: model on the device to train on.
        x: float32 or int64 (N, …), N ≥ 1; any device; read only, may be a memory-mapped file.
        y: (N, …), as the task takes it.
        settings: step size, options and threads.
        generator: a CPU generator; advances by one permutation per pass.
        correction: SCAFFOLD's c − c_i, one array per trainable parameter; None for none.
        state: loaded first if given; otherwise training starts from the model as passed.
        draws: for a model with random draws in training (dropout); None for other models.

    Raises:
        ValueError: there is no window, shapes or names do not fit.
        FloatingPointError: a loss or a weight is not finite; names which and the step.

    Source: McMahan et al. 2017, Algorithm 1, ClientUpdate; order of the terms in the module docstring.
    """
    check_data(x, y)
    if state is not None:
        load_state(model, state)
    keep_freed_memory()
    kernel = settings.kernel if settings.task.native and settings.augment is None else TORCH
    tokens = x.dtype == torch.int64
    plan = native_plan(model, tuple(x.shape[1:]), kernel, settings.precision, tokens)
    with torch_threads(settings.threads):
        device = next(model.parameters()).device
        x, y = x.to(device), y.to(device)
        model.train()
        if plan is not None:
            return _train_natively(plan, model, x, y, settings, generator, correction, draws)
        sgd = Sgd(model, settings, correction, None if draws is None else OwnDraws(draws))
        step = full_batch_step(model, sgd, x, y)
        passes = settings.passes(len(y))
        losses = [_train_epoch(sgd, step, x, y, generator, steps) for steps in passes]
        sgd.check_finite()
        return TrainResult(
            get_state(model), mean_of_passes(losses, passes, len(y), settings.batch_size), sgd.steps
        )


def _train_natively(
    plan: Plan,
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    settings: LocalTraining,
    generator: torch.Generator,
    correction: Mapping[str, np.ndarray] | None,
    draws: torch.Generator | None,
) -> TrainResult:
    """Train by the native step. See `train`."""
    parameters = trained(model)
    tensors = None
    if correction is not None:
        tensors = dict(zip(parameters, correction_tensors(parameters, correction), strict=True))
    s = settings
    descent = Descent(
        s.lr, s.momentum, s.weight_decay, s.clip_norm, s.label_smoothing, s.prox_mu, s.batch_size
    )
    windows = len(y)  # asking a tensor takes microseconds
    losses, passes = [], settings.passes(windows)
    with training(plan, model, x, y, descent, tensors, draws) as epochs:
        for steps in passes:
            order, start = pass_order(windows, settings.batch_size, steps, generator).numpy(), epochs.steps
            losses.append(pass_loss(epochs.epoch(order), len(order), settings.batch_size, start))
    refuse_nonfinite_weights(list(parameters), [p.detach() for p in parameters.values()], epochs.steps)
    return TrainResult(
        get_state(model), mean_of_passes(losses, passes, windows, settings.batch_size), epochs.steps
    )


def _train_epoch(
    sgd: Sgd, full_batch_step: Step, x: Tensor, y: Tensor, generator: torch.Generator, steps: int
) -> float:
    """One pass over windows in random order; mean loss. One wait for the device, at the end."""
    losses, batch_size = [], sgd.settings.batch_size
    batches = one_pass(len(y), sgd.settings, steps, generator)
    for batch in batches.rows(x.device):
        step = full_batch_step if len(batch) == batch_size else sgd.step
        losses.append(step(batches.inputs(x, batch), y.index_select(0, batch)))
    steps_before, sgd.steps = sgd.steps, sgd.steps + len(losses)
    return pass_loss(torch.stack(losses).double().cpu().numpy(), len(batches.order), batch_size, steps_before)


def pass_order(windows: int, batch_size: int, steps: int, generator: torch.Generator) -> Tensor:
    """Indices (n,) int64 of the windows of one pass: the first `steps` batches of a permutation."""
    return torch.randperm(windows, generator=generator)[: steps * batch_size]


def one_pass(windows: int, settings: LocalTraining, steps: int, generator: torch.Generator) -> Batches:
    """Batches of one pass over windows; see `pass_order`."""
    order = pass_order(windows, settings.batch_size, steps, generator)
    return Batches(order, settings.batch_size, settings.augment, generator)


def pass_loss(per_step: np.ndarray, windows: int, batch_size: int, steps_before: int) -> float:
    """Mean loss over a pass's windows, from that of each batch (K,); all but the last are of one size.

    Args:
        per_step: mean loss of each batch.
        windows: number of windows in all these batches.
        batch_size: size of all batches but the last.
        steps_before: steps before them.

    Raises:
        FloatingPointError: one is not finite.
    """
    not_finite = np.flatnonzero(~np.isfinite(per_step))
    if len(not_finite):
        number = steps_before + int(not_finite[0]) + 1
        fix = "lower train.lr" if number > 1 else "look at the model's output for this client's windows"
        raise FloatingPointError(f"training: loss is {per_step[not_finite[0]]} at step {number}; {fix}")
    sizes = np.full(len(per_step), batch_size)
    sizes[-1] = windows - sizes[:-1].sum()
    return float((per_step * sizes).sum() / windows)
