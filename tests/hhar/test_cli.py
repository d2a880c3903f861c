"""The command `hhar`: what it prints, where it writes, and one line for every error."""

import subprocess
import sys
import zipfile

import pytest

from hhar import load_windows
from hhar.cli import main


@pytest.mark.slow
def test_synthesize_prepare_info(tmp_path, capsys, monkeypatch):
    """Raw rows → `hhar prepare` with its default output → `hhar info`, all in the working directory."""
    monkeypatch.chdir(tmp_path)
    assert main(["synthesize", "--raw", "data/hhar-raw", "--users", "2", "--fraction", "0.03"]) == 0
    assert "Watch_gyroscope.csv" in capsys.readouterr().out
    assert main(["prepare", "--devices", "all"]) == 0
    windows = load_windows("data/hhar-windows.npz")
    assert windows.x.shape[1:] == (6, 128)
    capsys.readouterr()
    assert main(["info"]) == 0
    text = capsys.readouterr().out
    for part in (
        f"{len(windows)} windows × 6 channels × 128 samples",
        "users        2",
        "stairsdown",
        "gear_1",
        "sessions",
    ):
        assert part in text


def test_synthesize_small_and_full(tmp_path):
    assert main(["synthesize", str(tmp_path / "s.npz"), "--small", "--users", "2", "--seed", "4"]) == 0
    assert len(load_windows(tmp_path / "s.npz")) == 432
    options = ["--users", "1", "--fraction", "0.02", "--sensors", "acc", "--rate-hz", "20", "--window-s", "2"]
    assert main(["synthesize", str(tmp_path / "f.npz"), *options]) == 0
    assert load_windows(tmp_path / "f.npz").x.shape[1:] == (3, 40)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "none.npz"], "window file must exist"),
        (["prepare", "none"], "must exist; fetch it with `hhar download`"),
        (["synthesize"], "either a window file or --raw"),
        (["synthesize", "x.npz", "--users", "0"], "num_users: must be from"),
        (["synthesize", "--raw", "r", "--fraction", "2"], "fraction: must be greater than 0"),
        (["prepare", ".", "--window-s", "-1"], "window_s: must be a positive number"),
        (["download", "--url", "http://example.org/a.zip"], "must begin with https"),
        (["download", "--url", "https://example.org/a.zip", "--sha256", "12"], "64 hex digits"),
    ],
)
def test_errors_are_one_line_and_exit_code_two(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("hhar: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_download_unpacks_what_is_there(tmp_path, capsys):
    """An archive that was fetched by hand is checked, recorded and unpacked without the network."""
    with zipfile.ZipFile(tmp_path / "heterogeneity-activity-recognition.zip", "w") as archive:
        archive.writestr("exp/exp/Phones_accelerometer.csv", "rows")
    assert main(["download", "--to", str(tmp_path)]) == 0
    assert (tmp_path / "exp" / "Phones_accelerometer.csv").read_text() == "rows"
    assert "sha256" in capsys.readouterr().out


def test_python_dash_m():
    done = subprocess.run(
        [sys.executable, "-m", "hhar", "--help"], capture_output=True, text=True, check=True
    )
    for command in ("download", "prepare", "info", "synthesize"):
        assert command in done.stdout


def test_hhar_imports_nothing_of_the_simulator():
    code = "import sys, hhar.cli; print({n.split('.')[0] for n in sys.modules} & {'fedge', 'flwr', 'torch'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
