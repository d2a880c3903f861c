"""Kernel of a run's steps: one for all processes that train, so that bits agree wherever a client runs.

Kernels differ in last bits (docs/native.md). So every client says at its first call which ones its process
can use, on a Ray cluster every worker does, and the best of those that all can use is taken, as messages
tell clients.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from fedge.config.option import ConfigError
from fedge.config.parts import OF_THE_TASK, SGD, TASKS
from fedge.config.sections.train import TrainConfig
from fedge.config.traits import NATIVE as KNOWN_TO_IT
from fedge.data.prepared import DataShape
from fedge.exchange.hello import CPU
from fedge.native.library import BF16, KERNEL, usable_kernels
from fedge.run.build import RunPlan, network_of
from fedge.training.kernels import AUTO, NAMED, NATIVE, PLAIN, TORCH, Kernel, kernel_of


@dataclass(frozen=True)
class Offer:
    """Kernels that some processes can use.

    Attributes:
        kernels: best first; none where the native step is not there.
        who: the processes, in words.
    """

    kernels: tuple[str, ...]
    who: str


def offers_of(kernels: Mapping[tuple[str, ...], int], who: str) -> list[Offer]:
    """Offers of so many clients, or workers.

    >>> offers_of({("avx2", "plain"): 1, ("amx", "avx2", "plain"): 4}, "client")[1].who
    '4 clients'
    """
    return [Offer(names, f"{count} {who}{'s' * (count > 1)}") for names, count in kernels.items()]


def kernel_of_run(
    plan: RunPlan,
    shape: DataShape,
    devices: Collection[str] = (),
    offers: Sequence[Offer] = (),
    before: str = "",
) -> Kernel:
    """Kernel of the clients' steps on a CPU.

    Args:
        plan: of the run.
        shape: sizes that the model is built from.
        devices: of clients, "cpu" or names of GPUs; empty where unknown.
        offers: of the processes that train, beside this one.
        before: the kernel with which a run began that goes on; it is kept where all can use it.

    Raises:
        ConfigError: `train.kernel` is "native", but there is no kernel that all can use.
    """
    train = plan.config.train
    if train.kernel == TORCH:
        return Kernel(TORCH)
    if why := _why_pytorch(train, devices):
        return Kernel(TORCH, why)
    everywhere = [Offer(usable_kernels(), "the server"), *offers]
    known = network_of(plan, shape), shape.input_shape
    if not shared(everywhere[:1], train.kernel):  # the reason is known here
        return kernel_of(*known, train.kernel, train.precision, shape.tokens)
    common = shared(everywhere, train.kernel)
    words = _words(everywhere, train.kernel)
    if not common:
        return _nowhere(train, words)
    kept = before.removeprefix(NAMED).removesuffix(BF16)
    chosen = kept if before.startswith(NAMED) and kept in common else common[0]
    kernel = kernel_of(*known, NAMED + chosen, train.precision, shape.tokens)
    return replace(kernel, unlike=words) if kernel.is_native else kernel


def shared(offers: Iterable[Offer], wanted: str) -> list[str]:
    """Kernels that all can use, best first; with "auto" none that is slower than PyTorch, unless named.

    >>> shared([Offer(("amx", "avx512", "plain"), "a"), Offer(("avx512", "plain"), "b")], "auto")
    ['avx512']
    """
    first, *others = [offer.kernels for offer in offers] or [()]
    common = [name for name in first if all(name in other for other in others)]
    slow = PLAIN if wanted == AUTO and not os.environ.get(KERNEL) else ""
    return [name for name in common if name != slow]


def _why_pytorch(train: TrainConfig, devices: Collection[str]) -> str:
    """Why options or devices leave the steps to PyTorch; empty where they do not."""
    if train.device == "cuda" or (devices and CPU not in devices):
        return "clients train on a GPU"
    if train.processes > 1:
        return "several processes train a client's model (train.processes)"
    others = {
        "train.loss": (train.loss, train.loss != OF_THE_TASK),
        "train.task": (train.task, not TASKS.has(train.task, KNOWN_TO_IT)),
        "train.augment": (train.augment, bool(train.augment)),
        "train.optimizer": (train.optimizer, train.optimizer != SGD),
    }
    return next(
        (f"the native step has no {name} {value}" for name, (value, is_so) in others.items() if is_so), ""
    )


def _nowhere(train: TrainConfig, words: str) -> Kernel:
    """PyTorch, where no kernel can be used by all."""
    if train.kernel == NATIVE:
        raise ConfigError(
            f"train.kernel native needs a kernel that all processes can use, but there is none: {words}; "
            f"build the native step there (docs/native.md), or set train.kernel=auto"
        )
    return Kernel(TORCH, f"no kernel of the native step can be used everywhere: {words}")


def _words(offers: Iterable[Offer], wanted: str) -> str:
    """Best kernels and whose they are, where not all have the same; else empty."""
    by_best: dict[str, Counter[str]] = {}
    for offer in offers:
        best = next(iter(shared([offer], wanted)), "none")
        by_best.setdefault(best, Counter())[offer.who] += 1
    if len(by_best) == 1:
        return ""
    return "; ".join(f"{best}: {', '.join(who)}" for best, who in sorted(by_best.items()))
