"""`fedge compare` of a sweep: its own reference and grid, by its folder alone."""

import csv
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fedge import load_run
from fedge.cli import main
from fedge.records.manifest import RunFolderError
from fedge.sweep.comparing import compare_study
from fedge.sweep.study import kept_study
from fedge.sweep.summary import write_summary

pytestmark = pytest.mark.whole_runs

FILE = """
[sweep]
seeds = [1]
supernodes = 4
runs-dir = "{runs}"

[base]
data.path = "synthetic"
train.model = "linear"
train.local-epochs = 1
num-server-rounds = 1

[[variants]]
name = "zero"
cluster.enabled = false
gate.enabled = false

[[variants]]
name = "all"

[grid]
train.lr = [0.1, 0.001]
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Folder of a sweep of two variants, whose reference is the last by name, on a grid of two step sizes."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "s.toml").write_text(FILE.format(runs=folder))
    command = [sys.executable, "-m", "fedge.cli", "sweep", str(folder / "s.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (folder / "s.toml").unlink()
    return folder / "s"


def compared(study, tmp_path, *words):
    """Rows of the CSV of `fedge compare`."""
    places = [
        "--runs-dir",
        str(study.parent),
        "-o",
        str(tmp_path / "c.html"),
        "--csv",
        str(tmp_path / "c.csv"),
    ]
    assert main(["compare", *words, *places]) == 0
    with (tmp_path / "c.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_sweep_is_compared_against_its_own_reference_once_per_entry_of_its_grid(study, tmp_path, capsys):
    rows = [row for row in compared(study, tmp_path, "s") if row["metric"] == "mean test accuracy"]
    assert [(row["grid"], row["group"], row["reference"]) for row in rows] == [
        ("lr=0.1", "zero", ""),
        ("lr=0.1", "all", "zero"),
        ("lr=0.001", "zero", ""),
        ("lr=0.001", "all", "zero"),
    ]
    for row in rows:
        (run,) = [load_run(f) for f in study.glob(f"{row['group']}-{row['grid']}-seed1")]
        assert float(row["mean"]) == run.rounds["test_accuracy_mean"][-1]
    printed = capsys.readouterr().out
    assert printed.index("lr=0.1:") < printed.index("lr=0.001:")
    page = (tmp_path / "c.html").read_text()
    assert "minus zero" in page
    assert "by fedge compare" in page
    for name in ("sweep.csv",):
        assert (study / name).read_text() == (tmp_path / "c.csv").read_text()


def test_a_table_for_papers_is_printed_per_entry_of_the_grid(study, tmp_path, capsys):
    compared(study, tmp_path, "s", "--format", "latex")
    printed = capsys.readouterr().out
    assert "% lr=0.1:\n" in printed
    assert printed.count(r"\begin{tabular}") == 2


def test_a_target_that_no_score_reaches_is_refused(study, tmp_path, capsys):
    words = ["--runs-dir", str(study.parent), "-o", str(tmp_path / "c.html"), "--target", "1.5"]
    assert main(["compare", "s", *words]) == 4
    assert "--target must be" in capsys.readouterr().err
    assert not (tmp_path / "c.html").exists()


def test_beside_others_a_sweep_stands_for_its_runs(study, tmp_path):
    other = os.path.join("s", "all-lr=0.001-seed1")
    rows = compared(study, tmp_path, "s", other)
    assert "grid" not in rows[0]
    assert len({row["group"] for row in rows}) == 4
    means = [float(row["mean"]) for row in rows if row["metric"] == "mean test accuracy"]
    names = [f"{variant}-lr={lr}-seed1" for variant in ("zero", "all") for lr in (0.1, 0.001)]
    planned = [load_run(study / name).rounds["test_accuracy_mean"][-1] for name in names]
    assert means == planned  # the sweep's own reference is the first


def test_a_run_before_a_sweep_is_the_reference(study, tmp_path):
    rows = compared(study, tmp_path, os.path.join("s", "all-lr=0.001-seed1"), "s")
    mean = next(float(row["mean"]) for row in rows if row["metric"] == "mean test accuracy")
    assert mean == load_run(study / "all-lr=0.001-seed1").rounds["test_accuracy_mean"][-1]


def summarised(study, page):
    """The summary that a sweep writes at its end."""
    return write_summary(study)


def compared_later(study, page):
    """The comparison that is asked for later."""
    return compare_study(study, SimpleNamespace(output=page, csv=None, format="text", target=None))


@pytest.mark.parametrize(("module", "act"), [("summary", summarised), ("comparing", compared_later)])
def test_tables_of_which_nothing_can_be_made_are_one_line(study, tmp_path, monkeypatch, module, act):
    """A row that no figure expects."""

    def odd(*words):
        raise ValueError("zip() argument 2 is shorter than argument 1")

    monkeypatch.setattr(f"fedge.sweep.{module}.comparisons", odd)
    plan = kept_study(study)
    with pytest.raises(RunFolderError, match=r"^tables must be as the run wrote them, but ValueError: zip"):
        act(plan, tmp_path / "c.html")
