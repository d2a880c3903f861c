"""WISDM as published, tiny, with what is wrong in the real file."""

import numpy as np
import pytest
from published import wisdm_record, write_wisdm

from fedge.datasets.catalog import prepare
from hhar.errors import HharError


def records(person, activity, count, **options):
    return [wisdm_record(person, activity, number, **options) for number in range(count)]


def test_windows_of_runs_of_one_activity(tmp_path):
    """200 samples are 10 s: windows of 4 s every 2 s, 4 of them; names sort by number."""
    write_wisdm(
        tmp_path, records(33, "Jogging", 200) + records(33, "Walking", 200) + records(5, "Walking", 200)
    )
    windows = prepare("wisdm", tmp_path)
    assert windows.x.shape == (12, 3, 80)
    assert windows.session.tolist() == ["05/walk/01"] * 4 + ["33/jog/01"] * 4 + ["33/walk/01"] * 4
    np.testing.assert_allclose(windows.x[0, 0], np.arange(80) / 10, atol=1e-5)
    np.testing.assert_allclose(windows.x[1, 0], np.arange(40, 120) / 10, atol=1e-5)
    assert windows.about["left_out"] == "0 of 600 records that were not whole"
    assert windows.about["licence"].startswith("none stated")


def test_quirks_of_the_real_file(tmp_path):
    """Two records in a line, `,;`, blank lines, ends of Windows: read; times of 0, no z: left out."""
    lines = records(1, "Jogging", 600) + records(1, "Sitting", 600)
    odd = [*lines]
    odd[3:5] = [lines[3] + lines[4]]
    odd[10] = odd[10].replace(";", ",;")
    odd.insert(20, "")
    odd.insert(30, "11,Walking,1867172313000,4.4,4.4,;")
    odd.insert(40, "20,Walking,0,0,0,0.0;")
    odd.insert(50, "19, Sitting, 131623531465000, 8.88, -1.33, 1.61;")
    write_wisdm(tmp_path / "odd", odd, end="\r\n")
    windows = prepare("wisdm", tmp_path / "odd")
    assert windows.about["left_out"] == "2 of 1203 records that were not whole"
    write_wisdm(tmp_path / "even", [*lines[:48], "19,Sitting,131623531465000,8.88,-1.33,1.61;", *lines[48:]])
    assert np.array_equal(windows.x, prepare("wisdm", tmp_path / "even").x)


def test_nothing_crosses_a_gap_or_a_clock_that_runs_back(tmp_path):
    """6 s, then time jumps 10 s on, or back to the start: (6 s → 2 windows) twice, none across."""
    for shift_s in (10, -6):
        first = records(1, "Walking", 120)
        start = 49_105_962_326_000 + (120 * 50 + shift_s * 1000) * 1_000_000
        again = [wisdm_record(1, "Walking", n, x=100 + n, start_ns=start) for n in range(120)]
        folder = tmp_path / str(shift_s)
        write_wisdm(folder, first + again + records(1, "Sitting", 100))
        windows = prepare("wisdm", folder)
        walk = windows.x[windows.y == 0]
        assert len(walk) == 4
        assert not ((walk[:, 0] < 50).any(axis=1) & (walk[:, 0] > 50).any(axis=1)).any()


def test_a_file_of_something_else_is_refused_with_its_first_line(tmp_path):
    good = records(1, "Walking", 100)
    write_wisdm(tmp_path, [*good[:5], "not,a,record", *good[5:], "1,Flying,5,1,1,1;"])
    with pytest.raises(HharError, match="line 6: records must be user,activity,time,x,y,z; but 2 of 102"):
        prepare("wisdm", tmp_path)
    write_wisdm(tmp_path, [""])
    with pytest.raises(HharError, match="but 0 of 0"):
        prepare("wisdm", tmp_path)


def test_a_last_line_that_is_cut_short_is_left_out(tmp_path):
    """As after a broken copy: one record in 400."""
    write_wisdm(tmp_path, records(1, "Walking", 200) + records(1, "Sitting", 199) + ["1,Sitting,4911596"])
    assert prepare("wisdm", tmp_path).about["left_out"] == "1 of 400 records that were not whole"


def test_missing_or_the_other_set(tmp_path):
    with pytest.raises(HharError, match=r"must hold WISDM_ar_v1\.1_raw\.txt, holds none"):
        prepare("wisdm", tmp_path)
    (tmp_path / "data_1600_accel_phone.txt").write_text("1600,A,252207666810782,-0.36,8.79,1.05;\n")
    with pytest.raises(HharError, match="holds the set of 2019"):
        prepare("wisdm", tmp_path)
