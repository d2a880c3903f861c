"""HHAR by way of the package `hhar`: the same windows, and what they are."""

import pytest

from fedge.datasets.catalog import prepare
from hhar.errors import HharError
from hhar.raw.prepare import prepare as by_hhar
from hhar.windows.cut import WindowSpec
from hhar.windows.window_file import fingerprint_windows

HEADER = "Index,Arrival_Time,Creation_Time,x,y,z,User,Model,Device,gt"


def write_hhar(folder):
    """Write two sensors of user a's nexus4_1: 6 s of standing, `null`, 6 s of walking, at 100 Hz."""
    place = folder / "Activity recognition exp"
    place.mkdir(parents=True)
    for name in ("Phones_accelerometer.csv", "Phones_gyroscope.csv"):
        lines = [HEADER]
        for number in range(1300):
            label = "stand" if number < 601 else "null" if number < 650 else "walk"
            arrival, creation = (
                1_424_696_633_908 + 10 * number,
                1_424_696_631_913_248_572 + 10_000_000 * number,
            )
            lines.append(f"{number},{arrival},{creation},{number / 100},0.5,9.8,a,nexus4,nexus4_1,{label}")
        (place / name).write_text("\n".join(lines) + "\n")


def test_the_same_windows_as_the_package_makes(tmp_path):
    write_hhar(tmp_path)
    windows = prepare("hhar", tmp_path)
    assert fingerprint_windows(windows) == fingerprint_windows(by_hhar(tmp_path, WindowSpec()))
    assert windows.session.tolist() == ["a/stand/01"] * 3 + ["a/walk/01"] * 4
    assert windows.about["licence"] == "CC BY 4.0"
    assert prepare("hhar", tmp_path, sensors="acc").x.shape[1] == 3


def test_options_and_what_is_missing(tmp_path):
    write_hhar(tmp_path)
    with pytest.raises(HharError, match=r"must hold Watch_accelerometer\.csv"):
        prepare("hhar", tmp_path, devices="watches")
    with pytest.raises(HharError, match="devices: must be phones, watches or all"):
        prepare("hhar", tmp_path, devices="shoes")
    with pytest.raises(HharError, match="sensors: must be acc or acc"):
        prepare("hhar", tmp_path, sensors="mag")
