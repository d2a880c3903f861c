"""Every data set has a whole card, and takes one path."""

import json

import numpy as np
import pytest
from published import write_motionsense, write_pamap2, write_uci_har, write_wisdm

from fedge.datasets.catalog import NAMES, card, prepare
from hhar.errors import HharError
from hhar.raw.download import check_url
from hhar.windows.window_file import fingerprint_windows


@pytest.mark.parametrize("name", NAMES)
def test_a_card_says_whose_it_is(name):
    known = card(name)
    assert known.name == name
    for text in (known.title, known.units, known.licence, known.citation, known.source):
        assert text.isprintable()
        assert len(text) > 2
    assert known.source.startswith("https://")
    assert len(set(known.classes)) == len(known.classes) > 1
    for file in known.files:
        check_url(file.url)
        assert file.url.startswith("https://")
        assert file.sha256 == "" or len(bytes.fromhex(file.sha256)) == 32
        assert file.megabytes > 0


def test_a_name_or_an_option_that_is_none(tmp_path):
    with pytest.raises(HharError, match="is 'motion-sense'; did you mean motionsense"):
        card("motion-sense")
    with pytest.raises(HharError, match="motionsense: --devices must be an option of it, is not; it takes"):
        prepare("motionsense", tmp_path, devices="all")
    with pytest.raises(HharError, match="rate_hz: must be a positive number, but is 0"):
        prepare("motionsense", tmp_path, rate_hz=0.0)


def test_another_rate_and_length(tmp_path):
    """300 rows are 150 samples at 25 Hz; windows of 50 overlap by half unless told otherwise."""
    write_motionsense(tmp_path)
    windows = prepare("motionsense", tmp_path, rate_hz=25.0, window_s=2.0)
    assert windows.x.shape == (6 * 5, 6, 50)
    assert (windows.about["rate_hz"], windows.about["stride_s"]) == ("25", "1")
    assert len(prepare("motionsense", tmp_path, rate_hz=25.0, window_s=2.0, stride_s=2.0)) == 6 * 3


def test_one_unit_and_one_name_for_all(tmp_path):
    """1 g is 9.80665 m/s²; the gyroscope stays; where it is so already nothing changes."""
    write_motionsense(tmp_path)
    plain, si = (prepare("motionsense", tmp_path, si=si) for si in (None, True))
    np.testing.assert_allclose(si.x[:, :3], plain.x[:, :3] * 9.80665, rtol=1e-6)
    assert np.array_equal(si.x[:, 3:], plain.x[:, 3:])
    assert si.channels[3:] == ("gyro_x", "gyro_y", "gyro_z")
    assert si.about["units"] == "acceleration with gravity in m/s², angular velocity in rad/s"
    write_wisdm(
        tmp_path,
        [f"1,{name},{5 + n * 50_000_000},1,1,1;" for name in ("Walking", "Sitting") for n in range(90)],
    )
    assert fingerprint_windows(prepare("wisdm", tmp_path)) == fingerprint_windows(
        prepare("wisdm", tmp_path, si=True)
    )
    with pytest.raises(HharError, match="mnist: --si must be an option of it"):
        prepare("mnist", tmp_path, si=True)


def test_too_short_for_a_window(tmp_path):
    for name, write in (
        ("motionsense", lambda: write_motionsense(tmp_path / "a", rows=20)),
        ("uci-har", lambda: write_uci_har(tmp_path / "b", {"train": [(1, 1), (1, 4)]})),
        ("wisdm", lambda: write_wisdm(tmp_path / "c", ["1,Walking,5,1,1,1;"])),
        ("pamap2", lambda: write_pamap2(tmp_path / "d", 101, [" ".join(["1"] * 54)])),
    ):
        write()
        with pytest.raises(HharError, match=r"must hold 20\.0 s"):
            prepare(
                name,
                tmp_path / "abcd"[["motionsense", "uci-har", "wisdm", "pamap2"].index(name)],
                window_s=20.0,
            )


def test_from_an_archive(tmp_path):
    """As downloaded: a zip of a folder; nothing of it stays."""
    import shutil

    write_motionsense(tmp_path / "raw")
    path = shutil.make_archive(str(tmp_path / "A_DeviceMotion_data"), "zip", tmp_path / "raw")
    assert len(prepare("motionsense", path)) == 18
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["A_DeviceMotion_data.zip", "raw"]


def test_what_a_file_says_is_short_text():
    for name in NAMES:
        known = card(name)
        assert len(json.dumps(known.about(known.spec))) < 2000
