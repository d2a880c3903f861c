"""Owners whose channels are out of all proportion to the others': left out of pooled statistics.

The server cannot check an owner's report on its windows, and a mean of 1e17 would scale all others' windows
to nothing. Per channel each client has one number, the root mean square of its values about the median of all
clients' means; the rule compares this number with the other clients'.

    d_k   √(s_k² + (m_k − median m)²), of client k's mean m_k and standard deviation s_k
    D     the (f+1)-th largest d of the n clients in which the channel varies, f = ⌊(n − 1) / 3⌋, fewer than
          a third of them (at least 1): if no more than f lie, D is at most an honest client's
    E     D, or the median of D over channels if larger: moving clients are not left out because nearly all
          others are at rest
    c     exp(6 σ), at least 30 and at most 100, σ = 1.4826 · MAD of log d: heavy tails differ more; 100 of
          three clients in which the channel varies, of whom two happen to be alike now and then

Client k is left out if d_k > c · E in any channel. With the rest, the pooled deviation about the median is
at most c · E, in half of the channels c · D at least: no minority takes the others' signal further down.

Clients also report the number of values. With a false count, a client of constant values would make the
pooled deviation tiny and everybody's scaled windows huge. While D about the pooled mean is more than 30 times
the pooled deviation, the client with most values is left out.

Fewer than three clients in which a channel varies cannot be compared: nobody is left out then. But clients
whose reported mean or deviation is not finite, or beyond 1e18, are always left out, because scaled windows
would become infinite or NaN.

Sources: the median's breakdown point of one half and 1.4826 · MAD as a deviation (Hampel 1974, "The influence
curve and its role in robust estimation"; Rousseeuw and Croux 1993, "Alternatives to the median absolute
deviation"). The order statistic, the floor and 30 are this project's: docs/reliability.md lists values for
real data and skewed labels.

If a run may begin without some of its clients (`guard.start-clients`), it also begins without owners whose
windows cannot be used together with the others' (`incompatible_owners`).
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedge.config.registers.option import shown
from fedge.data.own_windows import WindowsReport
from fedge.data.scaling import ChannelSums
from hhar.windows.window_file import MOST

KIND = ("classes", "channels", "input_shape", "dtype", "split_kind", "y_shape", "y_dtype")  # alike for all
SPLITS = ("train", "val", "test")

_FACTOR = 30.0
_LARGEST_FACTOR = 100.0
_DEVIATIONS = 6.0  # of log d
_MAD = 1.4826  # MAD of a normal distribution → its standard deviation
_LARGEST = MOST  # largest possible mean or deviation of a channel
_FEWEST = 3  # clients with a varying channel for a comparison


def outlying_clients(parts: Mapping[int, ChannelSums], channels: tuple[str, ...]) -> dict[int, str]:
    """Clients to leave out of pooled statistics, each with the reason in words.

    Args:
        parts: client → sums of its training windows; at least one value each.
        channels: names of the C channels.

    >>> sums = {client: ChannelSums(100, (0.1 * client,), (100.0,)) for client in range(8)}
    >>> outlying_clients(sums | {8: ChannelSums(100, (1e3,), (100.0,))}, ("x",))
    {8: "channel 'x' has mean 1000 and deviation 1, others have at most 1.08 about their middle"}
    """
    reasons = _find_invalid(parts, channels)
    clients = sorted(parts.keys() - reasons.keys())
    if not clients:
        return reasons
    means, deviations = _moments([parts[client] for client in clients])
    sizes = _sizes(means, deviations)
    typical, factors = _typical_sizes(sizes)
    is_outlying = sizes > factors * typical
    for row in np.flatnonzero(is_outlying.any(axis=1)).tolist():
        channel = int(np.argmax(sizes[row] / np.where(is_outlying[row], typical, np.inf)))
        largest = float(sizes[~is_outlying.any(axis=1), channel].max(initial=0.0))
        reasons[clients[row]] = (
            f"channel {channels[channel]!r} has mean {means[row, channel]:.4g} and deviation "
            f"{deviations[row, channel]:.4g}, others have at most {largest:.3g} about their middle"
        )
    return reasons | _find_outweighing({client: parts[client] for client in clients if client not in reasons})


def _find_invalid(parts: Mapping[int, ChannelSums], channels: tuple[str, ...]) -> dict[int, str]:
    """Clients of which a mean or a deviation is no number or too large, each with the reason in words."""
    reasons = {}
    for client, part in sorted(parts.items()):
        for name, mean, spread in zip(channels, part.mean, part.spread, strict=True):
            square = spread / max(1, part.count)
            if not (abs(mean) <= _LARGEST and 0 <= square <= _LARGEST**2):
                deviation = math.sqrt(square) if square >= 0 else math.nan
                reasons[client] = (
                    f"channel {name!r} has mean {mean:.4g} and deviation {deviation:.4g}, but both must be "
                    f"numbers of at most {_LARGEST:g}"
                )
                break
    return reasons


def proportions(parts: Sequence[ChannelSums]) -> tuple[np.ndarray, np.ndarray]:
    """Disproportion of clients: d over E of each client and channel (K, C), and c (C,).

    >>> far, factors = proportions([ChannelSums(100, (mean,), (100.0,)) for mean in (0.0, 0.0, 0.0, 10.0)])
    >>> far.round(1).ravel().tolist(), factors.tolist()
    ([1.0, 1.0, 1.0, 10.0], [30.0])
    """
    sizes = _sizes(*_moments(parts))
    typical, factors = _typical_sizes(sizes)
    return sizes / np.where(typical > 0, typical, np.inf), factors


def _moments(parts: Sequence[ChannelSums]) -> tuple[np.ndarray, np.ndarray]:
    """Means and standard deviations of clients, each (K, C)."""
    return np.array([part.mean for part in parts], np.float64), np.array(
        [_deviations(part) for part in parts]
    )


def _sizes(means: np.ndarray, deviations: np.ndarray) -> np.ndarray:
    """d of each client and channel (K, C)."""
    return np.hypot(deviations, means - np.median(means, axis=0))


def _deviations(part: ChannelSums) -> list[float]:
    """Standard deviation of each channel of one client (C)."""
    return [float(np.sqrt(spread / max(1, part.count))) for spread in part.spread]


def _typical_sizes(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E and c of each channel (C), from the clients' sizes d (K, C); E is infinite if unknown."""
    typical, factors = np.zeros(sizes.shape[1]), np.full(sizes.shape[1], _FACTOR)
    for channel, column in enumerate(sizes.T):
        typical[channel] = _trimmed_maximum(column)
        logs = np.log(column[column > 0])
        if len(logs):
            spread = _MAD * float(np.median(np.abs(logs - np.median(logs))))
            most = math.log(_LARGEST_FACTOR)
            least = _FACTOR if len(logs) > _FEWEST else _LARGEST_FACTOR
            factors[channel] = max(least, math.exp(min(_DEVIATIONS * spread, most)))
    floor = np.sort(typical)[len(typical) // 2]
    comparable = (sizes > 0).sum(axis=0) >= _FEWEST
    return np.where(comparable, np.maximum(typical, floor), np.inf), factors


def _trimmed_maximum(sizes: np.ndarray) -> float:
    """D of one channel from clients' sizes (K,): fewer than a third of those above 0 may be too large."""
    moving = np.sort(sizes[sizes > 0])[::-1]
    return float(moving[min(len(moving) - 1, max(1, (len(moving) - 1) // 3))]) if len(moving) else 0.0


def _find_outweighing(parts: Mapping[int, ChannelSums]) -> dict[int, str]:
    """Clients whose number of values alone makes the pooled deviation far smaller than the others'."""
    reasons: dict[int, str] = {}
    while len(remaining := [client for client in parts if client not in reasons]) >= _FEWEST:
        counts = np.array([float(parts[client].count) for client in remaining])
        means = np.array([parts[client].mean for client in remaining])
        squares = np.array([_deviations(parts[client]) for client in remaining]) ** 2
        centre = counts @ means / counts.sum()
        second_moments = squares + (means - centre) ** 2
        pooled, moving = counts @ second_moments / counts.sum(), (second_moments > 0).sum(axis=0)
        typical = np.array([_trimmed_maximum(column) for column in second_moments.T])
        if not ((typical > _FACTOR**2 * pooled) & (moving >= _FEWEST)).any():
            break
        largest = remaining[int(np.argmax(counts))]
        reasons[largest] = (
            f"it counts {parts[largest].count} values of a channel, others at most "
            f"{int(np.sort(counts)[-2])}, and hardly differs in itself"
        )
    return reasons


def incompatible_owners(
    reports: Mapping[int, WindowsReport | None], earlier_reports: Mapping[int, WindowsReport] | None = None
) -> dict[int, str]:
    """Clients whose windows cannot be used with the others': partition id → reason, in ascending order.

    The usual kind is the one of more than half of the clients; without one, none is unlike the others.

    Args:
        reports: partition id → the client's description; None if it has no windows of its own.
        earlier_reports: partition id → its description at the start of the run, for a resumed run.

    >>> from fedge.data.scaling import ChannelSums
    >>> def owner(*classes):
    ...     counts = {split: (1,) * len(classes) for split in SPLITS}
    ...     kind = ("blocks", (1, 8), "float32", classes, ("x",))
    ...     return WindowsReport("x", "", False, *kind, {}, counts, ChannelSums(16, (0.0,), (1.0,)))
    >>> incompatible_owners({0: owner("a", "b"), 1: owner("a", "b"), 2: owner("a", "c")})
    {2: "partition 2 has other classes than most clients: ('a', 'c')"}
    >>> incompatible_owners({0: owner("a", "b"), 2: owner("a", "c")})
    {}
    """
    kinds = Counter(map(_kind, reports.values()))
    kind, count = kinds.most_common(1)[0] if kinds else ((), 0)
    usual_kind = kind if 2 * count > len(reports) else None
    reasons = {
        client: _reason(report, usual_kind, (earlier_reports or {}).get(client))
        for client, report in sorted(reports.items())
    }
    return {client: f"partition {client} {reason}" for client, reason in reasons.items() if reason}


def _reason(
    report: WindowsReport | None, usual_kind: tuple[Any, ...] | None, earlier: WindowsReport | None
) -> str:
    """Fault of a client's windows beside others; empty for none. `usual_kind` is the kind of most clients."""
    if usual_kind is not None and _kind(report) != usual_kind:
        if report is None or not usual_kind:
            return f"names {'no ' if report is None else ''}windows of its own, unlike most clients"
        index = next(index for index, value in enumerate(_kind(report)) if value != usual_kind[index])
        return f"has other {KIND[index].replace('_', ' ')} than most clients: {shown(_kind(report)[index])}"
    if report is not None and (missing := [split for split in SPLITS if report.windows(split) == 0]):
        return f"has no {missing[0]} windows"
    if report is not None and earlier is not None and earlier.fingerprint != report.fingerprint:
        return "has other windows than at the start of the run"
    return ""


def _kind(report: WindowsReport | None) -> tuple[Any, ...]:
    """Properties required to be the same for all clients' windows; empty for a client without windows."""
    return () if report is None else tuple(getattr(report, name) for name in KIND)
