"""MotionSense as published, tiny; and the real windows written back as its CSV files."""

import numpy as np
import pytest
from published import write_motionsense

from fedge.datasets.catalog import prepare
from fedge.datasets.motionsense import CARD, CHANNELS, find_trials
from hhar.errors import HharError
from hhar.windows.window_file import Windows, fingerprint_windows, load_windows


def test_windows_are_the_rows_and_a_session_is_a_trial_of_a_person(tmp_path):
    """300 rows: (300 - 128) // 64 + 1 = 3 windows of each of the six trials; x is gravity plus motion."""
    write_motionsense(tmp_path)
    windows = prepare("motionsense", tmp_path)
    assert windows.x.shape == (18, 6, 128)
    assert windows.session.tolist()[::3] == ["01-01", "02-01", "01-11", "02-11", "01-05", "02-05"]
    assert windows.y.tolist() == [0] * 12 + [5] * 6
    assert windows.device is None
    np.testing.assert_array_equal(windows.x[1, 0], np.arange(64, 192) + 1)
    np.testing.assert_array_equal(windows.x[4, 0], np.arange(64, 192) + 2)
    np.testing.assert_array_equal(windows.x[6, :, 0], [1, 0.5, 0, 0, 0, 11])
    assert windows.about["licence"] == "MIT"
    assert windows.about["rate_hz"] == "50"


def test_line_ends_of_windows_and_a_byte_order_mark_change_nothing(tmp_path):
    write_motionsense(tmp_path / "a")
    write_motionsense(tmp_path / "b", end="\r\n")
    for path in (tmp_path / "b").rglob("*.csv"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    found = [fingerprint_windows(prepare("motionsense", tmp_path / name)) for name in "ab"]
    assert found[0] == found[1]


def test_the_sensors_own_folders_are_left_out(tmp_path):
    write_motionsense(tmp_path)
    other = tmp_path / "B_Accelerometer_data" / "dws_1"
    other.mkdir(parents=True)
    (other / "sub_1.csv").write_text(",x,y,z\n0,1,2,3\n")
    (tmp_path / "__MACOSX" / "A_DeviceMotion_data" / "dws_1").mkdir(parents=True)
    (tmp_path / "__MACOSX" / "A_DeviceMotion_data" / "dws_1" / "sub_1.csv").write_text("junk")
    assert len(find_trials(tmp_path)) == 6


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda text: text[: len(text) - 9], "line 301: must be a whole row of numbers"),
        (lambda text: text.replace("\n7,", "\n7,,", 1).replace("0.25,0.0", "x,0.0", 1), "line 2: must be"),
        (lambda text: "", "line 1: columns must include gravity.x"),
        (lambda text: text.splitlines()[0] + "\n", "must hold rows of numbers, holds none"),
        (lambda text: text.replace("userAcceleration.y", "uy", 1), "lack userAcceleration.y"),
    ],
    ids=["cut short", "no number", "empty", "header only", "another header"],
)
def test_a_broken_file_is_named(broken, message, tmp_path):
    write_motionsense(tmp_path)
    path = tmp_path / "A_DeviceMotion_data" / "dws_1" / "sub_1.csv"
    path.write_text(broken(path.read_text()))
    with pytest.raises(HharError, match=message) as caught:
        prepare("motionsense", tmp_path)
    assert str(path) in str(caught.value)


def test_nothing_there(tmp_path):
    with pytest.raises(HharError, match="must hold files like A_DeviceMotion_data"):
        prepare("motionsense", tmp_path)


def _as_published(windows: Windows, folder) -> None:
    """Write windows that overlap by half, put together again, as the CSV files that they were cut from."""
    codes = dict(zip(CARD.classes, ("dws", "ups", "wlk", "jog", "std", "sit"), strict=True))
    from published import MOTIONSENSE_HEADER

    starts = np.flatnonzero(np.concatenate([[True], windows.session[1:] != windows.session[:-1]]))
    for a, b in zip(starts, [*starts[1:], len(windows)], strict=True):
        x = np.concatenate([windows.x[a], *windows.x[a + 1 : b, :, 64:]], axis=1).T
        person, trial = windows.session[a].split("-")
        code = codes[windows.classes[windows.y[a]]]
        path = folder / "A_DeviceMotion_data" / f"{code}_{int(trial)}" / f"sub_{int(person)}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as stream:
            stream.write(MOTIONSENSE_HEADER + "\n")
            for number, row in enumerate(x.tolist()):
                acc, gyro = ",".join(map(repr, row[:3])), ",".join(map(repr, row[3:]))
                stream.write(f"{number},0,0,0,0,0,0,{gyro},{acc}\n")


@pytest.mark.whole_runs
def test_the_real_windows_come_out_as_they_are(shared_data, tmp_path):
    """The file that docs/results.md was made with, back to CSV and prepared: bit by bit the same contents.

    Three people of 24, all trials; the whole file does, too, in a minute.
    """
    whole = load_windows(shared_data / "motionsense-24users" / "motionsense-24users-128x6.npz")
    some = np.isin(whole.user, ["01", "10", "24"])
    session = whole.session[some]
    real = Windows(
        whole.x[some], whole.y[some], whole.user[some], None, session, whole.classes, whole.channels
    )
    assert real.channels == CHANNELS
    _as_published(real, tmp_path)
    made = prepare("motionsense", tmp_path)
    assert fingerprint_windows(made) == fingerprint_windows(real)
