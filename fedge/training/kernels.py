"""Kernels of a model's steps: PyTorch, or the native step for models it knows (docs/native.md)."""

from __future__ import annotations

import functools
import logging
import os
from dataclasses import dataclass, replace

from torch import nn

from fedge.native.library import BF16, KERNEL
from fedge.native.plan import Plan, plan_of

logger = logging.getLogger(__name__)

TORCH, AUTO, NATIVE = "torch", "auto", "native"
NAMED = f"{NATIVE} "  # before the name of one kernel, as manifests have it
ROUNDED = "bf16"  # train.precision: factors of products are rounded, weights and sums are not
PLAIN = "plain"  # the kernel for any processor; half as fast as PyTorch


@dataclass(frozen=True)
class Kernel:
    """Kernel of the steps of a run.

    Attributes:
        name: "torch", or "native NAME", NAME of a set of kernels.
        reason: reason for not using a requested native step; empty otherwise.
        differing_kernels: differing kernels of other processes, in words; empty if all have the same.
    """

    name: str
    reason: str = ""
    differing_kernels: str = ""

    @property
    def is_native(self) -> bool:
        """Whether the native step computes them."""
        return self.name.startswith(NAMED)


def native_plan(
    model: nn.Module, input_shape: tuple[int, ...], requested: str, precision: str = "", tokens: bool = False
) -> Plan | None:
    """Plan of the native step for a model and the shape of its windows; None if PyTorch should train.

    Args:
        model: any.
        input_shape: (C, T) or (C, H, W).
        requested: train.kernel, or the name of the run's kernel, as in `Kernel`.
        precision: train.precision, for training; "bf16" rounds factors, others do not.
        tokens: whether windows are tokens, int64.
    """
    if requested == TORCH or next(model.parameters()).device.type != "cpu":
        return None
    plan = _plan_or_reason(model, input_shape, requested, precision, tokens)
    if isinstance(plan, Plan):
        return plan
    if requested.startswith(NAMED):
        _warn_once(f"PyTorch trains in this process, though the run's kernel is {requested}, since {plan}")
    return None


@functools.cache
def _warn_once(line: str) -> None:
    """Log a warning the first time."""
    logger.warning("%s", line)


def kernel_of(
    model: nn.Module, input_shape: tuple[int, ...], requested: str, precision: str = "", tokens: bool = False
) -> Kernel:
    """Kernel for the steps of a model on a CPU, and the reason; see `native_plan`."""
    if requested == TORCH:
        return Kernel(TORCH)
    plan = _plan_or_reason(model, input_shape, requested, precision, tokens)
    return Kernel(f"{NAMED}{plan.kernel}") if isinstance(plan, Plan) else Kernel(TORCH, plan)


def _plan_or_reason(
    model: nn.Module, input_shape: tuple[int, ...], requested: str, precision: str, tokens: bool
) -> Plan | str:
    """The plan, or the reason for none; "auto" does not use a kernel slower than PyTorch."""
    kernel_name = requested.removeprefix(NAMED).removesuffix(BF16) if requested.startswith(NAMED) else ""
    plan = plan_of(model, input_shape, tokens, kernel_name)
    if requested == AUTO and isinstance(plan, Plan) and plan.kernel == PLAIN and KERNEL not in os.environ:
        return "this processor runs only its plain kernel, which is slower than PyTorch"
    if precision == ROUNDED and isinstance(plan, Plan) and plan.unrounded:
        return f"the native step does not round factors of {plan.unrounded} to bf16"
    if precision == ROUNDED and isinstance(plan, Plan):
        return replace(plan, kernel=plan.kernel + BF16)
    return plan
