"""``fedge datasets``, as typed."""

import os
import shlex

import numpy as np
import pytest
from published import write_motionsense

from fedge.cli import main
from fedge.datasets.catalog import NAMES
from fedge.launch.projects.project import Project
from fedge.process.endings import exits
from hhar.windows.window_file import load_windows


def test_list(capsys):
    for words in (["datasets"], ["datasets", "list"]):
        assert main(words) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in lines[1 : len(NAMES) + 1]] == list(NAMES)
        assert all(len(line) <= 110 for line in lines)
    assert "CC BY 4.0" in lines[1]


def test_info_of_a_data_set_and_of_a_file(tmp_path, capsys):
    assert main(["datasets", "info", "pamap2"]) == 0
    out = capsys.readouterr().out
    assert "citation   Reiss, Stricker" in out
    assert "sha256     none is known: recorded at download" in out
    write_motionsense(tmp_path / "raw")
    out = tmp_path / "made" / "m.npz"
    assert main(["datasets", "prepare", "motionsense", str(tmp_path / "raw"), str(out)]) == 0
    said = capsys.readouterr().out
    assert f"{out}: 18 windows of 6 × 128, 2 users, 6 classes" in said
    assert "licence: MIT" in said
    assert "next: fedge run -c 'data.path=" in said
    assert main(["datasets", "info", str(out)]) == 0
    assert "licence      MIT" in capsys.readouterr().out
    assert load_windows(out).about["citation"].startswith("Malekzadeh")


@pytest.mark.parametrize("folder", ["plain", "two words", "Anna's", "走"])
def test_the_next_command_can_be_pasted_whatever_the_files_name(tmp_path, capsys, folder):
    write_motionsense(tmp_path / "raw")
    out = tmp_path / folder / "m.npz"
    out.parent.mkdir()
    assert main(["datasets", "prepare", "motionsense", str(tmp_path / "raw"), str(out)]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("next: ")]
    *_, option = shlex.split(line)
    assert Project(tmp_path).run_config([option])["data.path"] == str(out)


def test_people_who_do_everything_once_are_split_by_blocks(tmp_path, capsys):
    """Two trials of walking downstairs are two sessions of one class; one trial of each is not."""
    for trials, lone in ((("dws_1", "sit_5"), True), (("dws_1", "dws_2", "sit_5"), False)):
        raw = tmp_path / str(len(trials))
        write_motionsense(raw, trials=trials)
        assert main(["datasets", "prepare", "motionsense", str(raw), str(tmp_path / "m.npz")]) == 0
        said = capsys.readouterr().out
        assert ("note: some users do everything once" in said) == lone
        assert ('data.split="blocks"' in said) == lone


def test_the_default_places(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["datasets", "prepare", "motionsense"]) == exits.FAILED
    assert "run `fedge datasets download motionsense`" in capsys.readouterr().err
    write_motionsense(tmp_path / "data" / "raw" / "motionsense")
    assert main(["datasets", "prepare", "motionsense", "--compress", "--stride-s", "2.56"]) == 0
    assert np.bincount(load_windows("data/motionsense.npz").y).tolist() == [8, 0, 0, 0, 0, 4]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["info", "motion"], "did you mean motionsense"),
        (["download", "wisdm", "--url", "http://example.org/x"], "must begin with https://"),
        (["download", "wisdm", "--sha256", "12"], "must be 64 hex digits"),
        (["prepare", "wisdm", "nowhere"], "nowhere: must be a folder or an archive, is not there"),
        (["prepare", "wisdm", ".", "o"], "o must be a window file's name, ending in .npz"),
        (["prepare", "wisdm", ".", "--rate-hz", "0"], "rate_hz: must be a positive number"),
        (["prepare", "wisdm", ".", "--sensors", "acc"], "--sensors must be an option of it"),
        (["info", "none.npz"], "window file must exist"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value[:3]),
)
def test_refusals_are_one_line(words, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["datasets", *words]) == exits.FAILED
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_one_line(capsys, tmp_path):
    """A file stands where the folder is to be: also for root, whom no permission stops."""
    write_motionsense(tmp_path / "raw")
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "m.npz"
    assert main(["datasets", "prepare", "motionsense", str(tmp_path / "raw"), str(out)]) == exits.FAILED
    assert main(["datasets", "download", "wisdm", "--to", str(tmp_path / "file")]) == exits.FAILED
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert all("cannot be" in line for line in errors), errors


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(capsys, tmp_path):
    tmp_path.chmod(0o500)
    assert main(["datasets", "download", "wisdm", "--to", str(tmp_path / "raw")]) == exits.FAILED
    assert "Permission denied" in capsys.readouterr().err
