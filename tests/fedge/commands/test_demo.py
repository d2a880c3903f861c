"""`fedge demo`: two runs, and the lines that say what they show."""

import pytest

from fedge.cli import main
from fedge.launch.projects.packaged import packaged_names
from fedge.records.folder import LATEST
from fedge.records.reading.reader import load_run


@pytest.mark.whole_runs
@pytest.mark.slow
@pytest.mark.extended
def test_the_demonstration_says_what_its_two_runs_hold(tmp_path, capsys, monkeypatch):
    """Two rounds are enough to find the planted halves; every figure printed stands in the tables."""
    monkeypatch.delenv("SEED", raising=False)
    code = main(["demo", "--rounds", "2", "--runs-dir", str(tmp_path), "--no-open", "--seed", "42"])
    out = capsys.readouterr().out
    runs = sorted(folder for folder in tmp_path.iterdir() if folder.name != LATEST)
    groups, one = (load_run(folder) for folder in runs)
    assert code == 0
    assert [run.name.split("-", 3)[-1] for run in (groups, one)] == ["groups", "one-model"]
    planted, found = (
        line.split(None, 1)[1] for line in out.splitlines() if line.split()[:1] in (["planted"], ["found"])
    )
    assert planted == found == "{0 1 2} {3 4 5}"
    for column in ("test_accuracy_mean", "unseen_accuracy_mean"):
        assert f"{100 * one.rounds[column][-1]:18.1f}{100 * groups.rounds[column][-1]:19.1f}" in out
    assert "(p = " in out
    assert "of 12 do better with their group's model" in out
    assert f"report: {groups.folder / 'report.html'}" in out
    assert (groups.folder / "report.html").is_file()
    assert not (one.folder / "report.html").exists()


def test_a_seed_that_the_environment_contradicts_is_refused(monkeypatch, capsys, tmp_path):
    """SEED would win over the option without a word."""
    monkeypatch.setenv("SEED", "7")
    assert main(["demo", "--seed", "8", "--runs-dir", str(tmp_path)]) == 4
    assert "--seed must agree with SEED=7 of the environment, but is 8" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_its_configuration_is_one_of_the_packaged():
    """So `fedge run -c fedge:demo` carries out its second half."""
    assert "demo" in packaged_names()
