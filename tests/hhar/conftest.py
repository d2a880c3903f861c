"""Where the tests find real data, and small recordings made by hand."""

import os
from pathlib import Path

import numpy as np
import pytest

from hhar.windows.recordings import Recording

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def data_folder() -> Path:
    folder = Path(os.environ.get("FEDGE_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set FEDGE_TEST_DATA")
    return folder


@pytest.fixture(scope="session")
def excerpt(data_folder: Path) -> Path:
    folder = data_folder / "hhar-raw-excerpt"
    if not folder.is_dir():
        pytest.skip(f"no raw excerpt at {folder}; set FEDGE_TEST_DATA")
    return folder


@pytest.fixture
def make_recording():
    """A recording of `seconds` s at `rate_hz`; each axis is a known straight line in time."""

    def make(
        user="a", device="nexus4_1", sensor="acc", activity="walk", seconds=4.0, rate_hz=100.0, start_s=0.0
    ) -> Recording:
        time_s = start_s + np.arange(int(seconds * rate_hz) + 1) / rate_hz
        values = np.stack([time_s, 2 * time_s, -time_s], axis=1).astype(np.float32)
        arrival_ms = 1_424_696_000_000 + np.rint(time_s * 1000).astype(np.int64)
        return Recording(
            user, device, sensor, activity, arrival_ms, np.rint(time_s * 1e9).astype(np.int64), values
        )

    return make
