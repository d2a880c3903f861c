"""Sessions: grouping of recordings into bouts, and of samples into segments that may be interpolated.

A *bout* is one activity of one user from start to end, on all devices. Devices share no clock but
`Arrival_Time`, so recordings of the same user and activity belong to one bout if their arrival spans overlap,
directly or through others. A phone whose recording spans two bouts joins them: one large session is better
than a leaking split.

A *segment* is a stretch of one recording, in the order of its creation time, without a gap over one second.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hhar.facts import MAX_GAP_S, MAX_SILENCE_S
from hhar.windows.recordings import Recording


@dataclass(frozen=True, order=True)
class Span:
    """Arrival span of a recording (epoch ms); `key` is the caller's key of the recording."""

    user: str
    activity: str
    start_ms: int
    end_ms: int
    key: int


@dataclass(frozen=True)
class Segment:
    """Samples without a gap: `time_ns` int64 (n), rising creation time; `values` float32 (n, axes)."""

    time_ns: NDArray[np.int64]
    values: NDArray[np.float32]


def name_sessions(spans: Iterable[Span]) -> dict[int, str]:
    """Map each span's key to the name of its bout: "user/activity/number", numbers in order of time from 01.

    The result does not depend on the order of `spans`.
    """
    by_pair: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in spans:
        by_pair[span.user, span.activity].append(span)
    names: dict[int, str] = {}
    for (user, activity), members in by_pair.items():
        number, end_ms = 0, None
        for span in sorted(members):
            if end_ms is None or span.start_ms > end_ms:
                number, end_ms = number + 1, span.end_ms
            else:
                end_ms = max(end_ms, span.end_ms)
            names[span.key] = f"{user}/{activity}/{number:02d}"
    return names


def split_at_silence(recording: Recording, silence_s: float = MAX_SILENCE_S) -> list[Recording]:
    """Cut a recording where nothing arrived for more than `silence_s` seconds.

    If a device recorded nothing of a whole bout, no row separates the two bouts of equal label around it;
    without the cut they would become one. Parts of a bout still form one session if another device recorded
    it without interruption.
    """
    cuts = np.flatnonzero(np.diff(recording.arrival_ms) > silence_s * 1000) + 1
    if len(cuts) == 0:
        return [recording]
    parts = []
    for start, end in pairwise([0, *cuts.tolist(), len(recording.arrival_ms)]):
        rows = slice(start, end)
        arrival_ms, creation_ns = recording.arrival_ms[rows], recording.creation_ns[rows]
        parts.append(
            replace(recording, arrival_ms=arrival_ms, creation_ns=creation_ns, values=recording.values[rows])
        )
    return parts


def segments(recording: Recording, max_gap_s: float = MAX_GAP_S) -> list[Segment]:
    """Sort by creation time, keep the first sample of each instant, cut at gaps over `max_gap_s` seconds."""
    time_ns = recording.creation_ns
    values = recording.values
    if np.any(time_ns[1:] <= time_ns[:-1]):
        order = np.argsort(time_ns, kind="stable")
        time_ns, values = time_ns[order], values[order]
        first = np.concatenate([[True], time_ns[1:] > time_ns[:-1]])
        time_ns, values = time_ns[first], values[first]
    cuts = np.flatnonzero(np.diff(time_ns) > int(max_gap_s * 1e9)) + 1
    bounds = [0, *cuts.tolist(), len(time_ns)]
    return [Segment(time_ns[a:b], values[a:b]) for a, b in pairwise(bounds)]


def overlap_ns(parts: Sequence[Segment]) -> tuple[int, int] | None:
    """First and last instant (ns) covered by all `parts`, or None."""
    start = max(int(part.time_ns[0]) for part in parts)
    end = min(int(part.time_ns[-1]) for part in parts)
    return (start, end) if end > start else None
