"""What computes a model's steps: PyTorch, or the native step where it knows the model (docs/native.md)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from fedge.native.plan import Plan, plan_of

TORCH, AUTO, NATIVE = "torch", "auto", "native"


@dataclass(frozen=True)
class Kernel:
    """What computes the steps of a run.

    Attributes:
        name: "torch", or "native NAME", NAME of a set of kernels.
        why: why it is not the native step although that was asked for; empty otherwise.
    """

    name: str
    why: str = ""


def native_plan(model: nn.Module, input_shape: tuple[int, ...], wanted: str) -> Plan | None:
    """Return how the native step trains a model on windows of a shape; None where PyTorch is to.

    Args:
        model: any.
        input_shape: (C, T) or (C, H, W).
        wanted: train.kernel.
    """
    if wanted == TORCH or next(model.parameters()).device.type != "cpu":
        return None
    plan = plan_of(model, input_shape)
    return plan if isinstance(plan, Plan) else None


def kernel_of(model: nn.Module, input_shape: tuple[int, ...], wanted: str) -> Kernel:
    """Return what computes the steps of a model on a CPU, and why; see `native_plan`."""
    if wanted == TORCH:
        return Kernel(TORCH)
    plan = plan_of(model, input_shape)
    return Kernel(f"native {plan.kernel}") if isinstance(plan, Plan) else Kernel(TORCH, plan)
