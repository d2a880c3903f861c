"""Kernel of a run's steps: one for all training processes, so bits agree wherever a client runs.

Kernels differ in the last bits (docs/native.md). Every client lists the kernels of its process in its first
reply; on a Ray cluster, every worker does. The best kernel common to all is chosen and sent to clients with
their messages.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fedge.config.registers.option import ConfigError
from fedge.config.registers.parts import OF_THE_TASK, SGD, TASKS
from fedge.config.registers.traits import NATIVE as KNOWN_TO_IT
from fedge.config.sections.train import TrainConfig
from fedge.data.prepared import DataShape
from fedge.exchange.hello import CPU
from fedge.native.library import BF16, KERNEL, usable_kernels
from fedge.run.build import RunPlan, network_of
from fedge.training.kernels import AUTO, NAMED, NATIVE, PLAIN, TORCH, Kernel, kernel_of
from hhar.quantity import quantity


@dataclass(frozen=True)
class KernelOffer:
    """Kernels available to some processes.

    Attributes:
        kernels: best first; empty without the native step.
        processes: the processes, in words.
    """

    kernels: tuple[str, ...]
    processes: str


def offers_of(kernels: Mapping[tuple[str, ...], int], noun: str) -> list[KernelOffer]:
    """Kernels of clients or workers, one offer per distinct list.

    >>> offers_of({("avx2", "plain"): 1, ("amx", "avx2", "plain"): 4}, "client")[1].processes
    '4 clients'
    """
    return [KernelOffer(names, quantity(count, noun)) for names, count in kernels.items()]


def kernel_of_run(
    plan: RunPlan,
    shape: DataShape,
    devices: Collection[str] = (),
    offers: Sequence[KernelOffer] = (),
    previous: str = "",
) -> Kernel:
    """Kernel of the clients' steps on a CPU.

    Args:
        plan: the run's plan.
        shape: sizes from which the model is built.
        devices: devices of clients, "cpu" or names of GPUs; empty if unknown.
        offers: kernels of the training processes, without this one.
        previous: kernel of a resumed run, kept if all can use it.

    Raises:
        ConfigError: `train.kernel` is "native", but no kernel is common to all.
    """
    train = plan.config.train
    if train.kernel == TORCH:
        return Kernel(TORCH)
    if reason := _pytorch_reason(train, devices):
        return Kernel(TORCH, reason)
    all_offers = [KernelOffer(usable_kernels(), "the server"), *offers]
    model_facts = network_of(plan, shape), shape.input_shape
    if not common_kernels(all_offers[:1], train.kernel):  # the reason is known here
        return kernel_of(*model_facts, train.kernel, train.precision, shape.tokens)
    common = common_kernels(all_offers, train.kernel)
    description = _describe_offers(all_offers, train.kernel)
    if not common:
        return _no_common_kernel(train, description)
    previous_name = previous.removeprefix(NAMED).removesuffix(BF16)
    chosen = previous_name if previous.startswith(NAMED) and previous_name in common else common[0]
    kernel = kernel_of(*model_facts, NAMED + chosen, train.precision, shape.tokens)
    return replace(kernel, differing_kernels=description) if kernel.is_native else kernel


def common_kernels(offers: Iterable[KernelOffer], requested: str) -> list[str]:
    """Kernels common to all offers, best first; "auto" excludes the slow plain kernel unless it is named.

    >>> offers = [KernelOffer(("amx", "avx512", "plain"), "a"), KernelOffer(("avx512", "plain"), "b")]
    >>> common_kernels(offers, "auto")
    ['avx512']
    """
    first, *others = [offer.kernels for offer in offers] or [()]
    common = [name for name in first if all(name in other for other in others)]
    slow = PLAIN if requested == AUTO and not os.environ.get(KERNEL) else ""
    return [name for name in common if name != slow]


def _pytorch_reason(train: TrainConfig, devices: Collection[str]) -> str:
    """Reason why options or devices need PyTorch; empty if they do not."""
    if train.device == "cuda" or (devices and CPU not in devices):
        return "clients train on a GPU"
    if train.processes > 1:
        return "several processes train a client's model (train.processes)"
    conditions = {
        "train.loss": (train.loss, train.loss != OF_THE_TASK),
        "train.task": (train.task, not TASKS.has(train.task, KNOWN_TO_IT)),
        "train.augment": (train.augment, bool(train.augment)),
        "train.optimizer": (train.optimizer, train.optimizer != SGD),
    }
    return next(
        (
            f"the native step has no {name} {value}"
            for name, (value, is_unsupported) in conditions.items()
            if is_unsupported
        ),
        "",
    )


def _no_common_kernel(train: TrainConfig, description: str) -> Kernel:
    """PyTorch, with the reason, if no kernel is common to all."""
    if train.kernel == NATIVE:
        raise ConfigError(
            f"train.kernel native needs a kernel common to all processes, but there is none: {description}; "
            f"build the native step there (docs/native.md), or set train.kernel=auto"
        )
    return Kernel(TORCH, f"no kernel of the native step can be used everywhere: {description}")


def _describe_offers(offers: Iterable[KernelOffer], requested: str) -> str:
    """Best kernel and processes of each offer, in words; empty if all offers agree."""
    by_best: dict[str, Counter[str]] = {}
    for offer in offers:
        best = next(iter(common_kernels([offer], requested)), "none")
        by_best.setdefault(best, Counter())[offer.processes] += 1
    if len(by_best) == 1:
        return ""
    return "; ".join(f"{best}: {', '.join(names)}" for best, names in sorted(by_best.items()))
