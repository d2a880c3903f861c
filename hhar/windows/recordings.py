"""A recording: samples of one sensor of one device during one bout, in the order in which they were
delivered.

Both the CSV reader and the synthetic generator make recordings; all later steps know nothing else.
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
        device: which one, e.g. "nexus4_1".
        sensor: in HHAR "acc" (m/s²) or "gyro" (rad/s); one of the `WindowSpec`'s.
        activity: a class; "null" only on its way into a raw file, never on the way to windows.
        arrival_ms: int64 (n), epoch ms at which the app saw the sample; bursts share one value.
        creation_ns: int64 (n), the device's own clock, on an epoch of its own; may run backwards from row to
            row.
        values: float32 (n, axes); of an accelerometer or gyroscope x, y, z in the device's frame.
        session: name of the bout, where the data set tells it; empty: found by arrival.
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
        """First and last arrival; the only times that two devices have in common."""
        return int(self.arrival_ms.min()), int(self.arrival_ms.max())
