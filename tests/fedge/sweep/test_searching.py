"""A search on real runs: gone on with, ended early where poor, refused where it is another one."""

import csv
import json
import sys
from collections import Counter

import pytest

from fedge import load_run
from fedge.cli import main
from fedge.sweep import searching

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytest.importorskip("optuna")
pytestmark = pytest.mark.whole_runs

FILE = """
[sweep]
seeds = [1]
supernodes = 4
runs-dir = "{runs}"
{name}

[base]
data.path = "digits"
train.model = "linear"
train.local-epochs = 1
num-server-rounds = 2

[search]
sampler = "tpe"
trials = {trials}
batch = 2
prune-after = {prune}

[search.space]
train.lr = {{ low = 0.00001, high = 1.0, log = true }}
"""


def sweep(tmp_path, trials, prune=0, name="", jobs=1, also=()):
    path = tmp_path / "s.toml"
    path.write_text(FILE.format(runs=tmp_path / "runs", trials=trials, prune=prune, name=name))
    return main(["sweep", str(path), "--jobs", str(jobs), *also])


def trials_of(folder):
    with (folder / "trials.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.extended
def test_a_search_gone_on_with_is_the_one_in_one_go(tmp_path, capsys):
    """Stopped in the middle of a batch of two; the same trials, values and best, with other jobs, too."""
    assert sweep(tmp_path, 5, name='name = "whole"', jobs=2) == 0
    assert sweep(tmp_path, 3) == 0
    first = trials_of(tmp_path / "runs" / "s")
    assert sweep(tmp_path, 5) == 0
    whole, s = tmp_path / "runs" / "whole", tmp_path / "runs" / "s"
    assert trials_of(s)[:3] == first
    assert (s / "trials.csv").read_text() == (whole / "trials.csv").read_text()
    assert (s / "best.toml").read_text() == (whole / "best.toml").read_text()
    rows = trials_of(s)
    assert [row["trial"] for row in rows] == [f"t00{n}" for n in range(5)]
    for row in rows:
        run = load_run(s / f"{row['trial']}-seed1")
        assert run.config["train.lr"] == float(row["train.lr"])
        assert float(row["validation"]) == run.rounds["val_accuracy_mean"][-1]
    best = max(rows, key=lambda row: float(row["validation"]))
    options = tomllib.loads((s / "best.toml").read_text())
    assert options["train"] == {"model": "linear", "local-epochs": 1, "lr": float(best["train.lr"])}
    assert options["clients"] == 4
    assert f"best by validation: {best['trial']}" in capsys.readouterr().out


@pytest.mark.extended
def test_poor_trials_end_early_and_are_not_the_best(tmp_path, capsys):
    assert sweep(tmp_path, 6, prune=2, jobs=2) == 0
    rows = trials_of(tmp_path / "runs" / "s")
    pruned = [row for row in rows if row["state"] == "pruned"]
    assert pruned
    assert {row["state"] for row in rows[:2]} == {"complete"}
    drawn = json.loads((tmp_path / "runs" / "s" / "trials.json").read_text())["trials"]
    for row in rows:
        run = load_run(tmp_path / "runs" / "s" / f"{row['trial']}-seed1")
        least = drawn[int(row["trial"][1:])]["floors"]["1"]
        val = run.rounds["val_accuracy_mean"].to_list()
        assert (len(val) == 1) == (row["state"] == "pruned") == ("1" in least and val[0] < least["1"])
    assert f"{len(pruned)} pruned" in capsys.readouterr().out


@pytest.mark.extended
def test_trials_that_stop_early_are_complete(tmp_path, capsys):
    """No round is better than the first by 0.9, so a patience of one ends the run in round 2 of 4."""
    arguments = "callbacks-args.early-stopping"
    calls = f'callbacks = "early-stopping"\n{arguments}.patience = 1\n{arguments}.min-delta = 0.9'
    text = FILE.replace("rounds = 2", f"rounds = 4\n{calls}")
    (tmp_path / "s.toml").write_text(text.format(runs=tmp_path / "runs", trials=2, prune=0, name=""))
    assert main(["sweep", str(tmp_path / "s.toml")]) == 0
    folder = tmp_path / "runs" / "s"
    rows = trials_of(folder)
    runs = {row["trial"]: load_run(folder / f"{row['trial']}-seed1") for row in rows}
    assert {len(run.rounds) for run in runs.values()} == {2}
    scores = {trial: run.rounds["val_accuracy_mean"][-1] for trial, run in runs.items()}
    assert {row["trial"]: (row["state"], float(row["validation"])) for row in rows} == {
        trial: ("complete", score) for trial, score in scores.items()
    }
    best = max(rows, key=lambda row: scores[row["trial"]])
    assert tomllib.loads((folder / "best.toml").read_text())["train"]["lr"] == float(best["train.lr"])
    assert "2 complete" in capsys.readouterr().out


WATCH = """
class Watch:
    def __init__(self, note):
        self.note = note

    def begin_run(self, run):
        assert self.note == 'a\\x7f"ü'
"""


@pytest.mark.extended
def test_the_best_options_repeat_the_best_run(tmp_path, monkeypatch, capsys):
    """With the clients that it had, and arguments under names and of texts that TOML must quote."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "watch_of_a_test.py").write_text(WATCH)
    calls = 'callbacks = "watch_of_a_test:Watch"\nclients = 5\n'
    calls += 'callbacks-args."watch_of_a_test:Watch".note = "a\\u007f\\"ü"'
    text = FILE.replace("rounds = 2", f"rounds = 1\n{calls}")
    (tmp_path / "s.toml").write_text(text.format(runs=tmp_path / "runs", trials=2, prune=0, name=""))
    assert main(["sweep", "s.toml"]) == 0
    folder = tmp_path / "runs" / "s"
    printed = capsys.readouterr().out
    (best,) = [row["trial"] for row in trials_of(folder) if f"validation: {row['trial']}" in printed]
    words = ["-c", str(folder / "best.toml"), "-c", "seed=1 run-name='again'"]
    assert main(["run", *words]) == 0
    again, trial = load_run(tmp_path / "runs" / "again"), load_run(folder / f"{best}-seed1")
    assert len(trial.partition["client"].unique()) == 5
    name = "checkpoints/final.safetensors"
    assert (again.folder / name).read_bytes() == (trial.folder / name).read_bytes()


@pytest.mark.extended
def test_a_search_reads_each_of_its_runs_once(tmp_path, monkeypatch):
    """However many batches follow; a run that has ended does not change."""
    reads = Counter()

    def counted(folder):
        reads[folder.name] += 1
        return load_run(folder)

    monkeypatch.setattr(searching, "load_run", counted)
    assert sweep(tmp_path, 7) == 0
    assert reads == {f"t{number:03d}-seed1": 1 for number in range(7)}


def test_another_search_in_the_same_folder_is_refused(tmp_path, capsys):
    assert sweep(tmp_path, 1) == 0
    capsys.readouterr()
    assert sweep(tmp_path, 1, prune=2) == 4
    assert "[search] prune-after must be that of the first command" in capsys.readouterr().err
    kept = tmp_path / "runs" / "s" / "trials.json"
    forged = json.loads(kept.read_text())
    for space in (
        {"train.lr": {"low": 0.1, "high": 1.0, "is_log": False, "choices": []}},
        {"train.lr": 1},
        {},
    ):
        kept.write_text(json.dumps(forged | {"search": {**forged["search"], "space": space}}))
        assert sweep(tmp_path, 1) == 4
        said = capsys.readouterr().err
        assert "[search.space] must be that of the first command" in said
        assert " is 1e-05 to 1.0 on a logarithmic scale, was " in said
    (tmp_path / "runs" / "s" / "trials.json").write_text("{")
    assert sweep(tmp_path, 1) == 4
    assert "trials.json must be written by fedge sweep" in capsys.readouterr().err


def test_a_dry_run_lists_the_first_batch_and_starts_nothing(tmp_path, capsys):
    assert sweep(tmp_path, 5, also=["--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "t001-seed1" in printed
    assert "2 trials of 5; the others depend on results" in printed
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("also", "words"),
    [
        (["--launcher", "slurm"], "[search] needs --launcher local"),
        (["--only", "t000-seed1"], "--only must be omitted for [search]"),
    ],
)
def test_a_search_elsewhere_is_refused(tmp_path, capsys, also, words):
    assert sweep(tmp_path, 1, also=also) == 4
    assert words in capsys.readouterr().err
