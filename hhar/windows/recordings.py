"""A recording: samples of one sensor of one device during one bout, in order of delivery.

The CSV reader and the synthetic generator both produce recordings; all later steps depend on them alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Recording:
    """n samples of one sensor between two changes of the label.

    Attributes:
        user: wearer of the device.
        device: name of the device, e.g. "nexus4_1"; empty if unknown.
        sensor: in HHAR "acc" (m/s²) or "gyro" (rad/s); one of the `WindowSpec`'s.
        activity: a class, or "null" in recordings for raw files only.
        arrival_ms: int64 (n), epoch ms at which the app received the sample; bursts share one value.
        creation_ns: int64 (n), time by the device's own clock, with an epoch of its own; may run backwards
            from row to row.
        values: float32 (n, axes); of an accelerometer or gyroscope x, y, z in the device's frame.
        session: name of the bout if the data set gives one; empty: bouts are found by arrival time.
    """

    user: str
    device: str
    sensor: str
    activity: str
    arrival_ms: NDArray[np.int64]
    creation_ns: NDArray[np.int64]
    values: NDArray[np.float32]
    session: str = ""

    @property
    def arrival_span_ms(self) -> tuple[int, int]:
        """First and last arrival time, the only clock shared by devices."""
        return int(self.arrival_ms.min()), int(self.arrival_ms.max())
