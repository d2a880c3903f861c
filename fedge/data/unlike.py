"""Owners whose windows no run can use beside the others', by their descriptions.

Where a run may begin without some of its clients (`guard.start-clients`), it begins without these. The usual
kind is that of more than half of the owners; without one, nobody is unlike the others.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fedge.config.registers.option import shown
from fedge.data.own import WindowsReport

KIND = ("classes", "channels", "input_shape", "dtype", "split_kind", "y_shape", "y_dtype")  # alike for all
SPLITS = ("train", "val", "test")


def unlike_owners(
    told: Mapping[int, WindowsReport | None], known: Mapping[int, WindowsReport] | None = None
) -> dict[int, str]:
    """Clients whose windows are unusable beside the others': partition id → reason, in ascending order.

    Args:
        told: partition id → the client's description; None where it names no windows of its own.
        known: partition id → its description at the start of the run, for a resumed run.

    >>> from fedge.data.scaling import ChannelSums
    >>> def owner(*classes):
    ...     counts = {split: (1,) * len(classes) for split in SPLITS}
    ...     kind = ("blocks", (1, 8), "float32", classes, ("x",))
    ...     return WindowsReport("x", "", False, *kind, {}, counts, ChannelSums(16, (0.0,), (1.0,)))
    >>> unlike_owners({0: owner("a", "b"), 1: owner("a", "b"), 2: owner("a", "c")})
    {2: "partition 2 has other classes than most clients: ('a', 'c')"}
    >>> unlike_owners({0: owner("a", "b"), 2: owner("a", "c")})
    {}
    """
    kinds = Counter(map(_kind, told.values()))
    kind, count = kinds.most_common(1)[0] if kinds else ((), 0)
    usual = kind if 2 * count > len(told) else None
    found = {client: _reason(one, usual, (known or {}).get(client)) for client, one in sorted(told.items())}
    return {client: f"partition {client} {reason}" for client, reason in found.items() if reason}


def _reason(one: WindowsReport | None, usual: tuple[Any, ...] | None, known: WindowsReport | None) -> str:
    """What makes a client's windows unusable; empty if nothing does. `usual` is the kind of most clients."""
    if usual is not None and _kind(one) != usual:
        if one is None or not usual:
            return f"names {'no ' if one is None else ''}windows of its own, unlike most clients"
        at = next(at for at, value in enumerate(_kind(one)) if value != usual[at])
        return f"has other {KIND[at].replace('_', ' ')} than most clients: {shown(_kind(one)[at])}"
    if one is not None and (missing := [split for split in SPLITS if one.windows(split) == 0]):
        return f"has no {missing[0]} windows"
    if one is not None and known is not None and known.fingerprint != one.fingerprint:
        return "has other windows than at the start of the run"
    return ""


def _kind(one: WindowsReport | None) -> tuple[Any, ...]:
    """The properties that the windows of all clients share; none where a client names no windows."""
    return () if one is None else tuple(getattr(one, name) for name in KIND)
