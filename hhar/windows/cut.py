"""Recordings → windows: the common path of CSV files and synthetic recordings.

Per (user, device): cut each recording into segments, bring the sensors onto one regular grid by linear
interpolation inside a segment, cut the grid into windows. At the end: name sessions across devices and put
all windows in a fixed order.

Shapes: N windows, C channels, T samples per window.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from hhar.errors import HharError
from hhar.facts import ACTIVITIES, AXES
from hhar.windows.recordings import Recording
from hhar.windows.sessions import Segment, Span, name_sessions, overlap_ns, segments, split_at_silence
from hhar.windows.window_file import Windows

_MANY = 1e12  # samples, above any allowed window; keeps round() from failing on infinity


@dataclass(frozen=True)
class WindowSpec:
    """Sensors, sampling rate, length and stride of windows.

    Attributes:
        sensors: "acc" or "acc+gyro"; of other data sets, whose channels are named, any names joined by "+".
        rate_hz: samples per second.
        window_s, stride_s: length of a window, and distance from one window to the next, in seconds.
        channel_names: C names, sensor by sensor; if empty, x, y, z of each sensor.

    Raises:
        HharError: a value is out of range.
    """

    sensors: str = "acc+gyro"
    rate_hz: float = 50.0
    window_s: float = 2.56
    stride_s: float = 1.28
    channel_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.sensors not in ("acc", "acc+gyro") and not self.channel_names:
            raise HharError(
                f"sensors: must be acc or acc+gyro, but is {self.sensors!r}; choose one of the two"
            )
        for name in ("rate_hz", "window_s", "stride_s"):
            value = getattr(self, name)
            if not isinstance(value, Real) or not 0 < float(value) < math.inf:
                raise HharError(
                    f"{name}: must be a positive number, but is {value}; use e.g. {getattr(WindowSpec, name)}"
                )
        if not 1 <= self.rate_hz <= 1000:
            raise HharError(
                f"rate_hz: must be from 1 to 1000, but is {self.rate_hz}; phones sample at 20 to 200 Hz"
            )
        for name, samples in (("window_s", self.window_samples), ("stride_s", self.stride_samples)):
            if not 1 <= samples <= 100_000:
                raise HharError(
                    f"{name}: must span 1 to 100000 samples at {self.rate_hz} Hz, but spans {samples}; "
                    f"change {name} or rate_hz"
                )

    @property
    def sensor_names(self) -> tuple[str, ...]:
        """Names of the sensors; windows are cut from the recordings of the first."""
        return tuple(self.sensors.split("+"))

    @property
    def window_samples(self) -> int:
        """T, the length of a window in samples, rounded to the nearest integer."""
        return round(min(self.window_s * self.rate_hz, _MANY))

    @property
    def stride_samples(self) -> int:
        """The stride in samples, rounded to the nearest integer."""
        return round(min(self.stride_s * self.rate_hz, _MANY))

    @property
    def channels(self) -> tuple[str, ...]:
        """C names, sensor by sensor: acc_x, acc_y, acc_z, gyro_x, …"""
        return self.channel_names or tuple(
            f"{sensor}_{axis}" for sensor in self.sensor_names for axis in AXES
        )


@dataclass
class _Block:
    """Windows of one recording of the first sensor: (n, C, T), with their user, device, activity and bout."""

    user: str
    device: str
    activity: str
    start_ms: int
    key: int
    session: str
    x: NDArray[np.float32]


@dataclass
class WindowBuilder:
    """Collects windows device by device; `finish` names sessions and orders them.

    All sensors of one (user, device) must come in one call of `add`; the caller may drop the samples
    afterwards.

    Attributes:
        spec: specification of the windows.
        classes: names in label order.
        sort: order by user, session, device and time; False keeps the order in which recordings came.
    """

    spec: WindowSpec
    classes: tuple[str, ...] = ACTIVITIES
    sort: bool = True
    _blocks: list[_Block] = field(default_factory=list)
    _spans: list[Span] = field(default_factory=list)

    def add(self, recordings: Sequence[Recording]) -> int:
        """Cut the recordings of one (user, device) into windows; returns their number."""
        by_sensor: dict[str, list[Recording]] = defaultdict(list)
        for recording in recordings:
            by_sensor[recording.sensor].extend(split_at_silence(recording))
        first, *further_sensors = self.spec.sensor_names
        count = 0
        for recording in by_sensor[first]:
            start_ms, end_ms = recording.arrival_span_ms
            key = len(self._spans)
            self._spans.append(Span(recording.user, recording.activity, start_ms, end_ms, key))
            partners = [_partners(recording, by_sensor[sensor]) for sensor in further_sensors]
            x = recording_windows(segments(recording), partners, self.spec)
            if len(x):
                count += len(x)
                origin = (recording.user, recording.device, recording.activity)
                self._blocks.append(_Block(*origin, start_ms, key, recording.session, x))
        return count

    def finish(self) -> Windows:
        """All windows, ordered by user, session, device and time unless `sort` is False.

        `Windows.device` is None if no recording names its device.

        Raises:
            HharError: no recording was long enough to yield a window.
        """
        if not self._blocks:
            raise HharError(
                f"windows: recordings must hold {self.spec.window_s} s of {self.spec.sensors} without a "
                "gap over 1 s, but none does; choose a shorter window, other sensors or other devices"
            )
        names = name_sessions(self._spans) | {b.key: b.session for b in self._blocks if b.session}
        blocks = self._blocks
        if self.sort:
            blocks = sorted(blocks, key=lambda b: (b.user, names[b.key], b.device, b.start_ms, b.key))
        self._blocks = []
        sizes = np.array([len(block.x) for block in blocks])
        x = np.empty((sizes.sum(), len(self.spec.channels), self.spec.window_samples), dtype=np.float32)
        user, device, session, y = [], [], [], []
        position = 0
        for block in blocks:
            x[position : position + len(block.x)] = block.x
            position += len(block.x)
            block.x = block.x[:0]  # frees the block, so memory holds the windows once
            user.append(block.user)
            device.append(block.device)
            session.append(names[block.key])
            y.append(self.classes.index(block.activity))
        return Windows(
            x=x,
            y=np.repeat(np.array(y, dtype=np.int64), sizes),
            user=np.repeat(np.array(user), sizes),
            device=np.repeat(np.array(device), sizes) if any(device) else None,
            session=np.repeat(np.array(session), sizes),
            classes=self.classes,
            channels=self.spec.channels,
        )


def recording_windows(
    own_segments: Sequence[Segment], partners: Sequence[Sequence[Segment]], spec: WindowSpec
) -> NDArray[np.float32]:
    """Windows (n, C, T) of one recording, in order of time.

    Args:
        own_segments: the recording's segments.
        partners: for each further sensor the segments of the same device, activity and bout.
        spec: rate, window, stride.
    """
    blocks = []
    for group in _joint_segments(own_segments, partners):
        span = overlap_ns(group)
        if span is None:  # a single sample
            continue
        grid = resample(group, span, spec.rate_hz)
        if grid.shape[1] >= spec.window_samples:
            views = np.lib.stride_tricks.sliding_window_view(grid, spec.window_samples, axis=1)
            blocks.append(views[:, :: spec.stride_samples].transpose(1, 0, 2))
    if not blocks:
        return np.empty((0, len(spec.channels), spec.window_samples), dtype=np.float32)
    return np.concatenate(blocks)


def resample(parts: Sequence[Segment], span_ns: tuple[int, int], rate_hz: float) -> NDArray[np.float32]:
    """Linear interpolation of segments of one device on a common regular grid, float32 (all axes, n).

    The grid starts at the first instant of `span_ns` and has `rate_hz` Hz; it ends with the last step inside
    the span, so nothing is extrapolated. Segments hold no gap over one second, so none is crossed.
    """
    start_ns, end_ns = span_ns
    num = int((end_ns - start_ns) * rate_hz / 1e9 + 1e-6) + 1
    grid_s = np.arange(num) / rate_hz
    rows = np.empty((sum(part.values.shape[1] for part in parts), num), dtype=np.float32)
    row = 0
    for part in parts:
        time_s = (part.time_ns - start_ns) / 1e9
        for values in part.values.T:
            rows[row] = np.interp(grid_s, time_s, values)
            row += 1
    return rows


def build_windows(groups: Iterable[Sequence[Recording]], spec: WindowSpec) -> Windows:
    """Windows of all groups; each group holds every recording of one (user, device)."""
    builder = WindowBuilder(spec)
    for group in groups:
        builder.add(group)
    return builder.finish()


def _partners(recording: Recording, candidates: Sequence[Recording]) -> list[Segment]:
    """Another sensor's segments of the same bout, found by arrival time: clocks restart and labels recur."""
    start_ms, end_ms = recording.arrival_span_ms
    partners: list[Segment] = []
    for candidate in candidates:
        if candidate.activity == recording.activity:
            other_start, other_end = candidate.arrival_span_ms
            if other_start <= end_ms and start_ms <= other_end:
                partners.extend(segments(candidate))
    return partners


def _joint_segments(
    own_segments: Sequence[Segment], partners: Sequence[Sequence[Segment]]
) -> list[list[Segment]]:
    """Combinations of one segment per sensor, overlapping in time, in order of time."""
    groups = [[segment] for segment in own_segments]
    for candidates in partners:
        groups = [
            [*group, candidate]
            for group in groups
            for candidate in candidates
            if overlap_ns([*group, candidate])
        ]
    return groups
