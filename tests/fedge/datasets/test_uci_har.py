"""UCI HAR in both forms, tiny."""

import numpy as np
import pytest
from published import write_hapt, write_uci_har

from fedge.datasets.catalog import prepare
from fedge.datasets.uci_har import stitch_recordings
from hhar.errors import HharError

WALK, SIT, LIE = 1, 4, 6


def test_published_windows_come_out_as_they_are(tmp_path):
    """Five rows of one person, then another in the test part; a session is a run of one activity."""
    write_uci_har(tmp_path, {"train": [(1, WALK)] * 3 + [(1, SIT)] * 2, "test": [(2, WALK), (2, LIE)]})
    windows = prepare("uci-har", tmp_path)
    assert windows.x.shape == (7, 6, 128)
    assert windows.user.tolist() == ["01"] * 5 + ["02"] * 2
    assert windows.session.tolist() == [
        "01/sit/01", "01/sit/01", "01/walk/01", "01/walk/01", "01/walk/01", "02/lie/01", "02/walk/01",
    ]  # fmt: skip
    np.testing.assert_allclose(windows.x[3, 2], (np.arange(128) + 64) / 100 + 2, rtol=1e-6)
    assert windows.about["licence"] == "CC BY 4.0"


def test_another_length_is_cut_from_what_was_put_together(tmp_path):
    """Three rows are 256 samples: two windows of 2 s, from 0 s and 2 s on... and 5.12 s are one."""
    write_uci_har(tmp_path, {"train": [(1, WALK)] * 3 + [(2, SIT)] * 3})
    windows = prepare("uci-har", tmp_path, window_s=5.12)
    assert windows.x.shape == (2, 6, 256)
    np.testing.assert_allclose(windows.x[0, 0], np.arange(256) / 100, rtol=1e-6, atol=1e-7)


def test_nothing_is_put_together_across_what_is_missing(tmp_path):
    write_uci_har(tmp_path, {"train": [(1, WALK)] * 4 + [(1, SIT)]}, gap=(2,))
    windows = prepare("uci-har", tmp_path)
    assert len(windows) == 5  # all published ones, and none across the gap
    assert set(windows.session) == {"01/walk/01", "01/sit/01"}


def test_stitched():
    """Windows of one signal that counts: 0..127, 64..191, then 300..427."""
    x = np.stack([np.arange(a, a + 128) for a in (0, 64, 300)])[:, :, None].astype(np.float32)
    found = stitch_recordings(x)
    assert [(row, part.shape, part[0, 0], part[-1, 0]) for row, part in found] == [
        (0, (192, 1), 0, 191), (2, (128, 1), 300, 427),
    ]  # fmt: skip


def test_raw_recordings_without_transitions(tmp_path):
    """Label rows count samples from 1, both ends included; 7 to 12 are transitions and left out."""
    write_hapt(
        tmp_path, [(1, 3, WALK, 1, 256), (1, 3, 7, 257, 400), (1, 3, SIT, 401, 600), (2, 4, WALK, 11, 300)]
    )
    windows = prepare("uci-har", tmp_path)
    assert windows.classes == ("walk", "upstairs", "downstairs", "sit", "stand", "lie")
    # 256, 200 and 290 samples: 3, 2 and 3 windows
    assert windows.session.tolist() == ["03/sit/01"] * 2 + ["03/walk/01"] * 3 + ["04/walk/01"] * 3
    np.testing.assert_array_equal(windows.x[0, 0], np.arange(401, 529))
    np.testing.assert_array_equal(windows.x[5, 3], -np.arange(11, 139))


def test_what_is_missing_or_broken_is_named(tmp_path):
    with pytest.raises(HharError, match="holds neither; fetch it"):
        prepare("uci-har", tmp_path)
    write_uci_har(tmp_path, {"train": [(1, WALK), (1, SIT)]})
    place = tmp_path / "UCI HAR Dataset" / "train"
    whole = (place / "y_train.txt").read_text()
    (place / "y_train.txt").write_text("1\n")
    with pytest.raises(HharError, match="as many rows, have 2, 2, 1"):
        prepare("uci-har", tmp_path)
    (place / "y_train.txt").write_text("1\n9\n")
    with pytest.raises(HharError, match=r"y must lie in 1\.\.6, is 1\.\.9"):
        prepare("uci-har", tmp_path)
    (place / "y_train.txt").write_text(whole)
    signal = place / "Inertial Signals" / "body_gyro_y_train.txt"
    signal.write_text(signal.read_text()[:-40])
    with pytest.raises(HharError, match=r"body_gyro_y_train\.txt: must hold 128 numbers a row"):
        prepare("uci-har", tmp_path)
    signal.unlink()
    with pytest.raises(HharError, match=r"body_gyro_y_train\.txt: must exist"):
        prepare("uci-har", tmp_path)
    for path in (place / "Inertial Signals").iterdir():
        path.unlink()
    with pytest.raises(HharError, match="features only"):
        prepare("uci-har", tmp_path)
