"""PAMAP2 as published, tiny: 54 columns, NaN where packets were lost."""

import numpy as np
import pytest
from published import pamap2_row, write_pamap2

from fedge.datasets.catalog import prepare
from fedge.datasets.pamap2 import CHANNELS
from hhar.errors import HharError

LIE, WALK = 1, 4


def rows(activity, seconds, start_s=8.38, lost=lambda time_s: ()):
    times = start_s + np.arange(round(seconds * 100)) / 100
    return [
        pamap2_row(t, activity, lost(t - start_s), "104" if n % 11 == 0 else "NaN")
        for n, t in enumerate(times)
    ]


def test_windows_of_three_sensors(tmp_path):
    """6 s of lying, 1 s between, 6 s of walking: at 50 Hz (301 - 128) // 64 + 1 = 3 windows each."""
    write_pamap2(tmp_path, 101, rows(LIE, 6.01) + rows(0, 1, 14.4) + rows(WALK, 6.01, 15.4))
    write_pamap2(tmp_path, 101, rows(9, 6.01), under="Optional")
    windows = prepare("pamap2", tmp_path)
    assert windows.x.shape == (6, 18, 128)
    assert windows.channels == CHANNELS
    assert windows.session.tolist() == ["101/lie/01"] * 3 + ["101/walk/01"] * 3
    # time + column: 4 is the hand's acceleration, 10 its gyroscope; the chest's from 21, the ankle's from 38
    first = 8.38 + np.arange(128) / 50
    for channel, column in ((0, 4), (3, 10), (6, 21), (9, 27), (12, 38), (15, 44)):
        np.testing.assert_allclose(windows.x[0, channel], first + column, atol=2e-3)
    assert windows.about["rate_hz"] == "50"


def test_short_losses_are_bridged_and_long_ones_are_gaps(tmp_path):
    """The hand is lost for 0.5 s: as if not; for 1.5 s in the middle of 8 s: no window across it."""
    short = rows(LIE, 8.01, lost=lambda t: ["hand"] if 3 < t < 3.5 else [])
    long = rows(WALK, 8.01, 20, lost=lambda t: ["hand"] if 3.2 < t < 4.8 else [])
    write_pamap2(tmp_path, 101, short + long)
    windows = prepare("pamap2", tmp_path)
    assert (windows.y == 0).sum() == (401 - 128) // 64 + 1
    walk = windows.x[windows.y == 3]
    assert len(walk) == 2  # one on each side of the gap
    times = walk[:, 6] - 21 - 20
    assert not ((times < 3.3) & True).any(axis=1)[1]
    assert not (times > 4.7).any(axis=1)[0]


def test_what_is_missing_or_broken_is_named(tmp_path):
    with pytest.raises(HharError, match=r"must hold files like Protocol/subject101\.dat"):
        prepare("pamap2", tmp_path)
    good = rows(LIE, 6) + rows(WALK, 6, 15)
    write_pamap2(tmp_path, 102, [*good[:5], good[5][:100], *good[6:]])
    with pytest.raises(HharError, match=r"subject102\.dat, line 6: must be a whole row of 54 numbers"):
        prepare("pamap2", tmp_path)
    write_pamap2(tmp_path, 102, [row.replace(" ", ",") for row in good])
    with pytest.raises(HharError, match=r"subject102\.dat: must hold 54 numbers a row"):
        prepare("pamap2", tmp_path)
    write_pamap2(tmp_path, 102, [*good[:5], "NaN" + good[5][4:], *good[6:]])
    with pytest.raises(HharError, match="line 6: must be a whole row"):
        prepare("pamap2", tmp_path)
    write_pamap2(tmp_path, 102, rows(0, 6))
    with pytest.raises(HharError, match="none does"):
        prepare("pamap2", tmp_path)
    (tmp_path / "PAMAP2_Dataset" / "Protocol" / "subject102.dat").write_text("")
    with pytest.raises(HharError, match=r"subject102\.dat"):
        prepare("pamap2", tmp_path)
