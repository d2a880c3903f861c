"""Hellos of leaf servers: validation, and differences from the cloud affecting the last bits of results."""

from collections.abc import Mapping
from typing import Any

from fedge.edge.packets import orders
from fedge.edge.packets.plain_json import FactError, mapping, only, refusing, text
from fedge.link.admission import LEAF, PROCESS
from fedge.link.frames import LinkError, Packet
from fedge.native.library import BF16
from fedge.process.escape import printable
from fedge.process.versions import versions
from fedge.training.kernels import NAMED

VERSIONS = "versions"  # fact of a hello: package → version
_LONGEST, _LONGEST_KERNELS = 100, 200  # characters
_MOST_VERSIONS = 100
# packages on which a leaf server's numbers depend
_NUMERIC_PACKAGES = ("fedge", "fedge-code", "torch", "numpy", "scipy")


def check_hello(hello: Packet) -> None:
    """Raise LinkError unless a hello has only known facts, each in its form, and no states."""
    with refusing(LinkError):
        facts = hello.facts
        only(facts, set(), {VERSIONS, orders.KERNELS, orders.SUBTREE, LEAF, PROCESS})
        if hello.states:
            raise FactError("states", "a hello has none")
        text(facts.get(PROCESS, ""), _LONGEST, PROCESS)
        text(facts.get(orders.SUBTREE, ""), _LONGEST, orders.SUBTREE)
        text(facts.get(orders.KERNELS, ""), _LONGEST_KERNELS, orders.KERNELS)
        reported = mapping(facts.get(VERSIONS, {}), VERSIONS)
        if len(reported) > _MOST_VERSIONS:
            raise FactError(VERSIONS, f"of {len(reported)} packages")
        for entry in (*reported, *reported.values()):
            text(entry, _LONGEST, VERSIONS)


def reported_kernels(packet: Packet | None) -> tuple[str, ...] | None:
    """Native kernels usable by a leaf server's clients; None if not reported."""
    kernels = None if packet is None else packet.facts.get(orders.KERNELS)
    return tuple(printable(kernels[:_LONGEST_KERNELS]).split()) if isinstance(kernels, str) else None


def differences(hello: Packet, kernel: str) -> str:
    """Why the last bits of a leaf server may differ from the cloud's, in words; empty if nothing is known.

    Args:
        hello: its checked hello.
        kernel: kernel of the run's steps, as in `fedge.training.kernels.Kernel`; empty if of no matter.
    """
    return "; ".join([*_different_versions(hello.facts.get(VERSIONS, {})), *_missing_kernel(hello, kernel)])


def _different_versions(reported: Mapping[str, Any]) -> list[str]:
    """Packages of other versions than the cloud's, in words, at most one entry."""
    cloud = versions()
    different = [name for name in _NUMERIC_PACKAGES if name in reported and reported[name] != cloud.get(name)]
    words = ", ".join(f"{name} {reported[name]} (the cloud: {cloud.get(name, 'none')})" for name in different)
    return [f"it has {words}"] if different else []


def _missing_kernel(hello: Packet, kernel: str) -> list[str]:
    """The run's kernel, in words, if a leaf server lacks it."""
    name, kernels = kernel.removeprefix(NAMED).removesuffix(BF16), reported_kernels(hello)
    if not kernel.startswith(NAMED) or kernels is None or name in kernels:
        return []
    return [f"it cannot use the run's kernel {name}, so PyTorch trains there"]
