"""HHAR (Stisen et al. 2015), read by the package `hhar`, which also has its own command."""

from __future__ import annotations

from pathlib import Path

from fedge.datasets.cards import DataCard, RemoteFile
from hhar.facts import ACTIVITIES, USERS
from hhar.progress import ProgressCallback, no_progress
from hhar.raw.download import UCI_URL
from hhar.windows.cut import WindowSpec
from hhar.windows.window_file import Windows

CARD = DataCard(
    name="hhar",
    title="Heterogeneity Activity Recognition (HHAR)",
    users=len(USERS),
    classes=ACTIVITIES,
    rate_hz=200.0,
    units="acceleration with gravity in m/s², angular velocity in rad/s",
    licence="CC BY 4.0",
    citation="Stisen et al.: Smart Devices are Different: Assessing and Mitigating Mobile Sensing "
    "Heterogeneities for Activity Recognition, SenSys 2015, doi:10.1145/2809695.2809718",
    source="https://archive.ics.uci.edu/dataset/344 (doi:10.24432/C5689X)",
    files=(RemoteFile(UCI_URL, "heterogeneity-activity-recognition.zip", 822),),
    options=("rate_hz", "window_s", "stride_s", "sensors", "devices"),
    spec=WindowSpec(),
)


def read(
    folder: Path, spec: WindowSpec, report: ProgressCallback = no_progress, devices: str = "phones"
) -> Windows:
    """Windows of all users; see `hhar.raw.prepare.prepare`."""
    from hhar.raw.prepare import prepare  # loads Polars, which the card can do without

    return prepare(folder, spec, devices, report)
